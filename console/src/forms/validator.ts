// Validates what is typed into a form against the tool's schema, without making code at run time: the page's
// policy forbids that, and the form library's own validator needs it.
import { type OutputUnit, Validator } from "@cfworker/json-schema";
import {
  type CustomValidator,
  type ErrorTransformer,
  type RJSFSchema,
  type RJSFValidationError,
  toErrorSchema,
  type UiSchema,
  type ValidationData,
  type ValidatorType,
} from "@rjsf/utils";

/** Units that only say that something below them is wrong. */
const ABOVE = new Set([
  "$ref",
  "properties",
  "items",
  "additionalItems",
  "prefixItems",
  "allOf",
  "additionalProperties",
  "patternProperties",
  "if",
]);

class SchemaValidator implements ValidatorType {
  validateFormData(
    formData: unknown,
    schema: RJSFSchema,
    _custom?: CustomValidator,
    transform?: ErrorTransformer,
    ui?: UiSchema,
  ): ValidationData<unknown> {
    let errors = problems(schema, formData);
    if (transform) errors = transform(errors, ui);
    return { errors, errorSchema: toErrorSchema(errors) };
  }

  isValid(schema: RJSFSchema, formData: unknown, root: RJSFSchema): boolean {
    const whole = { ...schema, $defs: { ...root.$defs, ...schema.$defs }, definitions: { ...root.definitions } };
    try {
      return check(whole, formData, true).length === 0;
    } catch {
      return false; // a schema that makes no sense: nothing fits it
    }
  }

  rawValidation<R>(schema: RJSFSchema, formData?: unknown): { errors?: R[]; validationError?: Error } {
    return { errors: problems(schema, formData) as R[] };
  }
}

export const validator: ValidatorType = new SchemaValidator();

export default validator;

function check(schema: RJSFSchema, data: unknown, first: boolean): OutputUnit[] {
  // copies: the validator writes into schemas, and takes nothing that JSON does not have
  const copy = JSON.parse(JSON.stringify(schema)) as Record<string, unknown>;
  const instance: unknown = JSON.parse(JSON.stringify(data ?? null));
  return new Validator(copy, "7", first).validate(instance).errors;
}

function problems(schema: RJSFSchema, data: unknown): RJSFValidationError[] {
  const units = check(schema, data ?? {}, false);
  const found = new Map<string, RJSFValidationError>();
  for (const unit of withoutOtherOptions(units)) {
    if (ABOVE.has(unit.keyword)) continue;
    const error = asError(unit, schema, data);
    const key = `${error.property}\n${error.message}`;
    if (!found.has(key)) found.set(key, error);
  }
  return [...found.values()];
}

/** Of a choice, only what is wrong in the option that was meant: the one whose problems lie deepest. */
function withoutOtherOptions(units: OutputUnit[]): OutputUnit[] {
  const choices = units.filter(({ keyword }) => keyword === "anyOf" || keyword === "oneOf");
  const dropped = new Set<OutputUnit>();
  for (const choice of choices) {
    const inside = units.filter(({ keywordLocation }) => keywordLocation.startsWith(`${choice.keywordLocation}/`));
    const atTop = (unit: OutputUnit) =>
      unit.instanceLocation === choice.instanceLocation && ["type", "const", "enum"].includes(unit.keyword);
    const options = new Map<string, OutputUnit[]>();
    for (const unit of inside) {
      const option = unit.keywordLocation.slice(choice.keywordLocation.length + 1).split("/", 1)[0] ?? "";
      options.set(option, [...(options.get(option) ?? []), unit]);
    }
    const meant = [...options.values()].filter((option) => !option.some(atTop)).sort((a, b) => a.length - b.length)[0];
    if (meant !== undefined) dropped.add(choice);
    for (const unit of inside) if (meant === undefined || !meant.includes(unit)) dropped.add(unit);
  }
  return units.filter((unit) => !dropped.has(unit));
}

function asError(unit: OutputUnit, schema: RJSFSchema, data: unknown): RJSFValidationError {
  const path = pointer(unit.instanceLocation);
  const missing = unit.keyword === "required" ? /property "(.*)"\.$/s.exec(unit.error)?.[1] : undefined;
  if (missing !== undefined) path.push(missing);
  const empty = unit.keyword === "type" && isEmpty(data, path); // a new item of a list
  const message = missing !== undefined || empty ? "is required" : sentence(unit, schema);
  return {
    name: unit.keyword,
    property: path.map((part) => (/^\w+$/.test(part) ? `.${part}` : `['${part}']`)).join(""),
    message,
    stack: `${path.join(".") || "input"}: ${message}`,
    schemaPath: unit.keywordLocation,
  };
}

function isEmpty(data: unknown, path: string[]): boolean {
  return path.reduce<unknown>((inner, key) => (inner as Record<string, unknown> | null | undefined)?.[key], data) == null;
}

function pointer(location: string): string[] {
  return location
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));
}

function sentence(unit: OutputUnit, schema: RJSFSchema): string {
  const limit = keywordValue(unit, schema);
  const shown = limit === undefined ? null : typeof limit === "string" ? limit : JSON.stringify(limit);
  switch (unit.keyword) {
    case "type": {
      const wanted = (Array.isArray(limit) ? limit : [limit]).filter((each) => each !== "null");
      return `must be ${wanted.map((each) => TYPE_NAMES[String(each)] ?? String(each)).join(" or ")}`;
    }
    case "minimum":
      return `must be at least ${shown}`;
    case "maximum":
      return `must be at most ${shown}`;
    case "exclusiveMinimum":
      return `must be more than ${shown}`;
    case "exclusiveMaximum":
      return `must be less than ${shown}`;
    case "multipleOf":
      return `must be a multiple of ${shown}`;
    case "minLength":
      return `must have at least ${shown} characters`;
    case "maxLength":
      return `must have at most ${shown} characters`;
    case "minItems":
      return `must have at least ${shown} items`;
    case "maxItems":
      return `must have at most ${shown} items`;
    case "uniqueItems":
      return "must not hold the same item twice";
    case "pattern":
      return `must match ${shown}`;
    case "format":
      return FORMATS[String(limit)] ?? `must be of the format ${shown}`;
    case "enum":
      return `must be one of ${Array.isArray(limit) ? limit.map((each) => JSON.stringify(each)).join(", ") : shown}`;
    case "const":
      return `must be ${JSON.stringify(limit)}`;
    case "anyOf":
    case "oneOf":
      return "fits none of the choices";
    default:
      return unit.error;
  }
}

const FORMATS: Record<string, string> = {
  date: "must be a whole date: day, month and year",
  "date-time": "must be a date with a time and its zone",
  time: "must be a time of day with its zone",
  email: "must be an e-mail address",
};

const TYPE_NAMES: Record<string, string> = {
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  null: "empty",
};

/** The value of the keyword that failed, found along its location through references. */
function keywordValue(unit: OutputUnit, schema: RJSFSchema): unknown {
  let node: unknown = schema;
  for (const part of pointer(unit.keywordLocation)) {
    if (typeof node !== "object" || node === null) return undefined;
    if (part === "$ref") {
      node = pointer(String((node as Record<string, unknown>)["$ref"])).reduce<unknown>(
        (inner, key) => (inner as Record<string, unknown> | undefined)?.[key],
        schema,
      );
    } else {
      node = (node as Record<string, unknown>)[part];
    }
  }
  return node;
}
