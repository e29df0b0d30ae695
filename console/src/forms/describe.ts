// A JSON schema in words, for lists of a tool's arguments.
import type { JsonObject } from "../api/json";
import { isNode, resolve } from "./adapt";

type Node = Record<string, unknown>;

export interface Argument {
  name: string;
  type: string;
  required: boolean;
  default: string | null;
  description: string | null;
}

const NAMES: Record<string, string> = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  object: "object",
  null: "nothing",
};

/** The arguments of a tool; those of nested models follow theirs, with dots in their names. */
export function describeArguments(schema: JsonObject | null): Argument[] {
  return schema === null ? [] : inside(schema as Node, schema as Node, "", 0);
}

function inside(node: Node, root: Node, prefix: string, depth: number): Argument[] {
  const target = resolve(node, root);
  if (!isNode(target["properties"]) || depth > 3) return [];
  const required = new Set(Array.isArray(target["required"]) ? (target["required"] as string[]) : []);
  return Object.entries(target["properties"]).flatMap(([name, property]) => {
    if (!isNode(property)) return [];
    const full = prefix + name;
    const description = property["description"] ?? resolve(property, root)["description"];
    const here: Argument = {
      name: full,
      type: typeText(property, root),
      required: required.has(name),
      default: "default" in property ? JSON.stringify(property["default"]) : null,
      description: typeof description === "string" ? description : null,
    };
    return [here, ...nested(property, root, full, depth)];
  });
}

function nested(property: Node, root: Node, name: string, depth: number): Argument[] {
  const target = resolve(property, root);
  if (isNode(target["items"])) return inside(target["items"], root, `${name}[].`, depth + 1);
  const options = [target["anyOf"], target["oneOf"]].find(Array.isArray) as unknown[] | undefined;
  if (options !== undefined) {
    return options.flatMap((option) => (isNode(option) ? inside(option, root, `${name}.`, depth + 1) : []));
  }
  return inside(target, root, `${name}.`, depth + 1);
}

/** `whole number, 1 to 5`, `one of "a", "b"`, `list of Item`, `text or nothing`. */
export function typeText(node: Node, root: Node): string {
  const target = resolve(node, root);
  if ("const" in target) return JSON.stringify(target["const"]);
  if (Array.isArray(target["enum"])) return `one of ${target["enum"].map((each) => JSON.stringify(each)).join(", ")}`;
  const options = [target["anyOf"], target["oneOf"]].find(Array.isArray) as unknown[] | undefined;
  if (options !== undefined)
    return options.map((option) => (isNode(option) ? typeText(option, root) : "anything")).join(" or ");
  const type = target["type"];
  if (type === "array") {
    const parts = target["prefixItems"];
    if (Array.isArray(parts))
      return `[${parts.map((part) => (isNode(part) ? typeText(part, root) : "anything")).join(", ")}]`;
    return `list of ${isNode(target["items"]) ? typeText(target["items"], root) : "anything"}`;
  }
  if (type === "object") {
    const values = target["additionalProperties"];
    if (target["properties"] === undefined && isNode(values)) return `object of ${typeText(values, root)}`;
    return typeof target["title"] === "string" && target["properties"] !== undefined ? target["title"] : "object";
  }
  const name = typeof type === "string" ? (NAMES[type] ?? type) : "anything";
  return name + bounds(target);
}

function bounds(node: Node): string {
  const low = node["minimum"] ?? node["exclusiveMinimum"];
  const high = node["maximum"] ?? node["exclusiveMaximum"];
  if (low !== undefined && high !== undefined) return `, ${String(low)} to ${String(high)}`;
  if (low !== undefined) return `, ${node["minimum"] === undefined ? "more than" : "at least"} ${String(low)}`;
  if (high !== undefined) return `, ${node["maximum"] === undefined ? "less than" : "at most"} ${String(high)}`;
  if (node["maxLength"] !== undefined) return `, up to ${String(node["maxLength"])} characters`;
  return typeof node["format"] === "string" ? ` (${node["format"]})` : "";
}
