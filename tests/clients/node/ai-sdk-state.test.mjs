// The Vercel AI SDK with its defaults: responses are stored, and what was said before is referred to by id.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { APICallError, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

import { KINDS, newTag, start, STORES } from './harness.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

// A name outside its catalogue is a reasoning model only when it is told so.
const THINKING = { openai: { forceReasoning: true, reasoningEffort: 'low', reasoningSummary: 'auto' } };

const TOOLS = {
  get_weather: tool({
    description: 'The weather in a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};

/** Whole and streamed, with the same result. */
const WAYS = {
  whole: (settings) => generateText({ maxRetries: 0, ...settings }),
  async streamed(settings) {
    const result = streamText({ maxRetries: 0, ...settings });
    for await (const part of result.fullStream) {
      assert.notEqual(part.type, 'error', String(part.error));
    }
    return { text: await result.text, steps: await result.steps, responseMessages: await result.responseMessages };
  },
};

/** Texts, calls and results that an upstream was told, in order. */
function told(record) {
  const { input, messages } = record.body;
  const parts = [];
  for (const item of input ?? messages) {
    const content = typeof item.content === 'string' ? [{ text: item.content }] : (item.content ?? []);
    if (item.type === 'function_call_output' || item.role === 'tool') {
      parts.push(['result', item.output ?? content[0].text]);
      continue;
    }
    for (const part of content) {
      if (part.type === 'tool_result') {
        parts.push(['result', part.content[0].text ?? part.content]);
      } else if (part.type === 'tool_use') {
        parts.push(['call', part.name]);
      } else if (part.text !== undefined) {
        parts.push([item.role, part.text]);
      }
    }
    if (item.type === 'function_call') {
      parts.push(['call', item.name]);
    }
    for (const call of item.tool_calls ?? []) {
      parts.push(['call', call.function.name]);
    }
  }
  return parts;
}

/** What the client itself sent, request by request. */
const sent = [];
const remembering = (url, init) => {
  sent.push(JSON.parse(init.body));
  return fetch(url, init);
};

/** The kinds of the items in the last request. */
const lastKinds = () => sent.at(-1).input.map((item) => item.type ?? 'message');

for (const store of STORES) {
  describe(`ai sdk, stored on ${store}`, () => {
    let servers;
    let provider;

    before(async () => {
      servers = await start(store);
      provider = createOpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, fetch: remembering });
    });

    after(() => servers?.stop());

    for (const kind of KINDS) {
      const model = () => provider.responses(`m-${kind}`);

      for (const [way, run] of Object.entries(WAYS)) {
        test(`next turn refers to the items of the last, ${way} over ${kind}`, async () => {
          const tag = newTag();
          const messages = [{ role: 'user', content: `hello ${tag}` }];
          for (const text of ['second', 'third']) {
            const turn = await run({ model: model(), messages });
            messages.push(...turn.responseMessages, { role: 'user', content: `${text} ${tag}` });
          }
          const last = await run({ model: model(), messages });
          assert.equal(last.text, `You said: third ${tag} ☕`);
          assert.deepEqual(lastKinds(), [
            'message',
            'item_reference',
            'message',
            'item_reference',
            'message',
          ]);
          const [record] = await servers.records(`third ${tag}`);
          assert.deepEqual(told(record), [
            ['user', `hello ${tag}`],
            ['assistant', `You said: hello ${tag} ☕`],
            ['user', `second ${tag}`],
            ['assistant', `You said: second ${tag} ☕`],
            ['user', `third ${tag}`],
          ]);
        });

        test(`tool steps with thoughts are referred to, ${way} over ${kind}`, async () => {
          const tag = newTag();
          const settings = { model: model(), tools: TOOLS, stopWhen: stepCountIs(4), providerOptions: THINKING };
          const messages = [{ role: 'user', content: `think about the weather in Oslo, say so first ${tag}` }];
          const first = await run({ ...settings, messages });
          assert.equal(first.text, 'The tools say: sunny in Oslo');
          assert.ok(lastKinds().includes('item_reference'));
          messages.push(...first.responseMessages, { role: 'user', content: `thanks ${tag}` });

          const second = await run({ ...settings, messages });

          assert.equal(second.text, `You said: thanks ${tag} ☕`);
          assert.ok(lastKinds().includes('item_reference'));
          const [record] = await servers.records(`thanks ${tag}`);
          assert.deepEqual(told(record), [
            ['user', `think about the weather in Oslo, say so first ${tag}`],
            ['assistant', 'Let me look that up.'],
            ['call', 'get_weather'],
            ['result', 'sunny in Oslo'],
            ['assistant', 'The tools say: sunny in Oslo'],
            ['user', `thanks ${tag}`],
          ]);
        });

        test(`a chain and a conversation are gone on with, ${way} over ${kind}`, async () => {
          const tag = newTag();
          const first = await run({ model: model(), prompt: `hello ${tag}` });
          const previousResponseId = first.steps[0].providerMetadata.openai.responseId;
          const second = await run({
            model: model(),
            prompt: `second ${tag}`,
            providerOptions: { openai: { previousResponseId } },
          });
          assert.equal(second.text, `You said: second ${tag} ☕`);
          const [record] = await servers.records(`second ${tag}`);
          assert.deepEqual(told(record)[0], ['user', `hello ${tag}`]);

          const answer = await fetch(`${servers.baseURL}/conversations`, {
            method: 'POST',
            headers: { authorization: `Bearer ${servers.apiKey}`, 'content-type': 'application/json' },
            body: '{}',
          });
          const providerOptions = { openai: { conversation: (await answer.json()).id } };
          await run({ model: model(), prompt: `third ${tag}`, providerOptions });
          await run({ model: model(), prompt: `fourth ${tag}`, providerOptions });
          const [last] = await servers.records(`fourth ${tag}`);
          assert.deepEqual(told(last), [
            ['user', `third ${tag}`],
            ['assistant', `You said: third ${tag} ☕`],
            ['user', `fourth ${tag}`],
          ]);
        });
      }

      test(`what was never stored cannot be referred to over ${kind}`, async () => {
        const unstored = { providerOptions: { openai: { store: false } }, maxRetries: 0 };
        const first = await generateText({ model: model(), prompt: 'hello', ...unstored });
        const messages = [
          { role: 'user', content: 'hello' },
          ...first.responseMessages,
          { role: 'user', content: 'again' },
        ];
        await assert.rejects(generateText({ model: model(), messages, maxRetries: 0 }), (error) => {
          assert.ok(APICallError.isInstance(error));
          assert.equal(error.statusCode, 400);
          assert.match(error.message, /not found/);
          return true;
        });
      });
    }
  });
}
