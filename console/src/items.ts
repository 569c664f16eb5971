// Items of a response as people read them: messages, calls with their results, reasoning.

export type Item = Record<string, unknown> & { type?: string; id?: string };

export interface MessageView {
  kind: 'message';
  role: string;
  text: string;
  /** Names of parts that are no text: images, files. */
  attachments: string[];
  id?: string;
}

export interface CallView {
  kind: 'call';
  name: string;
  arguments: string;
  output: string | null;
  error: string | null;
  status: string | null;
  id?: string;
  callId?: string;
}

export interface ReasoningView {
  kind: 'reasoning';
  text: string;
  id?: string;
}

export interface OtherView {
  kind: 'other';
  type: string;
  json: string;
  id?: string;
}

export type ItemView = MessageView | CallView | ReasoningView | OtherView;

const text = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value, null, 2));

/** Text of content that is a string or a list of parts. */
export function contentOf(content: unknown): { text: string; attachments: string[] } {
  if (typeof content === 'string') return { text: content, attachments: [] };
  if (!Array.isArray(content)) return { text: text(content), attachments: [] };
  const texts: string[] = [];
  const attachments: string[] = [];
  for (const part of content as Item[]) {
    if (typeof part === 'string') texts.push(part);
    else if (typeof part.text === 'string') texts.push(part.text);
    else if (typeof part.refusal === 'string') texts.push(part.refusal);
    else attachments.push([part.type ?? 'part', part.filename ?? part.file_id ?? ''].filter(Boolean).join(' '));
  }
  return { text: texts.join('\n'), attachments };
}

/** Pairs calls with their outputs and turns every item into a view. */
export function viewsOf(items: readonly Item[]): ItemView[] {
  const outputs = new Map<string, unknown>();
  for (const item of items) {
    if (typeof item.type === 'string' && item.type.endsWith('_output') && typeof item.call_id === 'string') outputs.set(item.call_id, item.output);
  }
  const used = new Set<string>();
  const views: ItemView[] = [];
  for (const item of items) {
    const type = item.type ?? 'message';
    const id = item.id;
    if (type === 'message') {
      views.push({ kind: 'message', role: text(item.role) || 'user', ...contentOf(item.content), id });
    } else if (type === 'function_call' || type === 'custom_tool_call' || type === 'mcp_call') {
      const callId = text(item.call_id) || undefined;
      const paired = callId ? outputs.get(callId) : undefined;
      if (callId && outputs.has(callId)) used.add(callId);
      const output = item.output ?? paired;
      views.push({
        kind: 'call',
        name: text(item.name),
        arguments: text(item.arguments ?? item.input),
        output: output === undefined || output === null ? null : Array.isArray(output) ? contentOf(output).text : text(output),
        error: item.error ? text((item.error as Item).message ?? item.error) : null,
        status: text(item.status) || null,
        id,
        callId,
      });
    } else if (type === 'reasoning') {
      const summary = contentOf(item.summary).text;
      const content = contentOf(item.content).text;
      views.push({ kind: 'reasoning', text: summary || content, id });
    } else if (type.endsWith('_output') && used.has(text(item.call_id))) {
      continue;
    } else {
      views.push({ kind: 'other', type, json: JSON.stringify(item, null, 2), id });
    }
  }
  return views;
}

/** JSON with indentation if the text is JSON, else the text itself. */
export function pretty(value: string): string {
  const first = value.trimStart().charAt(0);
  if (first !== '{' && first !== '[') return value;
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
