// Rows marked for a comparison. The address keeps it; the marks themselves show at once, whenever that follows.
import { useAddress, useAhead } from "./address";

/** Names that are marked under `parameter`, and what marks one or takes its mark away. At most `most`, newest last. */
export function useMarks(parameter: string, most: number): [string[], (name: string) => void] {
  const [search, change] = useAddress();
  const { shown, show, sent } = useAhead(search.getAll(parameter).join("\n"));
  const marked = shown === "" ? [] : shown.split("\n");
  const mark = (name: string) => {
    const others = marked.filter((other) => other !== name);
    const next = others.length < marked.length ? others : [...others, name].slice(-most);
    show(next.join("\n"));
    sent(next.join("\n"));
    change({ [parameter]: next }, true);
  };
  return [marked, mark];
}
