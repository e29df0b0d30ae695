import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "trajectories", lazy: async () => ({ Component: (await import("./Trajectories")).Trajectories }) },
];
