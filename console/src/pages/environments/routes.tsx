import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "environments", lazy: async () => ({ Component: (await import("./Environments")).Environments }) },
  { path: "environments/:name", lazy: async () => ({ Component: (await import("./Detail")).Detail }) },
];
