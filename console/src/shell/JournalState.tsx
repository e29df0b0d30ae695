// Alert on every page while the journal is off or fails: what is played now will not be found later.
import { Alert } from "@mantine/core";

import { useServer } from "../api/queries";
import { count } from "../format";

export function JournalState() {
  const journal = useServer().data?.journal;
  if (journal?.state !== "trouble") return null;
  return (
    <Alert color="red" variant="outline" title="The journal cannot be written" role="alert" mb="md">
      {journal.reason ?? "It cannot be written."} Sessions continue but are not recorded
      {journal.lost > 0 && <> ({count(journal.lost)} rows lost so far)</>}.
    </Alert>
  );
}
