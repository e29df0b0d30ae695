// Turns the JSON schema of a tool into one that the form library shows well, and its data back into the tool's input.
//
// Tools describe themselves in draft 2020-12 as pydantic writes it; the library knows draft 7. What changes:
// "X or null" becomes X that may stay empty, tuples become lists of fixed parts, anything goes becomes a field of JSON.
import type { RJSFSchema, UiSchema } from "@rjsf/utils";

import type { JsonObject } from "../api/json";
import { hasZone } from "./moments";

type Node = Record<string, unknown>;

const SIMPLE = new Set(["string", "number", "integer", "boolean"]);
/** A mark on schemas that any JSON fits; the form shows them as text. */
const ANY_JSON = "x-any-json";

export function adapt(schema: JsonObject): RJSFSchema {
  const root = structuredClone(schema) as Node;
  return visit(root, root) as RJSFSchema;
}

function visit(node: Node, root: Node): Node {
  for (const key of ["$defs", "definitions", "properties", "patternProperties"]) {
    const children = node[key];
    if (isNode(children)) {
      for (const [name, child] of Object.entries(children)) if (isNode(child)) children[name] = visit(child, root);
    }
  }
  for (const key of ["items", "additionalProperties", "not"]) {
    const child = node[key];
    if (isNode(child)) node[key] = visit(child, root);
  }
  for (const key of ["anyOf", "oneOf", "allOf", "prefixItems"]) {
    const children = node[key];
    if (Array.isArray(children))
      node[key] = children.map((child: unknown) => (isNode(child) ? visit(child, root) : child));
  }
  return markAnything(withoutZonelessDefaults(withoutNullDefaults(tuples(nullable(fieldsOf(node), root)))));
}

/** Every field has a title of its own. What has to be there but may be null may stay empty in the form: `toInput` puts the null in. */
function fieldsOf(node: Node): Node {
  const { required, properties } = node;
  if (!isNode(properties)) return node;
  for (const [name, property] of Object.entries(properties)) {
    if (isNode(property) && property["title"] === undefined) property["title"] = titled(name);
  }
  if (!Array.isArray(required)) return node;
  const asked = required.filter((name: string) => !(isNode(properties[name]) && properties[name]["nullable"] === true));
  return { ...node, required: asked };
}

/** `anyOf: [X, null]` of a simple X: a field that may stay empty. Of another X: a choice between `none` and X. */
function nullable(node: Node, root: Node): Node {
  const options = node["anyOf"];
  if (!Array.isArray(options) || options.length < 2) return node;
  const nulls = options.filter((option: unknown) => isNode(option) && option["type"] === "null");
  if (nulls.length !== 1) return named(node, root);
  const others = options.filter((option: unknown) => option !== nulls[0]);
  const only: unknown = others[0];
  if (others.length === 1 && isNode(only)) {
    const target = resolve(only, root);
    if (typeof target["type"] === "string" && SIMPLE.has(target["type"])) {
      const { anyOf: _, ...rest } = node;
      const { title: __, ...inner } = target;
      return { ...inner, ...rest, nullable: true, type: target["enum"] ? target["type"] : [target["type"], "null"] };
    }
  }
  return named({ ...node, anyOf: [{ type: "null", title: "none" }, ...others] }, root);
}

/** Options of a choice need titles: the person picks by them. */
function named(node: Node, root: Node): Node {
  const options = node["anyOf"] as unknown[];
  return {
    ...node,
    anyOf: options.map((option) => {
      if (!isNode(option) || option["title"] !== undefined) return option;
      const target = resolve(option, root);
      const title = target["title"] ?? target["type"] ?? "value";
      return option["$ref"] === undefined ? { ...option, title } : option;
    }),
  };
}

/** As pydantic makes a title of a name; a field of a model has none, and would be called as the model is. */
function titled(name: string): string {
  return name
    .split("_")
    .filter(Boolean)
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
    .join(" ");
}

function tuples(node: Node): Node {
  const parts = node["prefixItems"];
  if (!Array.isArray(parts)) return node;
  const { prefixItems: _, items, ...rest } = node;
  return { ...rest, items: parts, additionalItems: isNode(items) ? items : false };
}

/** `default: null` says that the field may be missing; in a form it would only be in the way. */
function withoutNullDefaults(node: Node): Node {
  if (node["default"] !== null || node["anyOf"] !== undefined) return node;
  const { default: _, ...rest } = node;
  return rest;
}

