import { PageHeader } from "../../shared/PageHeader";

export function Environments() {
  return <PageHeader title="Environments" />;
}
