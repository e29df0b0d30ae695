import type { RouteObject } from "react-router";

import { early } from "../../api/early";
import { readChoice, runsQuery, seriesQuery } from "./queries";

const ofAll = early(() => [runsQuery()]);
const ofSome = early((search) => {
  const { names, choice } = readChoice(search);
  return names.map((name) => seriesQuery(name, choice));
});

export const routes: RouteObject[] = [
  { path: "runs", ...ofAll, lazy: async () => ({ Component: (await import("./Runs")).Runs }) },
  { path: "runs/compare", ...ofSome, lazy: async () => ({ Component: (await import("./Compare")).Compare }) },
];
