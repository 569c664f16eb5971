// The official Node client: the same ground as the Python one, in shorter form.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { KINDS, newTag, start } from './harness.mjs';

const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather in a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  strict: true,
};
// A PNG of one pixel.
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

let servers;
let client;

before(async () => {
  servers = await start();
  client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
});

after(() => servers?.stop());

for (const kind of KINDS) {
  const model = `m-${kind}`;

  describe(`openai over ${kind}`, () => {
    test('create answers with text and usage', async () => {
      const tag = newTag();
      const response = await client.responses.create({ model, input: `hello ${tag}` });
      assert.equal(response.output_text, `You said: hello ${tag} ☕`);
      assert.equal(response.status, 'completed');
      assert.equal(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens);
      assert.ok(response._request_id);
      const [record] = await servers.records(tag);
      assert.equal(record.kind, kind);
    });

    test('stream numbers its events and ends with the whole response', async () => {
      const tag = newTag();
      const events = [];
      for await (const event of await client.responses.create({ model, input: `hello ${tag}`, stream: true })) {
        events.push(event);
      }
      const deltas = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta);
      assert.deepEqual(
        events.map((event) => event.sequence_number),
        events.map((_, index) => index),
      );
      assert.ok(deltas.length > 1);
      assert.equal(events.at(-1).type, 'response.completed');
      assert.equal(events.at(-1).response.output[0].content[0].text, deltas.join(''));
    });

    test('stream helper collects the final response', async () => {
      const tag = newTag();
      const stream = client.responses.stream({ model, input: `hello ${tag}` });
      let text = '';
      stream.on('response.output_text.delta', (event) => {
        text += event.delta;
      });
      const final = await stream.finalResponse();
      assert.equal(final.output_text, `You said: hello ${tag} ☕`);
      assert.equal(text, final.output_text);
    });

    test('parallel tool calls make a round trip with the full history', async () => {
      const tag = newTag();
      const input = [{ role: 'user', content: `weather in Paris and Rome ${tag}` }];
      const first = await client.responses.stream({ model, input, tools: [WEATHER] }).finalResponse();
      assert.deepEqual(
        first.output.map((item) => [item.type, item.name, JSON.parse(item.arguments).city]),
        [
          ['function_call', 'get_weather', 'Paris'],
          ['function_call', 'get_weather', 'Rome'],
        ],
      );
      for (const { parsed_arguments: _, ...call } of first.output) {
        input.push(call);
      }
      for (const call of first.output) {
        input.push({
          type: 'function_call_output',
          call_id: call.call_id,
          output: `sunny in ${JSON.parse(call.arguments).city}`,
        });
      }
      const second = await client.responses.create({ model, input, tools: [WEATHER] });
      assert.equal(second.output_text, 'The tools say: sunny in Paris; sunny in Rome');
    });

    test('structured output is parsed by its schema', async () => {
      const schema = z.object({ title: z.string(), guests: z.array(z.string()), size: z.enum(['small', 'large']) });
      const response = await client.responses.parse({
        model,
        input: `an event ${newTag()}`,
        text: { format: zodTextFormat(schema, 'event') },
      });
      assert.deepEqual(response.output_parsed, { title: 'some title', guests: ['some guests'], size: 'small' });
    });

    test('image reaches the model', async () => {
      const response = await client.responses.create({
        model,
        input: [
          {
            role: 'user',
            content: [
              { type: 'input_text', text: `what is this? ${newTag()}` },
              { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}`, detail: 'auto' },
            ],
          },
        ],
      });
      assert.equal(response.output_text, `I see image/png of ${Buffer.from(PIXEL, 'base64').length} bytes.`);
    });

    test('errors have their types', async () => {
      const ask = (text) => client.responses.create({ model, input: text });
      const stranger = new OpenAI({ baseURL: servers.baseURL, apiKey: 'am_wrong_key', maxRetries: 0 });
      await assert.rejects(client.responses.create({ model }), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.deepEqual([error.param, error.code], ['input', 'missing_required_parameter']);
        return true;
      });
      await assert.rejects(stranger.responses.create({ model, input: 'hello' }), OpenAI.AuthenticationError);
      await assert.rejects(client.responses.create({ model: 'no-such-model', input: 'hello' }), OpenAI.NotFoundError);
      await assert.rejects(ask('please fail with 429'), (error) => {
        assert.ok(error instanceof OpenAI.RateLimitError);
        assert.equal(error.headers.get('retry-after'), '7');
        return true;
      });
      await assert.rejects(ask('please fail with 400'), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.equal(error.code, 'context_length_exceeded');
        return true;
      });
      await assert.rejects(ask('please fail with 500'), OpenAI.InternalServerError);
    });

    test('broken stream makes the helper throw', async () => {
      for (const script of ['cut mid-stream', 'overload mid-stream']) {
        await assert.rejects(client.responses.stream({ model, input: script }).finalResponse(), OpenAI.APIError);
      }
    });

    test('models are listed and described', async () => {
      const listed = [];
      for await (const { id } of client.models.list()) {
        listed.push(id);
      }
      assert.ok(listed.includes(model));
      assert.equal((await client.models.retrieve(model)).id, model);
      await assert.rejects(client.models.retrieve('no-such-model'), OpenAI.NotFoundError);
    });

    test('caller that leaves cancels the upstream', async () => {
      const tag = newTag();
      const stream = await client.responses.create({ model, input: `talk slowly ${tag}`, stream: true });
      for await (const event of stream) {
        if (event.type === 'response.output_text.delta') {
          break;
        }
      }
      stream.controller.abort();
      let record;
      for (let tries = 0; tries < 100; tries += 1) {
        [record] = await servers.records(tag);
        if (record.outcome !== 'open') {
          break;
        }
        await sleep(50);
      }
      assert.equal(record.outcome, 'left');
    });
  });
}
