// The Vercel AI SDK, the strictest reader of whole answers among the clients.
//
// `store: false` makes it send its history in full instead of referring to stored items.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { APICallError, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';

import { KINDS, newTag, start } from './harness.mjs';

// Deprecated calls are what many users still make; their warnings say nothing about the server.
globalThis.AI_SDK_LOG_WARNINGS = false;

const SETTINGS = { maxRetries: 0, providerOptions: { openai: { store: false } } };
const EVENT = z.object({ title: z.string(), guests: z.array(z.object({ name: z.string(), age: z.number() })) });

let servers;
let provider;

before(async () => {
  servers = await start();
  provider = createOpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey });
});

after(() => servers?.stop());

function weatherTool(asked) {
  return tool({
    description: 'The weather in a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      asked.push(city);
      return `sunny in ${city}`;
    },
  });
}

for (const kind of KINDS) {
  describe(`ai sdk over ${kind}`, () => {
    const model = () => provider.responses(`m-${kind}`);

    test('generateText answers with usage', async () => {
      const tag = newTag();
      const result = await generateText({ model: model(), prompt: `hello ${tag}`, system: 'Be kind.', ...SETTINGS });
      assert.equal(result.text, `You said: hello ${tag} ☕`);
      assert.equal(result.finishReason, 'stop');
      assert.equal(result.usage.totalTokens, 59);
    });

    test('streamText gives the text in pieces', async () => {
      const tag = newTag();
      const result = streamText({ model: model(), prompt: `hello ${tag}`, ...SETTINGS });
      const pieces = [];
      for await (const piece of result.textStream) {
        pieces.push(piece);
      }
      assert.ok(pieces.length > 1);
      assert.equal(pieces.join(''), `You said: hello ${tag} ☕`);
      assert.equal(await result.finishReason, 'stop');
    });

    test('generateText takes several steps with tools', async () => {
      const asked = [];
      const result = await generateText({
        model: model(),
        prompt: `weather in Paris and Rome, say so first ${newTag()}`,
        tools: { get_weather: weatherTool(asked) },
        stopWhen: stepCountIs(4),
        ...SETTINGS,
      });
      assert.deepEqual(asked.sort(), ['Paris', 'Rome']);
      assert.equal(result.steps.length, 2);
      assert.equal(result.steps[0].finishReason, 'tool-calls');
      assert.equal(result.text, 'The tools say: sunny in Paris; sunny in Rome');
    });

    test('streamText takes several steps with tools and thoughts', async () => {
      const asked = [];
      const result = streamText({
        model: model(),
        prompt: `think about the weather in Oslo ${newTag()}`,
        tools: { get_weather: weatherTool(asked) },
        stopWhen: stepCountIs(4),
        maxRetries: 0,
        providerOptions: {
          // A name outside its catalogue is a reasoning model only when it is told so.
          openai: {
            store: false,
            forceReasoning: true,
            reasoningEffort: 'low',
            reasoningSummary: 'auto',
            include: ['reasoning.encrypted_content'],
          },
        },
      });
      const kinds = new Set();
      for await (const part of result.fullStream) {
        assert.notEqual(part.type, 'error', String(part.error));
        kinds.add(part.type);
      }
      assert.deepEqual(asked, ['Oslo']);
      assert.ok(kinds.has('reasoning-delta'));
      assert.ok(kinds.has('tool-result'));
      assert.equal(await result.text, 'The tools say: sunny in Oslo');
    });

    test('next turn goes on from the messages of the last', async () => {
      const tag = newTag();
      const tools = { get_weather: weatherTool([]) };
      const messages = [{ role: 'user', content: `weather in Tokyo ${tag}` }];
      const first = await generateText({ model: model(), messages, tools, stopWhen: stepCountIs(4), ...SETTINGS });
      messages.push(...first.responseMessages, { role: 'user', content: `thanks ${tag}` });
      const second = await generateText({ model: model(), messages, tools, ...SETTINGS });
      assert.equal(second.text, `You said: thanks ${tag} ☕`);
    });

    test('objects follow their schema, whole and streamed', async () => {
      const prompt = `an event ${newTag()}`;
      const expected = { title: 'some title', guests: [{ name: 'some name', age: 7.5 }] };
      const whole = await generateObject({ model: model(), prompt, schema: EVENT, ...SETTINGS });
      assert.deepEqual(whole.object, expected);
      const streamed = streamObject({ model: model(), prompt, schema: EVENT, ...SETTINGS });
      for await (const _ of streamed.partialObjectStream) {
        // The object is complete when its stream is.
      }
      assert.deepEqual(await streamed.object, expected);
      const output = Output.object({ schema: EVENT });
      assert.deepEqual((await generateText({ model: model(), prompt, output, ...SETTINGS })).output, expected);
    });

    test('errors of the upstream keep their status', async () => {
      for (const [script, status] of [['please fail with 429', 429], ['please fail with 400', 400]]) {
        await assert.rejects(generateText({ model: model(), prompt: script, ...SETTINGS }), (error) => {
          assert.ok(APICallError.isInstance(error));
          assert.equal(error.statusCode, status);
          return true;
        });
      }
    });

    test('broken stream ends in an error', async () => {
      for (const script of ['cut mid-stream', 'overload mid-stream']) {
        const result = streamText({ model: model(), prompt: script, onError: () => {}, ...SETTINGS });
        const kinds = [];
        for await (const part of result.fullStream) {
          kinds.push(part.type);
        }
        assert.ok(kinds.includes('error'));
      }
    });
  });
}
