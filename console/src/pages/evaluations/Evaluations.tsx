import { PageHeader } from "../../shared/PageHeader";

export function Evaluations() {
  return <PageHeader title="Evaluations" />;
}
