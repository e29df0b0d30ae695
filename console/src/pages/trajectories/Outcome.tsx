// Outcome of a session, in one word. A fault never looks like an answer of the environment.
import type { Summary } from "../../api/types";
import { Tag } from "../../shared/Tag";

export function Outcome({ of }: { of: Pick<Summary, "ended_at" | "end_reason" | "fault" | "finished"> }) {
  if (of.fault) {
    return (
      <Tag colour="red" className="fault" title={`Fault: ${of.end_reason ?? of.fault}`}>
        {of.fault}
      </Tag>
    );
  }
  if (of.finished) return <Tag colour="green">finished</Tag>;
  if (of.ended_at === null) return <Tag colour="blue">running</Tag>;
  return (
    <Tag colour="gray" title={of.end_reason ?? "The session ended before the episode finished."}>
      unfinished
    </Tag>
  );
}
