// The tools that this client runs on its own machine: it lists folders and reads files below one folder, and nothing else.

import { readdir, readFile, realpath } from 'node:fs/promises';
import path from 'node:path';

import type { ToolCall, ToolResult } from './contract.js';

/** A tool: what the model is told about it, and what it does. */
export interface Tool {
  description: string;
  parameters: object;
  run(root: string, input: Record<string, unknown>): Promise<unknown>;
}

/** More than this of a file is not sent. */
const MOST_CHARACTERS = 20_000;

const oneText = (field: string, description: string): object => ({
  type: 'object',
  properties: { [field]: { type: 'string', description } },
  required: [field],
  additionalProperties: false,
});

export const TOOLS: Record<string, Tool> = {
  list_files: {
    description: 'Lists what is in a folder of the workspace. Folders end with a slash.',
    parameters: oneText('folder', 'A path below the root of the workspace; a dot for the root itself.'),
    async run(root, input) {
      const entries = await readdir(await inside(root, input['folder']), { withFileTypes: true });
      return { entries: entries.map((entry) => entry.name + (entry.isDirectory() ? '/' : '')).sort() };
    },
  },
  read_file: {
    description: 'Reads a text file of the workspace.',
    parameters: oneText('path', 'A path below the root of the workspace.'),
    async run(root, input) {
      const text = await readFile(await inside(root, input['path']), 'utf8');
      return { text: text.slice(0, MOST_CHARACTERS), truncated: text.length > MOST_CHARACTERS };
    },
  },
};

/** Runs the calls one after the other. Every call has a result, also one that fails: the model hears why. */
export async function runCalls(root: string, calls: ToolCall[]): Promise<ToolResult[]> {
  const results: ToolResult[] = [];
  for (const call of calls) {
    const started = performance.now();
    const outcome = await runCall(root, call);
    results.push({ ToolCallId: call.CallId, ExecutionMs: Math.round(performance.now() - started), ...outcome });
  }
  return results;
}

async function runCall(root: string, call: ToolCall): Promise<{ ResultJson: string } | { ErrorMessage: string }> {
  try {
    const tool = Object.hasOwn(TOOLS, call.Name) ? TOOLS[call.Name] : undefined;
    if (tool === undefined) {
      throw new Error(`there is no tool ${call.Name} here`);
    }
    // A model wrote this: it may be anything.
    const input: unknown = JSON.parse(call.ArgumentsJson ?? '{}');
    if (typeof input !== 'object' || input === null || Array.isArray(input)) {
      throw new Error('the arguments must be an object');
    }
    return { ResultJson: JSON.stringify(await tool.run(root, input as Record<string, unknown>)) };
  } catch (error) {
    return { ErrorMessage: error instanceof Error ? error.message : String(error) };
  }
}

/** The place that a path means, if it is below the root, wherever links lead. */
async function inside(root: string, value: unknown): Promise<string> {
  if (typeof value !== 'string') {
    throw new Error('a path is needed');
  }
  const base = await realpath(root);
  const place = path.resolve(base, value);
  const outside = (where: string): boolean => where !== base && !where.startsWith(base + path.sep);
  // Looked at before the file system is asked: the model learns nothing about other folders.
  if (outside(place)) {
    throw new Error(`${value} is outside of the workspace`);
  }
  const real = await realpath(place).catch(() => {
    throw new Error(`${value} does not exist`);
  });
  if (outside(real)) {
    throw new Error(`${value} is outside of the workspace`);
  }
  return real;
}
