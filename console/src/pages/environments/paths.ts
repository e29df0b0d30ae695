// Paths of the pages about an environment.

export function environmentPath(key: string): string {
  return `/environments/${encodeURIComponent(key)}`;
}

/** The playground, with a task chosen when one is given. */
export function playgroundPath(key: string, task?: { split: string; index?: number }): string {
  const search = new URLSearchParams();
  if (task) {
    search.set("split", task.split);
    if (task.index !== undefined) search.set("index", String(task.index));
  }
  const text = search.toString();
  return `/playground/${encodeURIComponent(key)}${text ? `?${text}` : ""}`;
}
