// A small line of the last moments, without axes: the metric beside it has the number.

const WIDTH = 240;
const HEIGHT = 36;

export function Spark({ values, label }: { values: number[]; label: string }) {
  if (values.length < 2) return null;
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, index) => {
    const x = (index / (values.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
  });
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      width="100%"
      height={HEIGHT}
      role="img"
      aria-label={`${label}; at most ${top < 0.01 ? 0 : top.toLocaleString("en", { maximumFractionDigits: 1 })}`}
    >
      <polyline
        points={points.join(" ")}
        fill="none"
        stroke="var(--mantine-color-anchor)"
        strokeWidth={1.5}
        vectorEffect="non-scaling-stroke"
      />
    </svg>
  );
}
