// Queries of the playground to the journal.
import { useQuery } from "@tanstack/react-query";

import { useServer } from "../../api/queries";
import { get } from "../../api/request";
import type { Page } from "../../api/types";

const SOON_MS = 250;
const LATE_MS = 10_000;

/** The id of what is recorded of a session; undefined without a journal, and before it has any of it. */
export function useTrajectoryOf(sid: string | null): string | undefined {
  const journal = useServer().data?.journal ?? null;
  return useQuery({
    queryKey: ["trajectory of", sid],
    queryFn: ({ signal }) => get<Page>("trajectories", { sid, limit: 1 }, signal),
    enabled: sid !== null && journal !== null && journal.state !== "off",
    select: (page) => page.items[0]?.id,
    // the journal may be behind, or in trouble for a while
    refetchInterval: ({ state }) =>
      state.data?.items.length ? false : Math.min(SOON_MS * 2 ** (state.dataUpdateCount + state.errorUpdateCount), LATE_MS),
  }).data;
}
