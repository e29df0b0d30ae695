import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "trajectories", lazy: async () => ({ Component: (await import("./Trajectories")).Trajectories }) },
  { path: "trajectories/diff", lazy: async () => ({ Component: (await import("./Diff")).Diff }) },
  { path: "trajectories/:id", lazy: async () => ({ Component: (await import("./Trajectory")).TrajectoryPage }) },
];
