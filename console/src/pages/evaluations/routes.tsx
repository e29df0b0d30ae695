import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "evaluations", lazy: async () => ({ Component: (await import("./Evaluations")).Evaluations }) },
];
