import { expect, it } from "vitest";

import { readEvents, type ServerEvent } from "../src/api/events";

/** The events of a stream that arrives in these pieces. */
async function read(...pieces: string[]): Promise<ServerEvent[]> {
  const found = [];
  for await (const event of readEvents(new Response(new Blob(pieces).stream()))) found.push(event);
  return found;
}

async function readSlowly(text: string): Promise<ServerEvent[]> {
  const bytes = new TextEncoder().encode(text);
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const found = [];
  for await (const event of readEvents(new Response(stream))) found.push(event);
  return found;
}

const TEXT = ": ping\r\nevent: chunk\r\ndata: é one\r\ndata:\r\ndata:  two\r\n\r\ndata: plain\n\n";
const EVENTS = [
  { event: "comment", data: " ping" },
  { event: "chunk", data: "é one\n\n two" },
  { event: "message", data: "plain" },
];

it("events are read whatever ends their lines", async () => {
  expect(await read(TEXT)).toEqual(EVENTS);
});

it("events are the same when each byte comes alone", async () => {
  expect(await readSlowly(TEXT)).toEqual(EVENTS);
});

it("an event without its end is none", async () => {
  expect(await read("event: end\ndata: {}")).toEqual([]);
});
