// A Chat Completions server for the stories. Its model `slow` holds its answer back until the story lets it go on; `broken` fails.

import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export class Upstream {
  private waiting: (() => void)[] = [];

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(): Promise<Upstream> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const upstream = new Upstream(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`);
    server.on('request', (request, response) => {
      let text = '';
      request.on('data', (chunk: Buffer) => (text += chunk.toString()));
      request.on('end', () => void upstream.answer(text, response));
    });
    return upstream;
  }

  private async answer(text: string, response: ServerResponse): Promise<void> {
    const asked = JSON.parse(text || '{}') as { model?: string; stream?: boolean };
    if (asked.model === 'broken') {
      response.writeHead(500, { 'content-type': 'application/json' });
      response.end('{"error": {"message": "The model is broken."}}');
      return;
    }
    const usage = { prompt_tokens: 40, completion_tokens: 8, total_tokens: 48, prompt_tokens_details: { cached_tokens: 16 } };
    if (!asked.stream) {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', model: asked.model, choices: [{ index: 0, message: { role: 'assistant', content: 'At once.' }, finish_reason: 'stop' }], usage }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const say = (delta: object, finish: string | null = null): void => {
      response.write(`data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', model: asked.model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
    };
    say({ role: 'assistant', content: 'Once upon a time' });
    if (asked.model === 'slow') await new Promise<void>((resolve) => this.waiting.push(resolve));
    say({ content: ' there was an end.' });
    say({}, 'stop');
    response.write(`data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', model: asked.model, choices: [], usage })}\n\n`);
    response.end('data: [DONE]\n\n');
  }

  /** Lets all answers of `slow` go on. */
  release(): void {
    this.waiting.splice(0).forEach((resolve) => resolve());
  }

  async stop(): Promise<void> {
    this.release();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
