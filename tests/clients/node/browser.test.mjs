// A real browser: what pages of other sites can make a server on this machine do that needs no key.
//
// Debian's Chromium, driven by playwright-core. Pages are served on `localhost` and on `127.0.0.1`: for a server on
// 127.0.0.1 the first is another site, the second the same site but another origin.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const BINARY = process.env.AMALGAM_BIN ?? path.join(ROOT, 'target/debug/amalgam');
const CHROMIUM = process.env.CHROMIUM_BIN ?? '/usr/bin/chromium';

/** Serves an empty page at every path; resolves with the port. */
async function listen(handler) {
  const server = http.createServer(handler);
  server.listen(0);
  await once(server, 'listening');
  return { port: server.address().port, close: () => server.close() };
}

/** Starts `amalgam serve` without any key; resolves with its address. */
async function serve(folder, config) {
  const file = path.join(folder, 'amalgam.toml');
  writeFileSync(file, config);
  const kept = Object.fromEntries(Object.entries(process.env).filter(([name]) => ['PATH', 'TMPDIR'].includes(name)));
  const child = spawn(BINARY, ['serve', '--config', file, '--data', path.join(folder, 'data'), '--listen', '127.0.0.1:0'], {
    env: kept,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const prefix = 'amalgam listening on ';
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith(prefix)) {
      child.stdout.resume();
      return { url: line.slice(prefix.length).trim(), child };
    }
  }
  throw new Error('amalgam did not start');
}

/** Everything that a page can send without asking first; runs inside the browser. */
async function attack(url) {
  const turn = JSON.stringify({
    model: 'm',
    input: 'run it',
    tools: [{ type: 'mcp', server_label: 'desk', require_approval: 'never' }],
  });
  const tried = [];
  const send = async (name, work) => {
    try {
      await work();
      tried.push(`${name}: sent`);
    } catch (error) {
      tried.push(`${name}: ${error.message}`);
    }
  };
  const bytes = new Uint8Array([...turn].map((letter) => letter.charCodeAt(0)));
  await send('bytes without a type', () => fetch(`${url}/v1/responses`, { method: 'POST', mode: 'no-cors', body: bytes }));
  await send('plain text', () => fetch(`${url}/v1/responses`, { method: 'POST', mode: 'no-cors', body: turn }));
  await send('json', () =>
    fetch(`${url}/v1/responses`, { method: 'POST', body: turn, headers: { 'content-type': 'application/json' } }),
  );
  await send('the assistant', () =>
    fetch(`${url}/api/v2/ai-agent/respond/`, { method: 'POST', mode: 'no-cors', body: bytes }),
  );
  await send('an agent turn', () => fetch(`${url}/api/agent/execute`, { method: 'POST', mode: 'no-cors', body: bytes }));
  const form = new FormData();
  form.append('purpose', 'user_data');
  form.append('file', new Blob(['planted']), 'planted.txt');
  await send('a form', () => fetch(`${url}/v1/files`, { method: 'POST', mode: 'no-cors', body: form }));
  await send('a beacon', () => navigator.sendBeacon(`${url}/v1/responses`, new Blob([turn])));
  await send('an image', () => new Promise((resolve) => {
    const image = new Image();
    image.onload = image.onerror = resolve;
    image.src = `${url}/v1/models`;
  }));
  await send('a socket', () => new Promise((resolve, reject) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/responses`);
    socket.onopen = () => {
      socket.send(turn.replace('{', '{"type":"response.create",'));
      resolve();
    };
    socket.onerror = () => reject(new Error('refused'));
  }));
  // A form that is submitted takes the place of the frame it is in.
  await send('a submitted form', () => new Promise((resolve) => {
    const frame = document.createElement('iframe');
    frame.name = 'target';
    document.body.append(frame);
    const submitted = document.createElement('form');
    submitted.method = 'POST';
    submitted.target = 'target';
    submitted.enctype = 'text/plain';
    submitted.action = `${url}/v1/responses`;
    const field = document.createElement('input');
    field.name = turn.slice(0, -1) + ',"x":"';
    field.value = '"}';
    submitted.append(field);
    document.body.append(submitted);
    frame.onload = resolve;
    submitted.submit();
  }));
  return tried;
}

describe('pages in Chromium', () => {
  let folder;
  let upstream;
  let asked = 0;
  let pages;
  let server;
  let browser;
  let marker;

  before(async () => {
    folder = mkdtempSync(path.join(tmpdir(), 'amalgam-browser-'));
    marker = path.join(folder, 'the-program-ran');
    upstream = await listen((request, response) => {
      asked += 1;
      request.resume();
      const message = { role: 'assistant', content: 'Hello from upstream.' };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ id: 'c', object: 'chat.completion', model: 'm', choices: [{ index: 0, message, finish_reason: 'stop' }] }));
    });
    pages = await listen((_, response) => {
      response.setHeader('content-type', 'text/html');
      response.end('<!doctype html><title>page</title><body></body>');
    });
    const config = [
      '[server]',
      `allowed_origins = ["http://friend.localhost:${pages.port}"]`,
      '[upstreams.up]',
      'kind = "chat"',
      `base_url = "http://127.0.0.1:${upstream.port}/v1"`,
      'models = ["m"]',
      '[mcp.desk]',
      'command = "/bin/sh"',
      `args = ["-c", ${JSON.stringify(`touch '${marker}'; cat`)}]`,
      'timeout = "2s"',
      '',
    ];
    server = await serve(folder, config.join('\n'));
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      headless: true,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        // All names below `localhost` are this machine; nothing else is looked up.
        '--host-resolver-rules=MAP *.localhost 127.0.0.1',
      ],
    });
  });

  after(async () => {
    await browser?.close();
    server?.child.kill();
    if (server) {
      await once(server.child, 'exit');
    }
    pages?.close();
    upstream?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  async function at(address, work, argument) {
    const page = await browser.newPage();
    try {
      await page.goto(address);
      return await page.evaluate(work, argument);
    } finally {
      await page.close();
    }
  }

  // right E1
  for (const host of ['localhost', '127.0.0.1', 'evil.localhost']) {
    test(`a page on ${host} makes the server do nothing`, async () => {
      const tried = await at(`http://${host}:${pages.port}/`, attack, server.url);
      assert.ok(tried.length === 10, tried.join('\n'));
      assert.ok(tried.includes('bytes without a type: sent'), tried.join('\n'));
      assert.ok(tried.includes('a socket: refused'), tried.join('\n'));
      assert.equal(asked, 0, `a model was asked: ${tried.join('\n')}`);
      assert.ok(!existsSync(marker), `the operator's program was started: ${tried.join('\n')}`);
      const files = await (await fetch(`${server.url}/v1/files`)).json();
      assert.deepEqual(files.data, [], 'nothing was uploaded');
    });
  }

  // right E1
  test('pages of the server itself and of an allowed origin are served', async () => {
    const ask = async (url) => {
      const answer = await fetch(`${url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'm', input: 'Hi' }),
      });
      return [answer.status, (await answer.json()).output?.at(-1).content[0].text];
    };
    const before = asked;
    const own = await at(`${server.url}/openapi.json`, ask, server.url);
    assert.deepEqual(own, [200, 'Hello from upstream.']);
    const friend = await at(`http://friend.localhost:${pages.port}/`, ask, server.url);
    assert.deepEqual(friend, [200, 'Hello from upstream.']);
    assert.equal(asked, before + 2);
  });
});
