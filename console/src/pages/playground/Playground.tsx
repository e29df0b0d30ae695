import { PageHeader } from "../../shared/PageHeader";

export function Playground() {
  return <PageHeader title="Playground" />;
}
