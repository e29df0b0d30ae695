// Queries of the page of tasks.
import { queryOptions } from "@tanstack/react-query";

import { get } from "../../api/request";
import type { TaskCell } from "../../api/types";

/** Filter of tasks; empty for all. */
export interface Wanted {
  environment: string;
  run: string;
  split: string;
}

export function readWanted(search: URLSearchParams): Wanted {
  const at = (name: keyof Wanted) => search.get(name) ?? "";
  return { environment: at("environment"), run: at("run"), split: at("split") };
}

export function tasksQuery(wanted: Wanted) {
  return queryOptions({
    queryKey: ["tasks", wanted],
    queryFn: ({ signal }) => get<TaskCell[]>("tasks", { ...wanted }, signal),
  });
}
