// A time: how long ago in the text, the exact time in the tooltip.
import { Tooltip } from "@mantine/core";

import type { Time } from "../api/types";
import { ago, dateTime, milliseconds, NONE } from "../format";

export function When({ at }: { at: Time | null | undefined }) {
  if (!at) return <>{NONE}</>;
  return (
    <Tooltip label={dateTime(at)} withArrow>
      <time dateTime={new Date(milliseconds(at)).toISOString()} title={dateTime(at)}>
        {ago(at)}
      </time>
    </Tooltip>
  );
}
