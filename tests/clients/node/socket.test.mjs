// The official Node client over a WebSocket, also one that offers compression.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';

import { KINDS, newTag, start, STORES } from './harness.mjs';

const INSTRUCTIONS = 'Be kind to every user. '.repeat(200);
const LAST = ['response.completed', 'response.incomplete', 'response.failed', 'error'];

for (const store of STORES) {
  describe(`sockets on ${store}`, () => {
    let servers;
    let client;

    before(async () => {
      servers = await start(store);
      client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
    });

    after(() => servers?.stop());

    /** Opens a socket, lets `talk` use it, and closes it. `talk` gets a function that asks and resolves with the events. */
    async function connected(talk, options) {
      const socket = new ResponsesWS(client, options);
      const waiting = [];
      let events = [];
      const take = (event) => {
        events.push(event);
        if (LAST.includes(event.type)) {
          waiting.shift()?.(events);
          events = [];
        }
      };
      socket.on('event', take);
      // Errors come as events too; this keeps the client from throwing them where no handler can catch them.
      socket.on('error', () => {});
      try {
        return await talk((settings) => {
          const told = new Promise((resolve) => waiting.push(resolve));
          socket.send({ type: 'response.create', ...settings });
          return told;
        }, socket);
      } finally {
        socket.close();
      }
    }

    for (const kind of KINDS) {
      const model = `m-${kind}`;

      describe(`openai over a socket and ${kind}`, () => {
        for (const options of [undefined, { perMessageDeflate: true }]) {
          test(`responses follow one another${options ? ' where compression is offered' : ''}`, async () => {
            const tag = newTag();
            const last = await connected(async (ask, socket) => {
              const first = (await ask({ model, input: `hello ${tag}`, instructions: INSTRUCTIONS, store: false })).at(-1);
              if (options) {
                assert.equal(socket.socket.platformSocket.extensions, '');
              }
              assert.equal(first.type, 'response.completed');
              assert.equal(first.response.output[0].content[0].text, `You said: hello ${tag} ☕`);
              const previous_response_id = first.response.id;
              return (await ask({ model, input: 'and again', store: false, previous_response_id })).at(-1);
            }, options);
            assert.equal(last.response.output[0].content[0].text, 'You said: and again ☕');
            assert.equal((await servers.records(tag)).length, 2);
          });
        }

        test('a fault is an event, and the connection goes on', async () => {
          const text = await connected(async (ask) => {
            const [refused] = await ask({ model, input: 'hi', previous_response_id: 'resp_none' });
            assert.equal(refused.type, 'error');
            assert.equal(refused.status, 400);
            assert.equal(refused.error.code, 'previous_response_not_found');
            return (await ask({ model, input: 'hi' })).at(-1).response.output[0].content[0].text;
          });
          assert.equal(text, 'You said: hi ☕');
        });
      });
    }
  });
}
