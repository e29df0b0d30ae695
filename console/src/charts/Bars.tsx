// A small row of bars, one for each reward: drawn as SVG, since it stands among text.
import { useId } from "react";

import { number } from "../format";

export interface Bar {
  label: string;
  value: number | null;
  faded?: boolean;
}

const WIDTH = 14;
const HEIGHT = 44;

/** `onPick` gets the index of the bar that was clicked. A missing value is a gap. */
export function Bars({ bars, name, onPick }: { bars: Bar[]; name: string; onPick?: (index: number) => void }) {
  const title = useId();
  const values = bars.map(({ value }) => value).filter((value) => value !== null);
  if (values.length === 0) return null;
  const top = Math.max(0, ...values);
  const bottom = Math.min(0, ...values);
  const scale = top === bottom ? 0 : (HEIGHT - 4) / (top - bottom);
  const zero = 2 + top * scale;
  const summary = `${name}: ${bars.map(({ label, value }) => `${label} ${number(value)}`).join(", ")}`;
  return (
    <svg
      className="bars"
      viewBox={`0 0 ${bars.length * WIDTH} ${HEIGHT}`}
      width={Math.min(bars.length * WIDTH, 900)}
      height={HEIGHT}
      preserveAspectRatio="none"
      role="img"
      aria-labelledby={title}
    >
      <title id={title}>{summary.slice(0, 2000)}</title>
      <line x1={0} x2={bars.length * WIDTH} y1={zero} y2={zero} className="bars-zero" />
      {bars.map(({ label, value, faded }, index) =>
        value === null ? null : (
          <g key={index} onClick={() => onPick?.(index)} className={onPick && "bars-pick"}>
            <title>{`${label}: ${number(value)}`}</title>
            <rect x={index * WIDTH} y={0} width={WIDTH} height={HEIGHT} fill="transparent" />
            <rect
              x={index * WIDTH + 2}
              width={WIDTH - 4}
              y={value >= 0 ? zero - Math.max(value * scale, 1.5) : zero}
              height={Math.max(Math.abs(value) * scale, 1.5)}
              className={value < 0 ? "bars-less" : "bars-more"}
              opacity={faded ? 0.35 : 1}
            />
          </g>
        ),
      )}
    </svg>
  );
}
