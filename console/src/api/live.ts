// The live feed: what the server does now, each second, as long as a page shows it.
import { useEffect, useState } from "react";

import { pause } from "../ors/requests";
import { apiUrl } from "../urls";
import { readEvents } from "./events";
import { useKey } from "./key";
import { RequestError, send } from "./request";
import type { Snapshot } from "./types";

export interface Feed {
  /** The newest one; it stays when the connection breaks. */
  snapshot: Snapshot | null;
  /** Calls and faults per second of the last two minutes, oldest first. */
  past: { calls: number; faults: number }[];
  problem: Error | null;
}

const KEPT = 120;
const EMPTY: Feed = { snapshot: null, past: [], problem: null };

export function useLive(): Feed & { retry: () => void } {
  const [feed, setFeed] = useState<Feed>(EMPTY);
  const [attempt, setAttempt] = useState(0);
  const { key } = useKey();

  useEffect(() => {
    const over = new AbortController();
    void follow(over.signal, (change) => {
      if (!over.signal.aborted) setFeed(change);
    });
    return () => over.abort();
  }, [attempt, key]);

  return { ...feed, retry: () => setAttempt((before) => before + 1) };
}

async function follow(signal: AbortSignal, change: (with_: (before: Feed) => Feed) => void): Promise<void> {
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const response = await send(apiUrl("live"), { headers: { Accept: "text/event-stream" }, signal });
      for await (const { event, data } of readEvents(response)) {
        if (event !== "snapshot") continue;
        tries = 0;
        const snapshot = JSON.parse(data) as Snapshot;
        const moment = { calls: snapshot.calls_per_s, faults: snapshot.faults_per_s };
        change(({ past }) => ({ snapshot, past: [...past, moment].slice(-KEPT), problem: null }));
      }
      throw new RequestError("The server closed the live feed.", 0);
    } catch (problem) {
      if (signal.aborted) return;
      const error = problem instanceof Error ? problem : new Error(String(problem));
      change((before) => ({ ...before, problem: error }));
      // a refusal stays one until there is another key, or another address
      if (error instanceof RequestError && (error.status === 401 || error.status === 403)) return;
      await pause(Math.min(10_000, 500 * 2 ** tries), signal).catch(() => undefined);
    }
  }
}
