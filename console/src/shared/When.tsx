// A time: how long ago in the text, the exact time in the tooltip.
import { Tooltip } from "@mantine/core";

import { ago, dateTime, NONE } from "../format";

export function When({ at }: { at: string | null | undefined }) {
  if (!at) return <>{NONE}</>;
  return (
    <Tooltip label={dateTime(at)} withArrow>
      <time dateTime={at} title={dateTime(at)}>
        {ago(at)}
      </time>
    </Tooltip>
  );
}
