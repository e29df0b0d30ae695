// Alert on every page while the journal is off or fails: what is played now will not be found later.
import { Alert } from "@mantine/core";

import { useServer } from "../api/queries";
import { count } from "../format";

export function JournalState() {
  const journal = useServer().data?.journal;
  if (journal?.state !== "trouble") return null;
  return (
    <Alert color="red" variant="outline" title="The journal is in trouble" role="alert" mb="md">
      {journal.reason ?? "It cannot be written."} Sessions go on, and are not recorded meanwhile
      {journal.lost > 0 && <> ({count(journal.lost)} rows are lost so far)</>}.
    </Alert>
  );
}
