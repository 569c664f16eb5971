// The official Node client and the AI SDK's chat model on Chat Completions, in shorter form than the Python client.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { embed, generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { KINDS, newTag, start } from './harness.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const EVENT = z.object({ title: z.string(), guests: z.array(z.object({ name: z.string(), age: z.number() })) });
const CITY = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false };

let servers;
let client;
let provider;

before(async () => {
  servers = await start();
  client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
  provider = createOpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey });
});

after(() => servers?.stop());

for (const kind of KINDS) {
  const model = `m-${kind}`;
  const user = (content) => [{ role: 'user', content }];

  describe(`chat completions over ${kind}`, () => {
    test('create and stream give the same text', async () => {
      const tag = newTag();
      const whole = await client.chat.completions.create({ model, messages: user(`hello ${tag}`) });
      assert.equal(whole.choices[0].message.content, `You said: hello ${tag} ☕`);
      assert.equal(whole.usage.total_tokens, 59);
      const stream = client.chat.completions.stream({
        model,
        messages: user(`hello ${tag}`),
        stream_options: { include_usage: true },
      });
      let text = '';
      stream.on('content', (delta) => {
        text += delta;
      });
      const final = await stream.finalChatCompletion();
      assert.equal(text, whole.choices[0].message.content);
      assert.equal(final.choices[0].finish_reason, 'stop');
      assert.deepEqual(final.usage, whole.usage);
    });

    test('runTools runs the tools of the caller to the end', async () => {
      const tag = newTag();
      const asked = [];
      const runner = client.chat.completions.runTools({
        model,
        messages: user(`weather in Paris ${tag}`),
        tools: [
          {
            type: 'function',
            function: {
              name: 'get_weather',
              parameters: CITY,
              parse: JSON.parse,
              function: ({ city }) => {
                asked.push(city);
                return `sunny in ${city}`;
              },
            },
          },
        ],
      });
      assert.equal(await runner.finalContent(), 'The tools say: sunny in Paris');
      assert.deepEqual(asked, ['Paris']);
    });

    test('parse gives a typed answer', async () => {
      const completion = await client.chat.completions.parse({
        model,
        messages: user(`plan a party ${newTag()}`),
        response_format: zodResponseFormat(EVENT, 'event'),
      });
      assert.ok(EVENT.safeParse(completion.choices[0].message.parsed).success);
    });

    test('errors are typed', async () => {
      const create = (fields) => client.chat.completions.create({ model, messages: user('hello'), ...fields });
      await assert.rejects(create({ n: 2 }), (error) => error instanceof OpenAI.BadRequestError && error.param === 'n');
      await assert.rejects(create({ model: 'nowhere/m' }), OpenAI.NotFoundError);
      await assert.rejects(create({ messages: user('fail with 429') }), OpenAI.RateLimitError);
    });

    test('stored completions are listed, read and deleted', async () => {
      const tag = newTag();
      const kept = await client.chat.completions.create({
        model,
        messages: user(`hello ${tag}`),
        store: true,
        metadata: { tag },
      });
      const listed = await client.chat.completions.list({ metadata: { tag } });
      assert.deepEqual(listed.data.map((one) => one.id), [kept.id]);
      const read = await client.chat.completions.retrieve(kept.id);
      assert.deepEqual(read.choices, kept.choices);
      assert.equal((await client.chat.completions.delete(kept.id)).deleted, true);
    });

    test('the AI SDK streams text and runs tools', async () => {
      const tag = newTag();
      const streamed = streamText({ model: provider.chat(model), prompt: `hello ${tag}`, maxRetries: 0 });
      let text = '';
      for await (const piece of streamed.textStream) {
        text += piece;
      }
      assert.equal(text, `You said: hello ${tag} ☕`);
      assert.equal((await streamed.usage).totalTokens, 59);
      const result = await generateText({
        model: provider.chat(model),
        prompt: `weather in Rome ${tag}`,
        tools: {
          get_weather: tool({
            description: 'The weather in a city.',
            inputSchema: z.object({ city: z.string() }),
            execute: async ({ city }) => `sunny in ${city}`,
          }),
        },
        stopWhen: stepCountIs(3),
        maxRetries: 0,
      });
      assert.equal(result.text, 'The tools say: sunny in Rome');
    });

    if (kind !== 'anthropic') {
      test('embeddings are the same from both clients', async () => {
        const input = `some text ${newTag()}`;
        const { data } = await client.embeddings.create({ model, input });
        const { embedding } = await embed({ model: provider.embedding(model), value: input, maxRetries: 0 });
        assert.deepEqual(Array.from(data[0].embedding), embedding);
      });
    }
  });
}
