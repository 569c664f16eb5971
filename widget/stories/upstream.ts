// A model that answers as a story says: slowly, with Markdown, not at all. Speaks Chat Completions.

import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Text with everything that must not become markup. */
export const HOSTILE = [
  '# Answer\n\n**Bold** and *slanted* with `code <b>`.\n\n- one\n- two\n\n',
  '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>\n\n',
  '[bad](javascript:window.hacked=1) [good](https://example.com/good) ![pixel](https://tracker.example/p.png)\n\n',
  '```js\nconst a = "</code><script>window.hacked = 1</script>";\n```\n',
];

export class ScriptedModel {
  /** How many requests came. */
  requests = 0;
  /** The requests that fail before one is answered. */
  failures = 0;
  private readonly slow = new Set<ServerResponse>();

  private constructor(private readonly server: Server) {}

  static async start(): Promise<ScriptedModel> {
    const server = createServer();
    const model = new ScriptedModel(server);
    server.on('request', (request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => model.answer(body, response));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return model;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/v1`;
  }

  /** Lets every slow answer come to its end. */
  release(): void {
    for (const response of this.slow) {
      this.chunk(response, 'the end.');
      this.end(response);
    }
    this.slow.clear();
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private answer(body: string, response: ServerResponse): void {
    this.requests += 1;
    if (this.failures > 0) {
      this.failures -= 1;
      response.writeHead(400, { 'content-type': 'application/json' }).end('{"error": {"message": "no"}}');
      return;
    }
    const { messages } = JSON.parse(body || '{"messages": []}') as { messages: { role: string; content: unknown }[] };
    const content = messages.filter((message) => message.role === 'user').at(-1)?.content;
    const question = typeof content === 'string' ? content : JSON.stringify(content ?? '');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (question.includes('slow')) {
      this.chunk(response, 'Once upon a time ');
      this.slow.add(response);
      response.on('close', () => this.slow.delete(response));
      return;
    }
    const pieces = question.includes('Markdown') ? HOSTILE : ['You said ', question, '.'];
    pieces.forEach((piece) => this.chunk(response, piece));
    this.end(response);
  }

  private chunk(response: ServerResponse, content: string, finish: string | null = null): void {
    const choice = { index: 0, delta: finish ? {} : { content }, finish_reason: finish };
    response.write(`data: ${JSON.stringify({ id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [choice] })}\n\n`);
  }

  private end(response: ServerResponse): void {
    this.chunk(response, '', 'stop');
    response.end('data: [DONE]\n\n');
  }
}
