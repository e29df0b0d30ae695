// Time of a call by phase: waiting, in the tool, on the wire.
import type { Step } from "../../api/types";
import { duration } from "../../format";

const PARTS = [
  { field: "queue_s", name: "queue" },
  { field: "run_s", name: "run" },
  { field: "stream_s", name: "stream" },
] as const;

const WIDTH = 160;

/** `longest` is the duration of the session's longest call: all bars have one scale. */
export function Timing({ of, longest }: { of: Step; longest: number }) {
  const spans = PARTS.map(({ field, name }) => ({ name, seconds: of[field] ?? 0 })).filter(({ seconds }) => seconds > 0);
  const words = spans.map(({ name, seconds }) => `${name} ${duration(seconds)}`).join(" · ");
  let x = 0;
  return (
    <div className="timing">
      {longest > 0 && spans.length > 0 && (
        <svg viewBox={`0 0 ${WIDTH} 6`} width={WIDTH} height={6} aria-hidden>
          {spans.map(({ name, seconds }) => {
            const from = x;
            const width = Math.max((seconds / longest) * WIDTH, 1);
            x += width;
            return <rect key={name} x={from} y={0} height={6} width={width} className={`timing-${name}`} />;
          })}
        </svg>
      )}
      <span className="smaller dimmed numeric">
        {of.total_s === null ? "no result" : duration(of.total_s)}
        {words && ` (${words})`}
      </span>
    </div>
  );
}

export function longestCall(steps: readonly Step[]): number {
  return Math.max(0, ...steps.map((step) => PARTS.reduce((sum, { field }) => sum + (step[field] ?? 0), 0)));
}
