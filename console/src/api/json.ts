/** A JSON object; also a JSON Schema. */
export type JsonObject = Record<string, unknown>;
