// One plot: drawn by ECharts, zoomed with buttons, pointer or fingers, saved as PNG or CSV, and readable as a table for those who
// cannot see it.
import { ActionIcon, Box, Group, Menu, Paper, ScrollArea, Table as Rows, Text, useComputedColorScheme } from "@mantine/core";
import { Download, RotateCcw, Table2, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useId, useMemo, useRef, useState, type ReactNode } from "react";

import { saveFile } from "../api/request";
import { fileName, saveCsv, type Table } from "./csv";
import { init, type ECharts, type EChartsCoreOption } from "./echarts";
import { ink, type Scheme } from "./palette";

export interface ChartProps {
  title: string;
  /** What the plot shows, for those who cannot see it. */
  summary: string;
  option: (scheme: Scheme) => EChartsCoreOption;
  table: Table;
  file: string;
  height?: number;
  /** Whether the horizontal axis can be zoomed. */
  zoom?: boolean;
  legend?: ReactNode;
  onPick?: (picked: { seriesIndex: number; dataIndex: number }) => void;
  onWidth?: (width: number) => void;
}

const MOST_ROWS = 200;

export function Chart({ title, summary, option, table, file, height = 280, zoom = true, legend, onPick, onWidth }: ChartProps) {
  const scheme = useComputedColorScheme("light");
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<ECharts | null>(null);
  const picked = useRef(onPick);
  const widened = useRef(onWidth);
  const heading = useId();
  const [asTable, setAsTable] = useState(false);
  const built = useMemo(() => option(scheme), [option, scheme]);
  picked.current = onPick;
  widened.current = onWidth;

  useEffect(() => {
    const element = place.current;
    if (element === null || asTable) return;
    const made = init(element, null, { renderer: "canvas" });
    chart.current = made;
    made.on("click", (event) =>
      picked.current?.({ seriesIndex: event.seriesIndex ?? 0, dataIndex: event.dataIndex }),
    );
    made.getZr().on("dblclick", () => setZoom(made, 0, 100));
    const watcher = new ResizeObserver(() => {
      made.resize();
      widened.current?.(element.clientWidth);
    });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      made.dispose();
      chart.current = null;
    };
  }, [asTable]);

  useEffect(() => {
    const made = chart.current;
    if (made === null) return;
    made.setOption(built, { notMerge: true });
    // dragging marks the part to zoom to; the toolbox itself stays out of sight
    if (zoom) made.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }, [built, zoom, asTable]);

  return (
    <Paper component="section" withBorder p="sm" aria-labelledby={heading}>
      <Group justify="space-between" wrap="nowrap" mb={4}>
        <Text component="h2" id={heading} fw={600} size="sm">
          {title}
        </Text>
        <Group gap={2} wrap="nowrap">
          {zoom && !asTable && (
            <>
              <Tool label={`Zoom into ${title}`} onClick={() => zoomBy(chart.current, 0.5)} icon={<ZoomIn size={16} />} />
              <Tool label={`Zoom out of ${title}`} onClick={() => zoomBy(chart.current, 2)} icon={<ZoomOut size={16} />} />
              <Tool
                label={`Show all of ${title}`}
                onClick={() => chart.current && setZoom(chart.current, 0, 100)}
                icon={<RotateCcw size={16} />}
              />
            </>
          )}
          <Tool
            label={asTable ? `${title} as a plot` : `${title} as a table`}
            onClick={() => setAsTable(!asTable)}
            pressed={asTable}
            icon={<Table2 size={16} />}
          />
          <Menu position="bottom-end">
            <Menu.Target>
              <ActionIcon variant="subtle" color="gray" aria-label={`Save ${title}`} title={`Save ${title}`}>
                <Download size={16} />
              </ActionIcon>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item disabled={asTable} onClick={() => savePng(chart.current, ink(scheme).background, file)}>
                Plot as PNG
              </Menu.Item>
              <Menu.Item onClick={() => saveCsv(table, file)}>Numbers as CSV</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </Group>
      </Group>
      {legend}
      {asTable ? (
        <Numbers table={table} title={title} height={height} />
      ) : (
        <Box ref={place} h={height} role="img" aria-label={`${title}. ${summary}`} />
      )}
    </Paper>
  );
}

function Tool({ label, icon, onClick, pressed }: { label: string; icon: ReactNode; onClick: () => void; pressed?: boolean }) {
  return (
    <ActionIcon variant="subtle" color="gray" aria-label={label} title={label} aria-pressed={pressed} onClick={onClick}>
      {icon}
    </ActionIcon>
  );
}

function Numbers({ table, title, height }: { table: Table; title: string; height: number }) {
  const shown = table.rows.slice(0, MOST_ROWS);
  return (
    <ScrollArea h={height} type="auto" viewportProps={{ tabIndex: 0, "aria-label": `Numbers of ${title}`, role: "region" }}>
      <Rows stickyHeader fz="xs" verticalSpacing={4}>
        <Rows.Thead>
          <Rows.Tr>
            {table.columns.map((column) => (
              <Rows.Th key={column}>{column}</Rows.Th>
            ))}
          </Rows.Tr>
        </Rows.Thead>
        <Rows.Tbody>
          {shown.map((row, index) => (
            <Rows.Tr key={index}>
              {row.map((value, column) => (
                <Rows.Td key={column}>
                  {typeof value === "number" ? Number(value.toPrecision(6)).toString() : String(value ?? "–")}
                </Rows.Td>
              ))}
            </Rows.Tr>
          ))}
        </Rows.Tbody>
      </Rows>
      {table.rows.length > shown.length && (
        <Text size="xs" p="xs">
          {`The first ${shown.length} of ${table.rows.length} rows; all are in the CSV file.`}
        </Text>
      )}
    </ScrollArea>
  );
}

function setZoom(chart: ECharts, start: number, end: number): void {
  chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start, end });
}

function zoomBy(chart: ECharts | null, factor: number): void {
  if (chart === null) return;
  const zooms = (chart.getOption() as { dataZoom?: { start?: number; end?: number }[] }).dataZoom;
  const { start = 0, end = 100 } = zooms?.[0] ?? {};
  const middle = (start + end) / 2;
  const half = Math.min(50, Math.max(0.5, ((end - start) / 2) * factor));
  const from = Math.min(Math.max(0, middle - half), 100 - 2 * half);
  setZoom(chart, from, from + 2 * half);
}

function savePng(chart: ECharts | null, backgroundColor: string, file: string): void {
  if (chart === null) return;
  const canvas = chart.renderToCanvas({ pixelRatio: 2, backgroundColor });
  canvas.toBlob((image) => image && saveFile(image, `${fileName(file)}.png`), "image/png");
}
