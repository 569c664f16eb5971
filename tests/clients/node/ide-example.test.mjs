// The example client for IDEs against a gateway with its own demo as the model, over a wire that breaks.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { start, STORES } from './harness.mjs';

const EXAMPLE = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../examples/ide-client');
const { AgentClient, Refused } = await import(`${EXAMPLE}/dist/client.js`);
const { AGENT, prepare } = await import(`${EXAMPLE}/dist/prepare.js`);
const { runCalls } = await import(`${EXAMPLE}/dist/tools.js`);
const { newTurnId, runTurn } = await import(`${EXAMPLE}/dist/turn.js`);

const BOTH = 'Use list_files with folder: src and read_file with path: notes.md';
const run = promisify(execFile);

/**
 * A wire that breaks: of each connection in turn comes back what `cuts` says, as a number of bytes or up to a text; of
 * later ones everything.
 */
async function cuttingRelay(target, cuts) {
  const { hostname, port } = new URL(target);
  const left = [...cuts];
  const server = net.createServer((client) => {
    const cut = left.shift();
    const upstream = net.connect(Number(port), hostname);
    let passed = Buffer.alloc(0);
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    client.on('data', (piece) => upstream.write(piece));
    client.on('error', end).on('close', end);
    upstream.on('error', end).on('close', end);
    upstream.on('data', (piece) => {
      if (cut === undefined) {
        client.write(piece);
        return;
      }
      const before = passed.length;
      passed = Buffer.concat([passed, piece]);
      const found = passed.indexOf(cut);
      const limit = typeof cut === 'number' ? cut : found < 0 ? Infinity : found + cut.length;
      client.write(piece.subarray(0, Math.max(0, limit - before)), () => {
        if (passed.length >= limit) {
          end();
        }
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, unused: left, stop: () => server.close() };
}

for (const store of STORES) {
  describe(`the client for IDEs on ${store}`, () => {
    let servers;
    let url;
    let key;
    let root;
    const direct = (more = {}) => new AgentClient({ url, key, ...more });

    before(async () => {
      servers = await start(store, { demo: true });
      url = new URL(servers.baseURL).origin;
      key = servers.apiKey;
      root = await mkdtemp(path.join(os.tmpdir(), 'amalgam-ide-'));
      await mkdir(path.join(root, 'src'));
      await writeFile(path.join(root, 'src/main.c'), 'int main(void) { return 0; }\n');
      await writeFile(path.join(root, 'notes.md'), 'Remember the milk.\n');
      await symlink('/', path.join(root, 'out'));
      await prepare(url, key);
      // It may be said twice.
      await prepare(url, key);
    });

    after(async () => {
      await servers?.stop();
      await rm(root, { recursive: true, force: true });
    });

    /** A turn with its tools; how often each ran is part of what comes back. */
    async function turn(client, session, more = {}) {
      const ran = [];
      const events = [];
      const request = { SessionId: session.SessionId, TurnId: newTurnId(), Instruction: BOTH, ...more };
      const answers = await runTurn(client, request, {
        onEvent: (event) => events.push(event),
        runCalls: (calls) => {
          ran.push(...calls.map((call) => `${call.Name} ${call.ArgumentsJson}`));
          return runCalls(root, calls);
        },
      });
      return { turnId: request.TurnId, answers, ran, events };
    }

    /** How many times the model was asked for an answer, by the gateway's own records. */
    async function modelCalls(answer) {
      const headers = { authorization: `Bearer ${key}` };
      const record = await fetch(`${url}/admin/turns/${answer.ResponseContinuationId}`, { headers });
      assert.equal(record.status, 200);
      return (await record.json()).calls.length;
    }

    const RAN = ['list_files {"folder":"src"}', 'read_file {"path":"notes.md"}'];

    test('a turn with two tools of the client is streamed, continued and remembered', async () => {
      const client = direct();
      const session = await client.openSession(AGENT);
      assert.equal(session.AgentContextId, AGENT);
      assert.equal(session.Mode, 'general');
      const { turnId, answers, ran, events } = await turn(client, session);
      assert.deepEqual(ran.toSorted(), RAN);
      assert.deepEqual(answers.map((answer) => answer.Kind), ['tool-only', 'ok']);
      assert.deepEqual(new Set(answers.map((answer) => answer.TurnId)), new Set([turnId]));
      assert.match(answers[1].Text, /Remember the milk/);
      assert.match(answers[1].Text, /main\.c/);
      assert.equal(client.retries, 0);
      const types = events.map((event) => event.Event.type);
      assert.equal(types.filter((type) => type === 'response.created').length, 2);
      assert.ok(types.includes('response.output_text.delta'));
      const standing = await client.turn(session.SessionId, turnId);
      assert.deepEqual([standing.Status, standing.Steps], ['completed', 2]);
      assert.deepEqual(standing.Result, answers[1]);
      assert.equal((await client.session(session.SessionId)).Turns, 1);
    });

    test('whichever way the wire breaks, the same turn is sent again and happens once', async () => {
      const all = [[0], [60], [700], ['event: response.created'], ['function_call_arguments.delta', 90], ['turn.result'], [50, 0, 'response.completed', 300]];
      for (const cuts of all) {
        const relay = await cuttingRelay(url, cuts);
        try {
          const session = await direct().openSession(AGENT);
          const client = direct({ url: relay.url });
          const { turnId, answers, ran } = await turn(client, session);
          assert.deepEqual(relay.unused, [], `${cuts}`);
          assert.equal(client.retries, cuts.length, `${cuts}`);
          assert.deepEqual(ran.toSorted(), RAN, `${cuts}`);
          assert.match(answers.at(-1).Text, /Remember the milk/);
          const standing = await direct().turn(session.SessionId, turnId);
          assert.deepEqual([standing.Status, standing.Steps], ['completed', 2], `${cuts}`);
          assert.deepEqual(standing.Result, answers.at(-1));
          for (const answer of answers) {
            assert.equal(await modelCalls(answer), 1, `${cuts}`);
          }
          assert.equal((await direct().session(session.SessionId)).Turns, 1, `${cuts}`);
        } finally {
          relay.stop();
        }
      }
    });

    test('an event is told once however often its stream breaks', async () => {
      const session = await direct().openSession(AGENT);
      const relay = await cuttingRelay(url, ['response.created', 'response.output_item.added']);
      try {
        const told = [];
        const request = { SessionId: session.SessionId, TurnId: newTurnId(), Instruction: 'Hello' };
        const answer = await direct({ url: relay.url }).stream(request, (event) => told.push(event.Index));
        assert.equal(answer.Kind, 'ok');
        assert.deepEqual(told, [...new Set(told)].toSorted((one, other) => one - other));
      } finally {
        relay.stop();
      }
    });

    test('a client that crashed takes up its turn with what it had written down', async () => {
      const session = await direct().openSession(AGENT);
      const journal = [];
      const crash = new Error('the editor is gone');
      const request = { SessionId: session.SessionId, TurnId: newTurnId(), Instruction: BOTH };
      const hooks = { onSend: (one) => journal.push(structuredClone(one)), runCalls: () => Promise.reject(crash) };
      await assert.rejects(runTurn(direct(), request, hooks), crash);
      // Another process of the editor, later: all it has is the journal.
      const ran = [];
      const again = { runCalls: (calls) => (ran.push(...calls), runCalls(root, calls)) };
      const answers = await runTurn(direct(), journal.at(-1), again);
      assert.equal(ran.length, 2);
      assert.match(answers.at(-1).Text, /Remember the milk/);
      assert.equal(await modelCalls(answers[0]), 1);
    });

    test('tools that fail or leave their folder are results like any other', async () => {
      const client = direct();
      const session = await client.openSession(AGENT);
      for (const place of ['../secret', '/etc/hostname', 'out/etc/hostname', 'absent.md']) {
        const { answers } = await turn(client, session, { Instruction: `Use read_file with path: ${place}` });
        assert.equal(answers.at(-1).Kind, 'ok');
        assert.match(answers.at(-1).Text, /failed.*(is outside of the workspace|does not exist)/);
      }
      const calls = ['[]', 'no json', '{"path":7}', null].map((text, index) => ({ CallId: `c${index}`, Name: 'read_file', ArgumentsJson: text }));
      const results = await runCalls(root, [...calls, { CallId: 'c4', Name: 'toString', ArgumentsJson: '{}' }]);
      assert.deepEqual(results.map((result) => typeof result.ErrorMessage), Array(5).fill('string'));
    });

    test('what is refused says every fault, and a turn that waits goes on waiting', async () => {
      const client = direct();
      const { SessionId } = await client.openSession(AGENT);
      const wrong = client.execute({ SessionId, TurnId: '', Instruction: ' ', Mode: 'QA' });
      await assert.rejects(wrong, (error) => {
        assert.ok(error instanceof Refused);
        assert.equal(error.status, 400);
        assert.deepEqual(error.envelope.Errors.map((fault) => fault.Field).toSorted(), ['Instruction', 'Mode', 'TurnId']);
        return true;
      });
      const TurnId = newTurnId();
      const { ToolCalls } = await client.execute({ SessionId, TurnId, Instruction: BOTH });
      const ToolResults = await runCalls(root, ToolCalls);
      const crossed = client.execute({ SessionId, TurnId, ToolResults: ToolResults.toReversed() });
      await assert.rejects(crossed, (error) => {
        assert.deepEqual([error.status, error.envelope.ErrorCode, error.envelope.Errors.length], [409, 'results_mismatch', 2]);
        return true;
      });
      assert.equal((await client.session(SessionId)).PendingTurnId, TurnId);
      const answer = await client.execute({ SessionId, TurnId, ToolResults });
      assert.match(answer.Text, /Remember the milk/);
      assert.deepEqual(await client.execute({ SessionId, TurnId, ToolResults }), answer);
      assert.equal(await modelCalls(answer), 1);
    });

    test('the command runs as its README says', async () => {
      const env = { PATH: process.env.PATH, AMALGAM_URL: url, AMALGAM_KEY: key };
      const prepared = await run('node', ['dist/prepare.js'], { cwd: EXAMPLE, env });
      assert.match(prepared.stdout, /agent ide-assistant is ready/);
      const { stdout } = await run('node', ['dist/main.js', '--root', root, '--mode', 'QA', '--drop-after', '3', BOTH], { cwd: EXAMPLE, env });
      assert.match(stdout, /^session sess_\S+ in mode QA\n/);
      assert.match(stdout, /ran list_files \{"folder":"src"\}\n/);
      assert.match(stdout, /ran read_file \{"path":"notes\.md"\}\n/);
      assert.match(stdout, /sent again 1 times\n/);
      assert.match(stdout, /Remember the milk/);
      await assert.rejects(run('node', ['dist/main.js'], { cwd: EXAMPLE, env }), { code: 2 });
      await assert.rejects(run('node', ['dist/main.js', 'Hi'], { cwd: EXAMPLE, env: { ...env, AMALGAM_KEY: 'am_wrong' } }), /401/);
    });
  });
}
