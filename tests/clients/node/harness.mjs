// Starts the gateway with its scripted upstreams for one test file, and keeps the process on loopback.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const KINDS = ['chat', 'resp', 'anthropic'];

/** Where a gateway can keep things, on this machine. */
export const STORES = process.env.AMALGAM_TEST_POSTGRES ? ['sqlite', 'postgres'] : ['sqlite'];

const HARNESS = path.join(path.dirname(fileURLToPath(import.meta.url)), '../python/harness.py');
const LOOPBACK = new Set(['127.0.0.1', '::1', 'localhost']);

// An attempt to leave the machine fails, and is remembered in case the client that made it hides that.
const attempts = [];
const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function guarded(...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0];
  const host = options?.host ?? options?.hostname;
  if (host !== undefined && !LOOPBACK.has(host)) {
    attempts.push(host);
    throw new Error(`a client tried to reach ${host}`);
  }
  return connect.apply(this, args);
};

/**
 * Starts the servers, with a store of this kind and, if they are wanted, with tools of the gateway's own, or with its demo
 * as the only model. `stop` ends them and fails when the gateway did not end well or a client tried to leave the machine.
 */
export async function start(store = 'sqlite', { tools = false, demo = false } = {}) {
  const python = process.env.CLIENTS_PYTHON ?? 'python3';
  const flags = [...(tools ? ['--tools'] : []), ...(demo ? ['--demo'] : [])];
  const child = spawn(python, [HARNESS, store, ...flags], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, 'line'), exited.then(() => null)]);
  if (first === null) {
    throw new Error('the harness ended before it was ready');
  }
  const { baseURL, apiKey, upstreams, mcp } = JSON.parse(first[0]);
  return {
    baseURL,
    apiKey,
    /** Where the MCP server is, if there is one. */
    mcp,
    /** The requests that reached the upstreams and contain `text`. */
    async records(text) {
      const answer = await fetch(`${upstreams}/requests?contains=${encodeURIComponent(text)}`);
      return answer.json();
    },
    async stop() {
      child.stdin.end();
      const [code] = await exited;
      if (code !== 0) {
        throw new Error(`the harness ended with ${code}`);
      }
      if (attempts.length > 0) {
        throw new Error(`clients tried to reach ${attempts}`);
      }
    },
  };
}

let count = 0;

/** A word of its own for each test, by which its requests are found at the upstream. */
export function newTag() {
  count += 1;
  return `tag-${process.pid}-${count}-${Math.random().toString(36).slice(2, 10)}`;
}
