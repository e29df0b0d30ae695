import { PageHeader } from "../../shared/PageHeader";

export function Live() {
  return <PageHeader title="Live" />;
}
