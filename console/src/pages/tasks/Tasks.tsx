import { PageHeader } from "../../shared/PageHeader";

export function Tasks() {
  return <PageHeader title="Tasks" />;
}
