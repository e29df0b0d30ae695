// The query of the page's address as the place where a page keeps what was chosen.
import { useCallback } from "react";
import { useSearchParams } from "react-router";

/** What to change: null or an empty text takes a parameter away, a list repeats it. */
export type Changes = Record<string, string | string[] | null | undefined>;

export type Change = (changes: Changes, replace?: boolean) => void;

/** The query, and what changes it. A change is a step for the back button unless it replaces the one before. */
export function useAddress(): [URLSearchParams, Change] {
  const [search, setSearch] = useSearchParams();
  const change = useCallback<Change>(
    (changes, replace = false) => {
      // as the address is now: what this page was drawn with may be older, when one is quick
      const next = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(changes)) {
        next.delete(name);
        for (const one of [value ?? []].flat()) if (one !== "") next.append(name, one);
      }
      setSearch(next, { replace });
    },
    [setSearch],
  );
  return [search, change];
}