/** A default time without its zone does not fit its format, and is the tool's to understand: it is told, and not sent. */
function withoutZonelessDefaults(node: Node): Node {
  const { format, default: given, ...rest } = node;
  if ((format !== "date-time" && format !== "time") || typeof given !== "string" || hasZone(given)) return node;
  const about = [node["description"], `Default: ${given.replace("T", " ")}.`].filter(Boolean).join(" ");
  return { ...rest, format, description: about };
}

function markAnything(node: Node): Node {
  const shapeless = !["type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const", "properties", "$defs"].some(
    (key) => key in node,
  );
  const freeObject =
    node["type"] === "object" && node["properties"] === undefined && !isNode(node["additionalProperties"]);
  const freeList = node["type"] === "array" && (node["items"] === undefined || node["items"] === true);
  return shapeless || freeObject || freeList ? { ...node, [ANY_JSON]: true } : node;
}

/** Fields of the adapted schema that are shown as JSON text. */
export function uiFor(schema: RJSFSchema): UiSchema {
  return fields(schema as Node, schema as Node, 0);
}

function fields(node: Node, root: Node, depth: number): UiSchema {
  if (depth > 8) return {}; // a model that holds itself
  if (node[ANY_JSON]) return { "ui:field": "json" };
  const target = resolve(node, root);
  if (target[ANY_JSON]) return { "ui:field": "json" };
  const ui: UiSchema = {};
  if (isNode(target["properties"])) {
    for (const [name, child] of Object.entries(target["properties"])) {
      if (isNode(child)) {
        const inner = fields(child, root, depth + 1);
        if (Object.keys(inner).length) ui[name] = inner;
      }
    }
  }
  for (const key of ["items", "additionalProperties"]) {
    const child = target[key];
    if (isNode(child)) {
      const inner = fields(child, root, depth + 1);
      if (Object.keys(inner).length) ui[key] = inner;
    } else if (Array.isArray(child)) {
      ui[key] = child.map((part: unknown) => (isNode(part) ? fields(part, root, depth + 1) : {}));
    }
  }
  for (const key of ["anyOf", "oneOf"]) {
    const options = target[key];
    if (Array.isArray(options)) {
      const inner = options.map((option: unknown) => (isNode(option) ? fields(option, root, depth + 1) : {}));
      if (inner.some((each) => Object.keys(each).length)) ui[key] = inner;
    }
  }
  return ui;
}

/** The tool's input: what the person left empty is null where the schema wants the field, else missing. */
export function toInput(data: unknown, schema: JsonObject): unknown {
  const root = schema as Node;
  return complete(data ?? {}, root, root);
}

function complete(data: unknown, node: Node, root: Node): unknown {
  const target = chosen(data, resolve(node, root), root);
  if (Array.isArray(data)) {
    const items = target["items"];
    return data.map((each) => (isNode(items) ? complete(each, items, root) : (each ?? null)));
  }
  if (!isNode(data)) return data;
  const properties = isNode(target["properties"]) ? target["properties"] : {};
  const input: Node = {};
  for (const [name, value] of Object.entries(data)) {
    if (value === undefined) continue;
    const property = properties[name];
    input[name] = isNode(property) ? complete(value, property, root) : value;
  }
  const required = Array.isArray(target["required"]) ? (target["required"] as string[]) : [];
  for (const name of required) {
    const property = properties[name];
    if (!(name in input) && isNode(property) && takesNull(property, root)) input[name] = null;
  }
  return input;
}

/** Of a choice between one model and null, the model. */
function chosen(data: unknown, node: Node, root: Node): Node {
  const options = node["anyOf"];
  if (!Array.isArray(options) || data === null) return node;
  const others = options.filter((option: unknown) => isNode(option) && option["type"] !== "null") as Node[];
  return others.length === 1 && others[0] !== undefined ? resolve(others[0], root) : node;
}

function takesNull(node: Node, root: Node): boolean {
  const target = resolve(node, root);
  if (target["type"] === "null") return true;
  return (
    Array.isArray(target["anyOf"]) &&
    target["anyOf"].some((option: unknown) => isNode(option) && takesNull(option, root))
  );
}

/** Follows `$ref` within the schema. */
export function resolve(node: Node, root: Node): Node {
  let current = node;
  for (let hops = 0; typeof current["$ref"] === "string" && hops < 20; hops += 1) {
    let target: unknown = root;
    for (const part of current["$ref"].replace(/^#\/?/, "").split("/").filter(Boolean)) {
      const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
      target = isNode(target) ? target[key] : undefined;
    }
    if (!isNode(target)) return current;
    current = target;
  }
  return current;
}

export function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
