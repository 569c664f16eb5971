// The link that a first start prints in a terminal signs in, once.

import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BINARY, World } from './world';

/** Gives the server a terminal, which a pipe is not. */
const TERMINAL = 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))';

let world: World;
let folder: string;
let server: ChildProcess;
beforeAll(async () => {
  world = await World.start();
  folder = mkdtempSync(path.join(tmpdir(), 'amalgam-first-'));
});
afterAll(async () => {
  const ended = new Promise((resolve) => server.once('exit', resolve));
  // The end of its input ends the terminal, and with it the server.
  server.stdin?.write('\x03');
  await ended;
  rmSync(folder, { recursive: true, force: true });
  await world.stop();
});

test('a first start in a terminal prints a link that signs in as operator, and only once', async () => {
  server = spawn('python3', ['-c', TERMINAL, BINARY, 'serve', '--data', folder, '--listen', '127.0.0.1:0'], { env: { PATH: process.env.PATH }, stdio: ['pipe', 'pipe', 'ignore'] });
  const link = await new Promise<string>((resolve, reject) => {
    let text = '';
    server.stdout?.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const found = /opens once, within 15 minutes\): (\S+#link=[\w-]+)/.exec(text);
      if (found?.[1] && /amalgam listening on/.test(text)) resolve(found[1]);
    });
    server.on('exit', () => reject(new Error(`the server ended:\n${text}`)));
  });
  const visitor = await world.visitor();
  await visitor.page.goto(link);
  await visitor.page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await visitor.page.getByText('Set up this server').waitFor();
  await visitor.page.getByText('No turn has run yet.').waitFor();
  await visitor.page.getByRole('link', { name: 'Keys and tenants' }).waitFor();
  await visitor.look('first-start');
  const again = await world.visitor();
  await again.page.goto(link);
  await again.page.getByRole('alert').waitFor();
  expect(await again.page.locator('.shell').count()).toBe(0);
  await visitor.close();
  await again.close();
});
