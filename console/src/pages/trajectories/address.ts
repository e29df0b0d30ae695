// The query of the page's address as the store of what was chosen.
import { useCallback, useEffect, useRef, useState } from "react";
import { useSearchParams } from "react-router";

/** Changes to the query: null or an empty text removes a parameter, a list repeats it. */
export type Changes = Record<string, string | string[] | null | undefined>;

export type Change = (changes: Changes, replace?: boolean) => void;

/** The query, and what changes it. A change is a step for the back button unless it replaces the one before. */
export function useAddress(): [URLSearchParams, Change] {
  const [search, setSearch] = useSearchParams();
  const latest = useRef(setSearch);
  latest.current = setSearch;
  // the same all the time, so that what is given it is not drawn again with every address
  const change = useCallback<Change>(
    (changes, replace = false) => {
      // as the address is now: what this page was drawn with may be older, when one is quick
      const next = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(changes)) {
        next.delete(name);
        for (const one of [value ?? []].flat()) if (one !== "") next.append(name, one);
      }
      latest.current(next, { replace });
    },
    [],
  );
  return [search, change];
}

/**
 * What a person does to `inAddress` shows at once; the address follows when it can, and may pass through earlier values on its
 * way. Only what it comes to by itself, by the back button or a link, is taken over from it. `sent` is to be told what goes to
 * the address.
 */
export function useAhead(inAddress: string): { shown: string; show: (value: string) => void; sent: (value: string) => void } {
  const [shown, show] = useState(inAddress);
  const awaited = useRef<string[]>([]);
  useEffect(() => {
    const index = awaited.current.lastIndexOf(inAddress);
    if (index < 0) show(inAddress);
    awaited.current = index < 0 ? [] : awaited.current.slice(index + 1);
  }, [inAddress]);
  const sent = useCallback((value: string) => void awaited.current.push(value), []);
  useEffect(() => {
    if (awaited.current.at(-1) === inAddress) awaited.current = []; // changed, and changed back before it got there
  });
  return { shown, show, sent };
}
