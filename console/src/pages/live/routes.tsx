import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "live", lazy: async () => ({ Component: (await import("./Live")).Live }) },
];
