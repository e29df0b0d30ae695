// Tables as files that spreadsheets open.
import { saveFile } from "../api/request";

export type Cell = string | number | boolean | null | undefined;

export interface Table {
  columns: string[];
  rows: Cell[][];
}

/** RFC 4180. A text that a spreadsheet would take for a formula is made a text with an apostrophe. */
export function toCsv({ columns, rows }: Table): string {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value: Cell): string {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function saveCsv(table: Table, name: string): void {
  saveFile(new Blob([toCsv(table)], { type: "text/csv;charset=utf-8" }), `${fileName(name)}.csv`);
}

/** A name that every file system takes. */
export function fileName(name: string): string {
  return name.replace(/[^\w.-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 80) || "orsay";
}
