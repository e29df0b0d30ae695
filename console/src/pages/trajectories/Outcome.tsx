// How a session ended, in one word. A fault never looks like an answer of the environment.
import { Badge, Tooltip } from "@mantine/core";

import type { Summary } from "../../api/types";

export function Outcome({ of }: { of: Pick<Summary, "ended_at" | "end_reason" | "fault" | "finished"> }) {
  if (of.fault) {
    return (
      <Tooltip label={`Fault: ${of.end_reason ?? of.fault}`} withArrow multiline maw={400}>
        <Badge color="red" variant="light" className="mark fault">
          {of.fault}
        </Badge>
      </Tooltip>
    );
  }
  if (of.finished) {
    return (
      <Badge color="green" variant="light" className="mark">
        finished
      </Badge>
    );
  }
  if (of.ended_at === null) {
    return (
      <Badge color="blue" variant="light" className="mark">
        running
      </Badge>
    );
  }
  return (
    <Tooltip label={of.end_reason ?? "It ended before the episode did."} withArrow multiline maw={400}>
      <Badge color="gray" variant="light" className="mark">
        unfinished
      </Badge>
    </Tooltip>
  );
}
