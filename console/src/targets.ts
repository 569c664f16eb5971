// What a text that a user typed can lead to.

export interface Target {
  kind: 'turn' | 'session' | 'text';
  path: string;
  query?: Record<string, string>;
}

/** What a text that looks like an id can lead to. Items and calls are found by the text of the turn that has them. */
export function targetsOf(text: string): Target[] {
  const id = text.trim();
  if (!id || /\s/.test(id)) return [];
  if (/^\d+$/.test(id)) return [{ kind: 'session', path: `/sessions/${id}` }];
  if (/^(msg|call|fc|fco|mcp|mcpr|rs|ctc|item|file|sess|conv)_[\w-]{6,}$/i.test(id)) return [{ kind: 'text', path: '/turns', query: { q: id } }];
  if (/^[a-z]{2,12}[_-][\w-]{6,}$/i.test(id) || /^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(id)) return [{ kind: 'turn', path: `/turns/${encodeURIComponent(id)}` }];
  return [];
}
