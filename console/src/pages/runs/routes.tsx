import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "runs", lazy: async () => ({ Component: (await import("./Runs")).Runs }) },
];
