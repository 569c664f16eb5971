// What a column of the playground is: its settings, and the answers so far.

import type { CallView } from '../items';

export type Door = 'responses' | 'assistant' | 'execute';

export interface Settings {
  door: Door;
  /** A model, or the profile of an assistant or agent. */
  model: string;
  mode: string;
  instructions: string;
  temperature: string;
  maxOutputTokens: string;
  reasoning: string;
  /** JSON: a list of tools. */
  tools: string;
  /** JSON Schema of the answer. */
  schema: string;
  /** JSON: metadata of the assistant. */
  metadata: string;
}

export const DEFAULTS: Settings = {
  door: 'responses',
  model: '',
  mode: '',
  instructions: '',
  temperature: '',
  maxOutputTokens: '',
  reasoning: '',
  tools: '',
  schema: '',
  metadata: '',
};

export interface TimedEvent {
  type: string;
  /** Milliseconds since the request was sent. */
  at: number;
  /** Milliseconds since the event before it. */
  gap: number;
  data: string;
}

export interface Turn {
  input: string;
  text: string;
  reasoning: string;
  calls: CallView[];
  events: TimedEvent[];
  status: 'running' | 'completed' | 'failed' | 'stopped' | 'incomplete' | 'waiting';
  error: string | null;
  requestId: string | null;
  responseId: string | null;
  model: string | null;
  usage: { input: number; output: number } | null;
  firstMs: number | null;
  durationMs: number | null;
}

export function newTurn(input: string): Turn {
  return {
    input,
    text: '',
    reasoning: '',
    calls: [],
    events: [],
    status: 'running',
    error: null,
    requestId: null,
    responseId: null,
    model: null,
    usage: null,
    firstMs: null,
    durationMs: null,
  };
}

/** Calls that the client has to answer. */
export function openCalls(turn: Turn): CallView[] {
  return turn.calls.filter((call) => call.output === null && call.error === null && call.callId);
}

/** JSON of a field that the user typed; `undefined` if it is empty. */
export function parsed(name: string, text: string): unknown {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: ${(error as Error).message}`);
  }
}

/** A file that was uploaded for the next message. */
export interface Attachment {
  id: string;
  name: string;
  image: boolean;
}

export interface Results {
  [callId: string]: string;
}

/** The body of a request, as it is sent and as it is copied. */
export function bodyOf(settings: Settings, input: string | null, state: { previous: string | null; session: string | null; turnId: string }, results: Results = {}, files: Attachment[] = []): Record<string, unknown> {
  const answers = Object.entries(results);
  if (settings.door === 'assistant') {
    return { ...(settings.model && { agent: settings.model }), message: input ?? '', ...(settings.metadata.trim() && { metadata: parsed('metadata', settings.metadata) }) };
  }
  if (settings.door === 'execute') {
    const head = { SessionId: state.session ?? 'SESSION_ID', TurnId: state.turnId };
    if (answers.length) return { ...head, ToolResults: answers.map(([id, output]) => ({ ToolCallId: id, ExecutionMs: 0, ResultJson: output })) };
    return { ...head, Instruction: input ?? '', Streaming: true };
  }
  const number = (text: string): number | undefined => (text.trim() ? Number(text) : undefined);
  const schema = parsed('schema', settings.schema);
  const body: Record<string, unknown> = {
    model: settings.model,
    input: answers.length ? answers.map(([id, output]) => ({ type: 'function_call_output', call_id: id, output })) : files.length ? [messageWith(input ?? '', files)] : (input ?? ''),
    stream: true,
    instructions: settings.instructions.trim() || undefined,
    temperature: number(settings.temperature),
    max_output_tokens: number(settings.maxOutputTokens),
    reasoning: settings.reasoning ? { effort: settings.reasoning } : undefined,
    tools: parsed('tools', settings.tools),
    text: schema === undefined ? undefined : { format: { type: 'json_schema', name: 'answer', strict: true, schema } },
    previous_response_id: state.previous ?? undefined,
  };
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

function messageWith(text: string, files: Attachment[]): object {
  const parts = files.map((file) => (file.image ? { type: 'input_image', file_id: file.id, detail: 'auto' } : { type: 'input_file', file_id: file.id }));
  return { type: 'message', role: 'user', content: [{ type: 'input_text', text }, ...parts] };
}

export const ROUTES: Record<Door, string> = {
  responses: '/v1/responses',
  assistant: '/api/v2/ai-agent/respond/',
  execute: '/api/agent/execute',
};
