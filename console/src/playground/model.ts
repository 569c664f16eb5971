// What a column of the playground is: its settings, and the answers so far.

import type { CallView, Item } from '../items';

export type Door = 'responses' | 'assistant' | 'execute';

export interface Settings {
  door: Door;
  /** A model, or the profile of an assistant or agent. */
  model: string;
  mode: string;
  instructions: string;
  temperature: string;
  topP: string;
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
  topP: '',
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

export interface Conversation {
  /** The response that the next turn continues. */
  previous: string | null;
  /** The session of the execute API. */
  session: string | null;
  /** The turn of the execute API that waits for results. */
  turnId: string;
  /** Items that the next turn sends before its message: the history of a turn that it cannot continue. */
  items: Item[];
}

export const NEW_CONVERSATION: Conversation = { previous: null, session: null, turnId: 'turn-1', items: [] };

/** Stands for a session in copied code until there is one. */
export const NO_SESSION = 'SESSION_ID';

/** The body of a request, as it is sent and as it is copied. */
export function bodyOf(settings: Settings, input: string | null, state: Conversation, results: Results = {}, files: Attachment[] = []): Record<string, unknown> {
  const answers = Object.entries(results);
  if (settings.door === 'assistant') {
    return { ...(settings.model && { agent: settings.model }), message: input ?? '', ...(settings.metadata.trim() && { metadata: parsed('metadata', settings.metadata) }) };
  }
  if (settings.door === 'execute') {
    const head = { SessionId: state.session ?? NO_SESSION, TurnId: state.turnId };
    if (answers.length) return { ...head, ToolResults: answers.map(([id, output]) => ({ ToolCallId: id, ExecutionMs: 0, ResultJson: output })) };
    return { ...head, Instruction: input ?? '', Streaming: true };
  }
  const number = (text: string): number | undefined => (text.trim() ? Number(text) : undefined);
  const schema = parsed('schema', settings.schema);
  const body: Record<string, unknown> = {
    model: settings.model,
    input: answers.length ? answers.map(([id, output]) => ({ type: 'function_call_output', call_id: id, output })) : files.length || state.items.length ? [...state.items, messageWith(input ?? '', files)] : (input ?? ''),
    stream: true,
    instructions: settings.instructions.trim() || undefined,
    temperature: number(settings.temperature),
    top_p: number(settings.topP),
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
