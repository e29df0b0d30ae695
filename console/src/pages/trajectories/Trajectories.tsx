import { PageHeader } from "../../shared/PageHeader";

export function Trajectories() {
  return <PageHeader title="Trajectories" />;
}
