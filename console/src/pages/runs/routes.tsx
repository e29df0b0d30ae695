import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "runs", lazy: async () => ({ Component: (await import("./Runs")).Runs }) },
  { path: "runs/compare", lazy: async () => ({ Component: (await import("./Compare")).Compare }) },
];
