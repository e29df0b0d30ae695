// What is marked for a comparison. The address keeps it; the marks themselves show at once, whenever that follows.
import { useEffect, useRef, useState } from "react";

import { useAddress } from "./address";

/** Names that are marked under `parameter`, and what marks one or takes its mark away. At most `most`, newest last. */
export function useMarks(parameter: string, most: number): [string[], (name: string) => void] {
  const [search, change] = useAddress();
  const inAddress = search.getAll(parameter);
  const [marked, setMarked] = useState(inAddress);
  const sent = useRef(inAddress.join("\n"));
  const text = inAddress.join("\n");
  useEffect(() => {
    if (text === sent.current) return;
    sent.current = text; // the back button, or a link
    setMarked(text ? text.split("\n") : []);
  }, [text]);
  const mark = (name: string) => {
    const others = marked.filter((other) => other !== name);
    const next = others.length < marked.length ? others : [...others, name].slice(-most);
    sent.current = next.join("\n");
    setMarked(next);
    change({ [parameter]: next }, true);
  };
  return [marked, mark];
}
