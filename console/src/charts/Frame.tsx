// Frame of every plot: its name, buttons that change and save it, and its numbers as a table for those who cannot see
// it.
import { ActionIcon, Menu, Paper, ScrollArea, Table as Rows, Text } from "@mantine/core";
import { Download, Table2 } from "lucide-react";
import { useEffect, useId, useRef, useState, type ReactNode } from "react";

import { saveFile } from "../api/request";
import { fileName, saveCsv, type Table } from "./csv";

export interface FrameProps {
  title: string;
  /** Made when it is looked at or saved. */
  table: () => Table;
  file: string;
  height: number;
  legend?: ReactNode;
  /** The plot as it is saved; null while there is none. */
  picture: () => HTMLCanvasElement | null;
  /** Buttons before the others, while the plot is shown. */
  tools?: ReactNode;
  /** The plot, while it is shown and not its table. */
  children: ReactNode;
}

const MOST_ROWS = 200;

export function Frame({ title, table, file, height, legend, picture, tools, children }: FrameProps) {
  const heading = useId();
  const [asTable, setAsTable] = useState(false);
  return (
    <Paper component="section" withBorder p="sm" aria-labelledby={heading}>
      <div className="plot-head">
        <h2 id={heading} className="plot-title">
          {title}
        </h2>
        <div className="plot-tools">
          {!asTable && tools}
          <Tool
            label={asTable ? `${title} as a plot` : `${title} as a table`}
            onClick={() => setAsTable(!asTable)}
            pressed={asTable}
            icon={<Table2 size={16} />}
          />
          <SaveMenu title={title} table={table} file={file} picture={asTable ? null : picture} />
        </div>
      </div>
      {legend}
      {asTable ? <Numbers table={table()} title={title} height={height} /> : children}
    </Paper>
  );
}

export function Tool({ label, icon, onClick, pressed }: { label: string; icon: ReactNode; onClick: () => void; pressed?: boolean }) {
  return (
    <button type="button" className="tool" aria-label={label} title={label} aria-pressed={pressed} onClick={onClick}>
      {icon}
    </button>
  );
}

interface SaveProps {
  title: string;
  table: () => Table;
  file: string;
  picture: (() => HTMLCanvasElement | null) | null;
}

/** A button; the menu behind it is made when it is first asked for. */
function SaveMenu(props: SaveProps) {
  const [asked, setAsked] = useState(false);
  if (asked) return <OpenedMenu {...props} />;
  const label = `Save ${props.title}`;
  return (
    <button
      type="button"
      className="tool"
      aria-label={label}
      title={label}
      aria-haspopup="menu"
      aria-expanded={false}
      onClick={() => setAsked(true)}
    >
      <Download size={16} />
    </button>
  );
}

function OpenedMenu({ title, table, file, picture }: SaveProps) {
  const [opened, setOpened] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    button.current?.focus({ preventScroll: true }); // where the focus returns to
    setOpened(true);
  }, []);
  const label = `Save ${title}`;
  return (
    <Menu position="bottom-end" opened={opened} onChange={setOpened}>
      <Menu.Target>
        <ActionIcon ref={button} variant="subtle" color="gray" className="tool" aria-label={label} title={label}>
          <Download size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item disabled={picture === null} onClick={() => picture && savePng(picture(), file)}>
          Plot as PNG
        </Menu.Item>
        <Menu.Item onClick={() => saveCsv(table(), file)}>Numbers as CSV</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

function savePng(canvas: HTMLCanvasElement | null, file: string): void {
  canvas?.toBlob((image) => image && saveFile(image, `${fileName(file)}.png`), "image/png");
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
