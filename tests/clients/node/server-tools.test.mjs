// Node clients with tools that the server runs: its own, and those of a real MCP server.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAI } from '@ai-sdk/openai';
import { generateText, stepCountIs, streamText } from 'ai';
import OpenAI from 'openai';

import { KINDS, newTag, start } from './harness.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const REPORT = { type: 'function', name: 'weather_report' };

let servers;
let client;
let provider;
let ofBank;

before(async () => {
  servers = await start('sqlite', { tools: true });
  client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
  provider = createOpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey });
  // The SDK has no word for a tool that is known by its name alone, so it goes into the body on the way.
  ofBank = createOpenAI({
    baseURL: servers.baseURL,
    apiKey: servers.apiKey,
    fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), tools: [REPORT] }) }),
  });
});

after(() => servers?.stop());

const kinds = (response) => response.output.map((item) => item.type);
const remote = (extra) => ({
  type: 'mcp',
  server_label: 'town',
  server_url: servers.mcp,
  require_approval: 'never',
  ...extra,
});

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

for (const kind of KINDS) {
  const model = `m-${kind}`;

  describe(`openai over ${kind}, tools of the server`, () => {
    test('tool of the bank runs within one response', async () => {
      const tag = newTag();
      const request = { model, input: `weather in Paris and Rome ${tag}`, tools: [REPORT] };
      for (const response of [
        await client.responses.create(request),
        await client.responses.stream(request).finalResponse(),
      ]) {
        assert.deepEqual(kinds(response), ['mcp_call', 'mcp_call', 'message']);
        assert.equal(response.output_text, 'The tools say: sunny in Paris; sunny in Rome');
        assert.equal(response.output[0].server_label, 'bank');
      }
      assert.equal((await servers.records(tag)).length, 4);
    });

    test('remote server is listed and called', async () => {
      const request = { model, input: `weather in Oslo ${newTag()}`, tools: [remote()] };
      for (const response of [
        await client.responses.create(request),
        await client.responses.stream(request).finalResponse(),
      ]) {
        assert.deepEqual(kinds(response), ['mcp_list_tools', 'mcp_call', 'message']);
        assert.equal(response.output[1].output, 'sunny in Oslo');
        assert.equal(response.output_text, 'The tools say: sunny in Oslo');
      }
    });

    test('call waits for an approval', async () => {
      const tools = [remote({ require_approval: 'always' })];
      const first = await client.responses
        .stream({ model, input: `weather in Rome ${newTag()}`, tools })
        .finalResponse();
      assert.deepEqual(kinds(first), ['mcp_list_tools', 'mcp_approval_request']);
      const input = [{ type: 'mcp_approval_response', approval_request_id: first.output[1].id, approve: true }];
      const second = await client.responses.create({ model, input, tools, previous_response_id: first.id });
      assert.deepEqual(kinds(second), ['mcp_call', 'message']);
      assert.equal(second.output_text, 'The tools say: sunny in Rome');
    });
  });

  describe(`ai sdk over ${kind}, tools of the server`, () => {
    for (const [way, run] of Object.entries(WAYS)) {
      test(`remote server is a tool that the provider executes, ${way}`, async () => {
        const tag = newTag();
        const tools = {
          mcp: provider.tools.mcp({ serverLabel: 'town', serverUrl: servers.mcp, requireApproval: 'never' }),
        };
        const messages = [{ role: 'user', content: `weather in Oslo ${tag}` }];
        const settings = { model: provider.responses(model), tools, stopWhen: stepCountIs(3) };
        const first = await run({ ...settings, messages });
        assert.equal(first.text, 'The tools say: sunny in Oslo');
        assert.equal(first.steps.length, 1, 'the SDK went round by itself');
        const results = first.steps[0].toolResults;
        assert.deepEqual(
          results.map((result) => [result.providerExecuted, result.output.name, result.output.output]),
          [[true, 'get_weather', 'sunny in Oslo']],
        );

        messages.push(...first.responseMessages, { role: 'user', content: `thanks ${tag}` });
        const second = await run({ ...settings, messages });
        assert.equal(second.text, `You said: thanks ${tag} ☕`);
        const [record] = await servers.records(`thanks ${tag}`);
        assert.match(JSON.stringify(record.body), /sunny in Oslo/);
      });

      test(`call waits for an approval that the application gives, ${way}`, async () => {
        const tag = newTag();
        for (const approved of [true, false]) {
          const tools = {
            mcp: provider.tools.mcp({ serverLabel: 'town', serverUrl: servers.mcp, requireApproval: 'always' }),
          };
          const messages = [{ role: 'user', content: `weather in Oslo ${tag} ${approved}` }];
          const settings = { model: provider.responses(model), tools, stopWhen: stepCountIs(3) };
          const first = await run({ ...settings, messages });
          const asked = first.steps.at(-1).content.filter((part) => part.type === 'tool-approval-request');
          assert.equal(asked.length, 1);
          const { approvalId } = asked[0];
          const answer = { type: 'tool-approval-response', approvalId, approved, providerExecuted: true };
          messages.push(...first.responseMessages, { role: 'tool', content: [answer] });
          const second = await run({ ...settings, messages });
          assert.equal(/sunny in Oslo/.test(second.text), approved, second.text);
        }
      });

      test(`tool of the bank is shown and not run, ${way}`, async () => {
        const prompt = `weather in Rome ${newTag()}`;
        const result = await run({ model: ofBank.responses(model), prompt, stopWhen: stepCountIs(3) });
        assert.equal(result.text, 'The tools say: sunny in Rome');
        assert.equal(result.steps.length, 1);
      });
    }
  });
}
