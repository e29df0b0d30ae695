// Server-sent events read from a fetch: EventSource can send neither a key nor a POST.

export interface ServerEvent {
  event: string;
  data: string;
}

/** The events of an answer, as they come. Comments are passed on as event `comment`, so that a caller sees life. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      // a CR at the very end may be half of a CRLF
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (event || data.length) yield { event: event || "message", data: data.join("\n") };
          event = "";
          data = [];
        } else if (line.startsWith(":")) {
          yield { event: "comment", data: line.slice(1) };
        } else {
          const [, name, text] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
          if (name === "event") event = text ?? "";
          if (name === "data") data.push(text ?? "");
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
