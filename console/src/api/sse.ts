// Server-sent events over fetch, which can send headers and be stopped.

export interface ServerEvent {
  event: string;
  data: string;
}

/** Splits text into events, whatever the boundaries of the chunks. */
export class EventParser {
  private buffer = '';

  push(text: string): ServerEvent[] {
    this.buffer += text;
    const events: ServerEvent[] = [];
    for (;;) {
      const end = /\r?\n\r?\n/.exec(this.buffer);
      if (!end) return events;
      const block = this.buffer.slice(0, end.index);
      this.buffer = this.buffer.slice(end.index + end[0].length);
      const event = parseBlock(block);
      if (event) events.push(event);
    }
  }
}

function parseBlock(block: string): ServerEvent | null {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') event = value;
    if (field === 'data') data.push(value);
  }
  return data.length ? { event, data: data.join('\n') } : null;
}

/** Reads a response as events until it ends. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent[]> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = parser.push(decoder.decode(value, { stream: true }));
      if (events.length) yield events;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
