// Asks for the data of a page while its code is still on the way.
import type { RouteObject } from "react-router";
import type { FetchQueryOptions } from "@tanstack/react-query";

import { queryClient } from "./queries";

type Asked = FetchQueryOptions<any, any, any, any>; // each page has data of its own kind

/** Needs of a route for that: `asked` derives the page's queries from the address. */
export function early(
  asked: (search: URLSearchParams, parameters: Record<string, string | undefined>) => Asked[],
): Pick<RouteObject, "loader" | "shouldRevalidate"> {
  return {
    loader: ({ request, params }) => {
      for (const each of asked(new URL(request.url).searchParams, params)) void queryClient.prefetchQuery(each);
      return null; // the page waits for them by itself, and tells what went wrong
    },
    shouldRevalidate: () => false, // once it is shown, it asks by itself
  };
}
