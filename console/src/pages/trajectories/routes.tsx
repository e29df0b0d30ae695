import type { RouteObject } from "react-router";

import { early } from "../../api/early";
import { readFilters } from "./filters";
import { trajectoriesQuery, trajectoryQuery } from "./queries";

const ofList = early((search) => [trajectoriesQuery(readFilters(search), search.get("before"))]);
const ofBoth = early((search) => ["a", "b"].flatMap((name) => search.getAll(name).slice(0, 1).map(trajectoryQuery)));
const ofOne = early((_, { id }) => [trajectoryQuery(id)]);

export const routes: RouteObject[] = [
  { path: "trajectories", ...ofList, lazy: async () => ({ Component: (await import("./Trajectories")).Trajectories }) },
  { path: "trajectories/diff", ...ofBoth, lazy: async () => ({ Component: (await import("./Diff")).Diff }) },
  { path: "trajectories/:id", ...ofOne, lazy: async () => ({ Component: (await import("./Trajectory")).TrajectoryPage }) },
];
