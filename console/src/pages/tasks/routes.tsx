import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "tasks", lazy: async () => ({ Component: (await import("./Tasks")).Tasks }) },
];
