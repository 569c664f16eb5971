// The columns of the list of turns, of which the user chooses.

import type { ComponentChildren } from 'preact';
import { count, duration, money, shortTime } from '../format';
import { word, type Key } from '../i18n';
import { Status } from '../ui/parts';
import type { TurnRow } from './turn-rows';

export interface Column {
  id: string;
  label: Key;
  width: string;
  number?: boolean;
  cell: (row: TurnRow) => ComponentChildren;
}

const text = (value: string | null): ComponentChildren => (value ? <span title={value}>{value}</span> : <span class="muted">–</span>);

export const COLUMNS: Column[] = [
  { id: 'time', label: 'turns.time', width: '86px', cell: (row) => shortTime(row.created_at_ms) },
  { id: 'status', label: 'turns.status', width: '106px', cell: (row) => <Status value={row.status} /> },
  { id: 'door', label: 'turns.door', width: '78px', cell: (row) => word('door', row.door) },
  { id: 'model', label: 'turns.model', width: 'minmax(96px, 1.2fr)', cell: (row) => text(row.model ?? row.requested_model) },
  { id: 'profile', label: 'turns.profile', width: 'minmax(100px, 1fr)', cell: (row) => text(row.profile) },
  { id: 'user', label: 'turns.user', width: 'minmax(100px, 1fr)', cell: (row) => text(row.user) },
  { id: 'input', label: 'turns.input', width: '60px', number: true, cell: (row) => count(row.input_tokens) },
  { id: 'output', label: 'turns.output', width: '60px', number: true, cell: (row) => count(row.output_tokens) },
  { id: 'cost', label: 'turns.cost', width: '66px', number: true, cell: (row) => money(row.cost_usd) },
  { id: 'first', label: 'turns.first', width: '84px', number: true, cell: (row) => duration(row.first_token_ms) },
  { id: 'duration', label: 'turns.duration', width: '74px', number: true, cell: (row) => duration(row.duration_ms) },
  { id: 'tools', label: 'turns.tools', width: 'minmax(90px, 1fr)', cell: (row) => text(row.tools.join(', ') || null) },
  { id: 'error', label: 'turns.error', width: 'minmax(90px, 1fr)', cell: (row) => text(row.error) },
  { id: 'calls', label: 'turns.calls', width: '60px', number: true, cell: (row) => count(row.calls) },
  { id: 'losses', label: 'turns.losses', width: '64px', number: true, cell: (row) => count(row.losses) },
  { id: 'upstream', label: 'turns.upstream', width: 'minmax(80px, 1fr)', cell: (row) => text(row.upstream) },
  { id: 'session', label: 'turns.session', width: 'minmax(70px, 0.8fr)', cell: (row) => text(row.session_id) },
  { id: 'key', label: 'turns.key', width: 'minmax(90px, 1fr)', cell: (row) => text(row.key_id) },
  { id: 'request', label: 'turns.request', width: 'minmax(110px, 1fr)', cell: (row) => text(row.request_id) },
  { id: 'id', label: 'turns.id', width: 'minmax(120px, 1.2fr)', cell: (row) => text(row.id) },
  { id: 'tenant', label: 'turns.tenant', width: '60px', number: true, cell: (row) => row.tenant_id },
];

export const DEFAULT_COLUMNS = ['time', 'status', 'door', 'model', 'profile', 'user', 'input', 'output', 'cost', 'duration', 'tools'];
