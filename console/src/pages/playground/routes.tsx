import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "playground/:environment?", lazy: async () => ({ Component: (await import("./Playground")).Playground }) },
];
