// Writes the types of what the console receives, from the OpenAPI document on standard input, to standard output.
// scripts/console-types runs it.
import { readFileSync } from "node:fs";

import { compile } from "json-schema-to-typescript";

/** Answers of other endpoints, and JSON inside of events. */
const MORE = ["Snapshot", "Messages", "ListToolsOutput", "RunToolOutput", "Fault"];
/** Parts of a report: a client may leave out what has a default, and the journal fills it in. */
const WHOLE = ["Estimate", "EvaluatedEpisode", "EvaluationSummary", "PassAtK", "SavedEvaluation", "TokenCounts"];
const HEAD = "// Made from the server's OpenAPI document by scripts/console-types: do not edit.";

const { paths, components } = JSON.parse(readFileSync(0, "utf8"));
const reference = (name) => ({ $ref: `#/definitions/${name}` });

function nameOf(found) {
  return found.replace("#/components/schemas/", "");
}

/** The schema without what has no meaning for a type: titles would become names of types. */
function typed(schema) {
  if (Array.isArray(schema)) return schema.map(typed);
  if (schema === null || typeof schema !== "object") return schema;
  if (schema.$ref) return reference(nameOf(schema.$ref));
  const kept = Object.entries(schema).filter(([key, value]) => key !== "default" && !(key === "title" && typeof value === "string"));
  return Object.fromEntries(kept.map(([key, value]) => [key, typed(value)]));
}

const answers = Object.entries(paths)
  .filter(([path]) => path.startsWith("/console/api/"))
  .flatMap(([, methods]) => Object.values(methods))
  .map((operation) => operation.responses["200"].content["application/json"]?.schema.$ref)
  .filter((found) => found !== undefined)
  .map(nameOf);
for (const name of WHOLE) components.schemas[name].required = Object.keys(components.schemas[name].properties);
const definitions = Object.fromEntries(Object.entries(components.schemas).map(([name, schema]) => [name, typed(schema)]));
const anyOf = [...new Set([...answers, ...MORE])].sort().map(reference);
const options = { additionalProperties: false, bannerComment: HEAD, style: { printWidth: 120 } };
process.stdout.write(await compile({ anyOf, definitions }, "Answer", options));
