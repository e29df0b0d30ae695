import { PageHeader } from "../../shared/PageHeader";

export function Runs() {
  return <PageHeader title="Runs" />;
}
