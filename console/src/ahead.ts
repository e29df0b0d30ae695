// Fetches the code of the pages that may be opened next, one after the other, while the browser has nothing else to do.
import type { RouteObject } from "react-router";

const SETTLED_MS = 200; // the page that was opened has its data

export function fetchAhead(routes: RouteObject[]): void {
  const waiting = routes.flatMap(({ lazy }) => (typeof lazy === "function" ? [lazy] : []));
  const next = () => {
    const page = waiting.shift();
    // one that cannot be had now is fetched, and its failure shown, when it is opened
    if (page) void page().then(whenIdle, whenIdle);
  };
  const whenIdle = () => {
    if ("requestIdleCallback" in window) requestIdleCallback(next);
    else setTimeout(next, SETTLED_MS);
  };
  addEventListener("load", () => setTimeout(whenIdle, SETTLED_MS), { once: true });
}
