import type { RouteObject } from "react-router";

import { early } from "../../api/early";
import { readWanted, tasksQuery } from "./queries";

const ofMap = early((search) => [tasksQuery(readWanted(search))]);

export const routes: RouteObject[] = [
  { path: "tasks", ...ofMap, lazy: async () => ({ Component: (await import("./Tasks")).Tasks }) },
];
