// Legend of colours, outside of the plots, so that it can be read and linked.
import { Group, Text, useComputedColorScheme } from "@mantine/core";
import type { ReactNode } from "react";

import { seriesColour } from "./palette";

export function Legend({ names }: { names: ReactNode[] }) {
  const scheme = useComputedColorScheme("light");
  return (
    <Group gap="md" component="ul" className="legend" aria-label="Colours">
      {names.map((name, index) => (
        <Group key={index} gap={6} wrap="nowrap" component="li">
          <svg width={22} height={10} aria-hidden>
            <line
              x1={0}
              x2={22}
              y1={5}
              y2={5}
              stroke={seriesColour(scheme, index)}
              strokeWidth={3}
              strokeDasharray={index % 2 ? "6 4" : undefined}
            />
          </svg>
          <Text size="sm" component="span" className="wrap-anywhere">
            {name}
          </Text>
        </Group>
      ))}
    </Group>
  );
}
