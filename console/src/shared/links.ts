// Links of which a list has many: plain ones, whose clicks one listener around them follows within the page.
import type { MouseEvent } from "react";

/** The link of a click that is to be followed here, and not in a new tab or window; the browser leaves it to the page. */
export function linkOf(event: MouseEvent, selector: string): HTMLAnchorElement | null {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>(selector) : null;
  const elsewhere = event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (link === null || elsewhere || event.defaultPrevented) return null;
  event.preventDefault();
  return link;
}
