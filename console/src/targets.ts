// What a text that a user typed can lead to.

export interface Target {
  kind: 'turn' | 'session' | 'text';
  path: string;
  query?: Record<string, string>;
}

/** What a text that looks like an id can lead to. The server finds a turn by the id of its response, request, items and calls. */
export function targetsOf(text: string): Target[] {
  const id = text.trim();
  if (!id || /\s/.test(id)) return [];
  if (/^\d+$/.test(id)) return [{ kind: 'session', path: `/sessions/${id}` }];
  if (/^sess_[\w-]{6,}$/i.test(id)) return [{ kind: 'text', path: '/turns', query: { session: id } }];
  if (/^(file|conv)_[\w-]{6,}$/i.test(id)) return [{ kind: 'text', path: '/turns', query: { q: id } }];
  if (/^[a-z]{2,12}[_-][\w-]{6,}$/i.test(id) || /^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(id)) return [{ kind: 'turn', path: `/turns/${encodeURIComponent(id)}` }];
  return [];
}

/** Whether a text can be the id of an item or a call, which the text of a turn contains. */
export function isPartId(id: string): boolean {
  return /^(msg|call|fc|fco|mcp|mcpr|mcpl|rs|ctc|ctco|item|toolu|sh|lsh|apc|tsc|cu|fs)_/i.test(id);
}
