// The rows of the list of turns: pages from the store, and changes from the live list.

import { call, send, type Schemas } from '../api/client';
import { readEvents } from '../api/sse';

export type TurnRow = Schemas['TurnRow'];

/** The filters of `/admin/turns`, as they are in the address of the page. */
export const FILTERS = [
  'q',
  'status',
  'door',
  'model',
  'user',
  'profile',
  'upstream',
  'tool',
  'session',
  'key',
  'error',
  'request_id',
  'min_duration_ms',
  'min_cost_usd',
  'tenant',
] as const;

export type Filter = (typeof FILTERS)[number];

/** How far back the list goes, by name. */
export const RANGES: Record<string, number> = { '15m': 900_000, '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000, '30d': 2_592_000_000 };

export function queryOf(search: URLSearchParams, now: number): Record<string, string> {
  const query: Record<string, string> = {};
  for (const name of FILTERS) {
    const value = search.get(name)?.trim();
    if (value) query[name] = value;
  }
  const range = RANGES[search.get('range') ?? ''];
  if (range) query.from = new Date(now - range).toISOString();
  const from = search.get('from');
  const to = search.get('to');
  if (from && !range) query.from = from;
  if (to) query.to = to;
  return query;
}

/** Adds new rows at the top and replaces known ones; both lists are newest first. Returns how many were added. */
export function merged(rows: TurnRow[], changes: TurnRow[]): { rows: TurnRow[]; added: number } {
  const known = new Map(rows.map((row, index) => [row.id, index]));
  const next = rows.slice();
  const fresh: TurnRow[] = [];
  for (const change of changes) {
    const index = known.get(change.id);
    if (index !== undefined) next[index] = change;
    else {
      const again = fresh.findIndex((row) => row.id === change.id);
      if (again >= 0) fresh[again] = change;
      else fresh.push(change);
    }
  }
  if (!fresh.length) return { rows: next, added: 0 };
  const all = [...fresh, ...next];
  all.sort((one, other) => other.created_at_ms - one.created_at_ms || (other.id > one.id ? 1 : -1));
  return { rows: all, added: fresh.length };
}

export const PAGE_SIZE = 100;

export function loadPage(query: Record<string, string>, after: string | undefined, signal: AbortSignal): Promise<Schemas['TurnList']> {
  return call('get', '/admin/turns', { query: { ...query, limit: PAGE_SIZE, after }, signal });
}

/** Follows the live list until it is stopped; connects again when it ends. */
export async function follow(query: Record<string, string>, signal: AbortSignal, onRows: (rows: TurnRow[]) => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const response = await send('get', '/admin/turns/tail', { query, signal, headers: { accept: 'text/event-stream' } });
      for await (const events of readEvents(response)) {
        const rows = events.filter((event) => event.event === 'turn').map((event) => JSON.parse(event.data) as TurnRow);
        if (rows.length) onRows(rows);
        if (signal.aborted) return;
      }
    } catch {
      if (signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
