// Fills the playground with a stored turn: its request, or what follows it.

import { call, type Schemas } from '../api/client';
import { contentOf, type Item } from '../items';
import { DEFAULTS, NEW_CONVERSATION, type Attachment, type Conversation, type Settings } from './model';

type Turn = Schemas['Turn'];

/** Turns of a chain that are read for the history of another user's turn. */
const LONGEST_CHAIN = 20;

export interface Source {
  settings: Settings;
  text: string;
  files: Attachment[];
  conversation: Conversation;
  /** Whether earlier turns of the chain were left out. */
  cut: boolean;
}

/** What reads a turn by the id of its response. */
export type ReadTurn = (id: string) => Promise<Turn>;

export function reader(tenant: string | null): ReadTurn {
  return (id) => call('get', '/admin/turns/{response_id}', { path: { response_id: id }, query: { tenant_id: tenant, bodies: false } });
}

/** The request of a turn, or, with `after`, one that continues it. A turn of another user cannot be continued by its id, so its history is
 * sent as items. */
export async function sourceOf(turn: Turn, after: boolean, isOwn: boolean, read: ReadTurn): Promise<Source> {
  const settings = settingsOf(turn);
  const conversation: Conversation = { ...NEW_CONVERSATION };
  const items = (turn.input ?? []) as unknown as Item[];
  const output = (turn.response?.output ?? []) as unknown as Item[];
  const previous = typeof turn.response?.previous_response_id === 'string' ? turn.response.previous_response_id : null;
  const isUser = (item: Item): boolean => (item.type ?? 'message') === 'message' && item.role === 'user';
  const asked = after ? items.length : items.findLastIndex(isUser);
  const last = after ? undefined : items[asked];
  let own = after ? [...items, ...output] : items.filter((_, index) => index !== asked);
  let cut = false;
  if (settings.door !== 'responses') own = [];
  else if (!isOwn) {
    const history = previous ? await chainOf(previous, read) : { items: [], cut: false };
    own = [...history.items, ...own];
    cut = history.cut;
  } else if (after) {
    own = [];
    conversation.previous = turn.id;
  } else conversation.previous = previous;
  conversation.items = own.flatMap(sendable);
  return { settings, text: last ? contentOf(last.content).text : '', files: filesOf(last), conversation, cut };
}

async function chainOf(id: string, read: ReadTurn): Promise<{ items: Item[]; cut: boolean }> {
  const turns: Item[][] = [];
  let next: string | null = id;
  while (next && turns.length < LONGEST_CHAIN) {
    const turn: Turn = await read(next);
    turns.unshift([...((turn.input ?? []) as unknown as Item[]), ...((turn.response?.output ?? []) as unknown as Item[])]);
    next = typeof turn.response?.previous_response_id === 'string' ? turn.response.previous_response_id : null;
  }
  return { items: turns.flat(), cut: next !== null };
}

const SENT = ['message', 'function_call', 'function_call_output', 'custom_tool_call', 'custom_tool_call_output'];

/** An item as a request may contain it. Reasoning is bound to its model, and calls of the server are answered in it. */
function sendable(item: Item): Item[] {
  const { id: _id, status: _status, ...rest } = item;
  return SENT.includes(item.type ?? 'message') ? [rest] : [];
}

function filesOf(item: Item | undefined): Attachment[] {
  if (!Array.isArray(item?.content)) return [];
  return (item.content as Item[]).flatMap((part) => {
    const file = part.file_id;
    return typeof file === 'string' ? [{ id: file, name: String(part.filename ?? file), image: part.type === 'input_image' }] : [];
  });
}

/** The settings of a stored turn. */
export function settingsOf(turn: Turn): Settings {
  const response = (turn.response ?? {}) as Record<string, unknown>;
  // A turn of any other API is stored as a response, and goes on as one.
  const asked = turn.summary?.door;
  const door = asked === 'assistant' || asked === 'execute' ? asked : 'responses';
  const known = (value: unknown): string => (value === null || value === undefined ? '' : String(value));
  if (door !== 'responses') return { ...DEFAULTS, door, model: turn.summary?.profile ?? '' };
  const format = (response.text as { format?: { type?: string; schema?: unknown } } | undefined)?.format;
  const tools = Array.isArray(response.tools) && response.tools.length ? JSON.stringify(response.tools, null, 2) : '';
  return {
    ...DEFAULTS,
    door,
    model: known(response.model ?? turn.summary?.requested_model),
    instructions: typeof response.instructions === 'string' ? response.instructions : '',
    temperature: known(response.temperature),
    topP: known(response.top_p),
    maxOutputTokens: known(response.max_output_tokens),
    reasoning: known((response.reasoning as { effort?: unknown } | null)?.effort),
    tools,
    schema: format?.type === 'json_schema' ? JSON.stringify(format.schema, null, 2) : '',
  };
}
