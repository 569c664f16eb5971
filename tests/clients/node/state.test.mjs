// The official Node client and what a server keeps for it: the same ground as the Python one, in shorter form.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import OpenAI from 'openai';

import { KINDS, newTag, start, STORES } from './harness.mjs';

const ENDED = ['completed', 'incomplete', 'failed', 'cancelled'];
const TIME = Array.from({ length: 40 }, (_, number) => `word${number}`).join(' ');
const SUMMARY = 'So far the user was greeted, and nothing is left to do.';

const echo = (text) => `You said: ${text} ☕`;

async function all(iterable) {
  const items = [];
  for await (const item of await iterable) {
    items.push(item);
  }
  return items;
}

const textsOf = (items) => items.map((item) => item.content[0].text);

for (const store of STORES) {
  describe(`state on ${store}`, () => {
    let servers;
    let client;

    before(async () => {
      servers = await start(store);
      client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
    });

    after(() => servers?.stop());

    /** Polls until the response has ended. */
    async function ended(id) {
      for (let tries = 0; tries < 600; tries += 1) {
        const response = await client.responses.retrieve(id);
        if (ENDED.includes(response.status)) {
          return response;
        }
        await sleep(50);
      }
      throw new Error(`${id} did not end`);
    }

    /** How the one request with this tag went on, once it has. */
    async function outcome(tag) {
      for (let tries = 0; tries < 200; tries += 1) {
        const [record] = await servers.records(tag);
        if (record !== undefined && record.outcome !== 'open') {
          return record.outcome;
        }
        await sleep(50);
      }
      return 'open';
    }

    test('conversations and their items are made, changed, listed and deleted', async () => {
      const tag = newTag();
      const made = await client.conversations.create({
        metadata: { topic: tag },
        items: [{ type: 'message', role: 'user', content: `first ${tag}` }],
      });
      assert.deepEqual((await client.conversations.retrieve(made.id)).metadata, { topic: tag });
      const changed = await client.conversations.update(made.id, { metadata: { topic: 'other' } });
      assert.deepEqual([changed.id, changed.metadata], [made.id, { topic: 'other' }]);

      const items = Array.from({ length: 20 }, (_, number) => ({ role: 'user', content: `item ${number} ${tag}` }));
      await client.conversations.items.create(made.id, { items });
      const listed = await all(client.conversations.items.list(made.id, { order: 'asc', limit: 6 }));
      assert.deepEqual(textsOf(listed), [`first ${tag}`, ...items.map((item) => item.content)]);
      const newest = await all(client.conversations.items.list(made.id));
      assert.deepEqual(newest, listed.toReversed());
      const id = listed[3].id;
      assert.deepEqual(await client.conversations.items.retrieve(id, { conversation_id: made.id }), listed[3]);
      assert.equal((await client.conversations.items.delete(id, { conversation_id: made.id })).id, made.id);
      await assert.rejects(
        client.conversations.items.retrieve(id, { conversation_id: made.id }),
        OpenAI.NotFoundError,
      );
      assert.equal((await client.conversations.delete(made.id)).deleted, true);
      await assert.rejects(client.conversations.retrieve(made.id), OpenAI.NotFoundError);
    });

    for (const kind of KINDS) {
      const model = `m-${kind}`;

      describe(`over ${kind}`, () => {
        test('retrieve gives what create gave, and delete ends that', async () => {
          const tag = newTag();
          const created = await client.responses.create({ model, input: `hello ${tag}`, metadata: { run: tag } });
          const kept = await client.responses.retrieve(created.id);
          assert.deepEqual(kept, created);
          assert.equal(kept.output_text, echo(`hello ${tag}`));

          await client.responses.delete(created.id);

          await assert.rejects(client.responses.retrieve(created.id), OpenAI.NotFoundError);
          await assert.rejects(
            client.responses.create({ model, input: 'on', previous_response_id: created.id }),
            (error) => {
              assert.ok(error instanceof OpenAI.BadRequestError);
              assert.deepEqual(
                [error.code, error.param],
                ['previous_response_not_found', 'previous_response_id'],
              );
              return true;
            },
          );
        });

        test('chains and forks tell the model what belongs to them', async () => {
          const tag = newTag();
          const root = await client.responses.create({ model, input: `root ${tag}` });
          const forks = await Promise.all(
            [0, 1].map((number) =>
              client.responses
                .stream({ model, input: `branch ${number} ${tag}`, previous_response_id: root.id })
                .finalResponse(),
            ),
          );
          const leaf = await client.responses.create({
            model,
            input: `leaf ${tag}`,
            previous_response_id: forks[1].id,
          });
          assert.equal(leaf.output_text, echo(`leaf ${tag}`));
          const [record] = await servers.records(`leaf ${tag}`);
          const told = JSON.stringify(record.body);
          assert.ok(told.includes(`root ${tag}`) && told.includes(`branch 1 ${tag}`));
          assert.ok(!told.includes(`branch 0 ${tag}`));
          const items = await all(client.responses.inputItems.list(leaf.id, { order: 'asc', limit: 2 }));
          assert.deepEqual(textsOf(items), [
            `root ${tag}`,
            echo(`root ${tag}`),
            `branch 1 ${tag}`,
            echo(`branch 1 ${tag}`),
            `leaf ${tag}`,
          ]);
        });

        test('background responses are polled, cancelled and continued', async () => {
          const tag = newTag();
          const created = await client.responses.create({ model, input: `hello ${tag}`, background: true });
          assert.deepEqual([created.status, created.background], ['queued', true]);
          const response = await ended(created.id);
          assert.deepEqual([response.status, response.output_text], ['completed', echo(`hello ${tag}`)]);

          const slow = newTag();
          const running = await client.responses.create({ model, input: `talk slowly ${slow}`, background: true });
          while ((await servers.records(slow)).length === 0) {
            await sleep(20);
          }
          assert.equal((await client.responses.cancel(running.id)).status, 'cancelled');
          assert.equal(await outcome(slow), 'left');
          assert.equal((await client.responses.cancel(running.id)).status, 'cancelled');
          await assert.rejects(
            client.responses.cancel((await client.responses.create({ model, input: 'hello' })).id),
            OpenAI.BadRequestError,
          );
        });

        test('background stream is taken up again without loss or repetition', async () => {
          const tag = newTag();
          const seen = [];
          const stream = await client.responses.create({
            model,
            input: `take your time ${tag}`,
            background: true,
            stream: true,
          });
          for await (const event of stream) {
            seen.push(event);
            if (seen.length === 9) {
              break;
            }
          }
          const { id } = seen[0].response;
          const rest = await all(
            client.responses.retrieve(id, { stream: true, starting_after: seen.at(-1).sequence_number }),
          );
          const events = [...seen, ...rest];
          assert.deepEqual(
            events.map((event) => event.sequence_number),
            events.map((_, index) => index),
          );
          const deltas = events.filter((event) => event.type === 'response.output_text.delta');
          assert.equal(deltas.map((event) => event.delta).join(''), TIME);
          assert.equal(events.at(-1).type, 'response.completed');
          assert.deepEqual(await all(client.responses.retrieve(id, { stream: true })), events);
          // The helper that collects events can begin with a response that exists.
          const final = await client.responses.stream({ response_id: id }).finalResponse();
          assert.equal(final.output_text, TIME);
          assert.equal((await servers.records(tag)).length, 1);
        });

        test('stream helper ends with a response that was cancelled', async () => {
          const stream = client.responses.stream({ model, input: `talk slowly ${newTag()}`, background: true });
          let id;
          let cancelled;
          stream.once('response.created', (event) => {
            id = event.response.id;
          });
          stream.once('response.output_text.delta', () => {
            cancelled = client.responses.cancel(id);
          });
          const final = await stream.finalResponse();
          assert.equal((await cancelled).status, 'cancelled');
          assert.deepEqual([final.id, final.status], [id, 'cancelled']);
        });

        test('responses add to their conversation', async () => {
          const tag = newTag();
          const { id } = await client.conversations.create({});
          const first = await client.responses.create({ model, input: `first ${tag}`, conversation: id });
          const second = await client.responses.create({ model, input: `second ${tag}`, conversation: { id } });
          assert.deepEqual([first.conversation.id, second.conversation.id], [id, id]);
          const [record] = await servers.records(`second ${tag}`);
          assert.ok(JSON.stringify(record.body).includes(echo(`first ${tag}`)));
          const items = await all(client.conversations.items.list(id, { order: 'asc' }));
          assert.deepEqual(textsOf(items), [
            `first ${tag}`,
            first.output_text,
            `second ${tag}`,
            second.output_text,
          ]);
        });

        test('what was compacted goes on', async () => {
          const tag = newTag();
          const first = await client.responses.create({ model, input: `hello ${tag}` });
          const compacted = await client.responses.compact({ model, previous_response_id: first.id });
          assert.equal(compacted.output.at(-1).type, 'compaction');
          const input = [...compacted.output, { role: 'user', content: `go on ${tag}` }];
          const second = await client.responses.create({ model, input });
          assert.ok(second.output_text.endsWith(`go on ${tag} ☕`));
          const [record] = await servers.records(`go on ${tag}`);
          assert.ok(JSON.stringify(record.body).includes(SUMMARY));
        });

        test('a key makes one response of many requests', async () => {
          const tag = newTag();
          const ask = (text) =>
            client.responses.create(
              { model, input: `${text} ${tag}` },
              { headers: { 'Idempotency-Key': `once ${tag}` } },
            );
          const answers = await Promise.all([1, 2, 3, 4].map(() => ask('hello')));
          assert.equal(new Set(answers.map((answer) => answer.id)).size, 1);
          assert.equal((await servers.records(tag)).length, 1);
          await assert.rejects(ask('other'), OpenAI.UnprocessableEntityError);
        });

        test('tokens are counted without asking anybody', async () => {
          const tag = newTag();
          const { object, input_tokens } = await client.responses.inputTokens.count({ model, input: `hello ${tag}` });
          assert.equal(object, 'response.input_tokens');
          assert.ok(input_tokens > 0 && input_tokens < 60);
          assert.deepEqual(await servers.records(tag), []);
        });
      });
    }
  });
}
