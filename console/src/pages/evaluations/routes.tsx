import type { RouteObject } from "react-router";

export const routes: RouteObject[] = [
  { path: "evaluations", lazy: async () => ({ Component: (await import("./Evaluations")).Evaluations }) },
  { path: "evaluations/compare", lazy: async () => ({ Component: (await import("./Compare")).CompareEvaluations }) },
  { path: "evaluations/:id", lazy: async () => ({ Component: (await import("./Evaluation")).EvaluationPage }) },
];
