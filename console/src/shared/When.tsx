// A time: how long ago in the text, the exact time under the pointer.
import { ago, dateTime, milliseconds, NONE } from "../format";

export function When({ at, now }: { at: number | null | undefined; now?: number }) {
  if (!at) return <>{NONE}</>;
  return (
    <time dateTime={new Date(milliseconds(at)).toISOString()} title={dateTime(at)}>
      {ago(at, now)}
    </time>
  );
}
