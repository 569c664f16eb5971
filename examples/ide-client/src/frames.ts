// Frames of an event stream, out of the pieces in which they arrive.

/** One frame: its name and its data. */
export interface Frame {
  name: string;
  data: string;
}

/** Reads frames to the end of the body. What stands behind the last empty line is no frame: it broke off. */
export async function* frames(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = '';
  let frame = { name: 'message', data: [] as string[] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += decoder.decode(value, { stream: !done });
      const lines = rest.split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines.map((line) => line.replace(/\r$/, ''))) {
        if (line === '') {
          if (frame.data.length > 0) {
            yield { name: frame.name, data: frame.data.join('\n') };
          }
          frame = { name: 'message', data: [] };
          continue;
        }
        const colon = line.indexOf(':');
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
        if (field === 'event') {
          frame.name = text;
        } else if (field === 'data') {
          frame.data.push(text);
        }
      }
      if (done) {
        return;
      }
    }
  } finally {
    // Closes the connection when the reader stops.
    await reader.cancel().catch(() => undefined);
  }
}
