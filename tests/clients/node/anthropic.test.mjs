// The official Node client of the Messages API: the same ground as the Python one, in shorter form.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { z } from 'zod';

import { KINDS, newTag, start } from './harness.mjs';

let servers;
let claude;

before(async () => {
  servers = await start();
  const baseURL = servers.baseURL.replace(/\/v1$/, '');
  claude = new Anthropic({ baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
});

after(() => servers?.stop());

const user = (content) => [{ role: 'user', content }];

for (const kind of KINDS) {
  const model = `m-${kind}`;

  describe(`anthropic over ${kind}`, () => {
    test('create answers with text and usage', async () => {
      const tag = newTag();
      const message = await claude.messages.create({ model, max_tokens: 500, messages: user(`hello ${tag}`) });
      assert.deepEqual(message.content, [{ type: 'text', text: `You said: hello ${tag} ☕` }]);
      assert.equal(message.stop_reason, 'end_turn');
      assert.equal(message.usage.input_tokens + message.usage.cache_read_input_tokens, 42);
      assert.match(message._request_id, /^req_/);
      const [record] = await servers.records(tag);
      assert.equal(record.kind, kind);
    });

    test('stream adds up to the message', async () => {
      const tag = newTag();
      const texts = [];
      const stream = claude.messages
        .stream({ model, max_tokens: 500, messages: user(`hello ${tag}`) })
        .on('text', (text) => texts.push(text));
      const message = await stream.finalMessage();
      assert.equal(texts.join(''), `You said: hello ${tag} ☕`);
      assert.equal(message.content[0].text, `You said: hello ${tag} ☕`);
      assert.equal(message.usage.output_tokens, 17);
    });

    test('the tool runner runs tools until the answer', async () => {
      const tag = newTag();
      const asked = [];
      const weather = betaZodTool({
        name: 'get_weather',
        description: 'The weather in a city.',
        inputSchema: z.object({ city: z.string() }),
        run: ({ city }) => {
          asked.push(city);
          return `sunny in ${city}`;
        },
      });
      const message = await claude.beta.messages.toolRunner({
        model,
        max_tokens: 500,
        tools: [weather],
        messages: user(`weather in Paris and Rome ${tag}`),
      });
      assert.deepEqual(asked, ['Paris', 'Rome']);
      assert.equal(message.content.at(-1).text, 'The tools say: sunny in Paris; sunny in Rome');
    });

    test('tokens are counted', async () => {
      const few = await claude.messages.countTokens({ model, messages: user('hello') });
      const many = await claude.messages.countTokens({ model, messages: user('hello world '.repeat(100)) });
      assert.ok(few.input_tokens > 0 && many.input_tokens > few.input_tokens);
    });

    test('errors have their types', async () => {
      const messages = user(`fail with 429 ${newTag()}`);
      await assert.rejects(claude.messages.create({ model, max_tokens: 5, messages }), Anthropic.RateLimitError);
      await assert.rejects(claude.messages.create({ model, max_tokens: 5, messages: [] }), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.equal(error.error.error.type, 'invalid_request_error');
        assert.match(error.requestID, /^req_/);
        return true;
      });
      const stranger = claude.withOptions({ apiKey: 'am_wrong' });
      await assert.rejects(stranger.messages.create({ model, max_tokens: 5, messages }), Anthropic.AuthenticationError);
    });
  });
}

test('models are listed page by page', async () => {
  const ids = [];
  for await (const model of claude.models.list({ limit: 2 })) {
    ids.push(model.id);
  }
  assert.ok(KINDS.every((kind) => ids.includes(`m-${kind}`)), ids.join());
  assert.equal((await claude.models.retrieve('m-chat')).id, 'm-chat');
});
