// Rules that need no browser.

import { describe, expect, test } from 'vitest';
import { EventParser } from './api/sse';
import { diffLines } from './diff';
import { apply } from './playground/events';
import { bodyOf, DEFAULTS, newTurn } from './playground/model';
import { python, snippet } from './playground/snippets';
import { sourceOf } from './playground/source';
import { argumentsOf, fieldsOf } from './schema-form';
import { en } from './i18n/en';
import { id } from './i18n/id';
import { viewsOf } from './items';
import { allPages } from './all-pages';
import { namesOf, numberOf } from './form-values';
import { match } from './match';
import { targetsOf } from './targets';
import { found, indented, lineAt, linesOf } from './text-search';
import { visibleRows } from './ui/virtual-list';
import { roundUp } from './ui/chart';
import { barsOf } from './waterfall';
import { merged, queryOf, type TurnRow } from './pages/turn-rows';
import { address } from './api/client';

describe('texts', () => {
  test('both languages have the same keys and the same placeholders', () => {
    expect(Object.keys(id).sort()).toEqual(Object.keys(en).sort());
    const names = (text: string): string[] => (text.match(/\{\w+\}/g) ?? []).sort();
    for (const key of Object.keys(en) as (keyof typeof en)[]) {
      expect(names(id[key]), key).toEqual(names(en[key]));
      expect(id[key].trim(), key).not.toBe('');
    }
  });
});

describe('events', () => {
  const text = 'event: turn\r\ndata: {"a":\r\ndata: 1}\r\n\r\n: comment\n\nevent: keepalive\ndata: {}\n\n';

  test('events are the same whatever the boundaries of the chunks', () => {
    const whole = new EventParser().push(text);
    expect(whole).toEqual([
      { event: 'turn', data: '{"a":\n1}' },
      { event: 'keepalive', data: '{}' },
    ]);
    for (let size = 1; size < text.length; size += 1) {
      const parser = new EventParser();
      const events = [];
      for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
      expect(events, String(size)).toEqual(whole);
    }
  });
});

describe('lists', () => {
  const row = (rowId: string, at: number, status = 'completed'): TurnRow => ({ id: rowId, created_at_ms: at, status }) as TurnRow;

  test('live rows replace known ones and are added in order', () => {
    const before = [row('b', 2), row('a', 1)];
    const { rows, added } = merged(before, [row('a', 1, 'failed'), row('c', 3, 'in_progress'), row('c', 3)]);
    expect(added).toBe(1);
    expect(rows.map((one) => `${one.id} ${one.status}`)).toEqual(['c completed', 'b completed', 'a failed']);
  });

  test('only the visible rows of a hundred thousand are drawn', () => {
    const { first, last } = visibleRows(1_650_000, 600, 33, 100_000);
    expect(last - first).toBeLessThan(60);
    expect(visibleRows(0, 600, 33, 0)).toEqual({ first: 0, last: 0 });
  });

  test('filters and ranges of the address become the query of the API', () => {
    const search = new URLSearchParams('q=x&status=failed&range=1h&tab=z&user=%20');
    expect(queryOf(search, Date.parse('2026-01-01T12:00:00Z'))).toEqual({ q: 'x', status: 'failed', from: '2026-01-01T11:00:00.000Z' });
  });
});

describe('texts of turns', () => {
  test('long lines are broken without losing a character, and are searched', () => {
    const text = `a${'😀'.repeat(400)}\nneedle`;
    const lines = linesOf(text);
    expect(lines.map((line) => line.text).join('')).toBe(text.replace('\n', ''));
    expect(lines.every((line) => !/[\ud800-\udbff]$/.test(line.text))).toBe(true);
    expect(lines.every((line) => text.startsWith(line.text, line.start))).toBe(true);
    expect(found(text, 'NEEDLE').map((place) => lineAt(lines, place))).toEqual([lines.length - 1]);
    expect(found(text, '')).toEqual([]);
    expect(linesOf('')).toEqual([{ start: 0, text: '' }]);
  });

  test('a match across the place where a line is broken is found, also behind characters whose lower case is longer', () => {
    const text = `${'\u0130'.repeat(3)}${'x'.repeat(155)}Needle${'y'.repeat(300)}needle`;
    expect(found(text, 'needle')).toEqual([158, text.length - 6]);
  });

  test('indented JSON has the same tokens', () => {
    const text = '{"a":12345678901234567890,"a":1.0,"b":[],"c":[{"d":"x, {y: \\"z\\""}, null],"e":{ }}';
    const shown = indented(text);
    expect(shown).toBe('{\n  "a": 12345678901234567890,\n  "a": 1.0,\n  "b": [],\n  "c": [\n    {\n      "d": "x, {y: \\"z\\""\n    },\n    null\n  ],\n  "e": {}\n}');
    expect(indented('data: {"a":1}')).toBe('data: {"a":1}');
  });

  test('calls are shown with their outputs, and unknown items are kept', () => {
    const views = viewsOf([
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hi' }, { type: 'input_image', file_id: 'file_1' }] },
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'done' },
      { type: 'something_new', a: 1 },
    ]);
    expect(views.map((view) => view.kind)).toEqual(['message', 'call', 'other']);
    expect(views[0]).toMatchObject({ text: 'hi', attachments: ['input_image file_1'] });
    expect(views[1]).toMatchObject({ name: 'f', output: 'done' });
  });

  test('the time line has the calls where they happened', () => {
    const bars = barsOf({
      summary: { created_at_ms: 1000, duration_ms: 500 },
      calls: [{ asked_at_ms: 1100, duration_ms: 300, first_token_ms: 50, upstream: 'u', model: 'm', error: null }],
      tool_calls: [],
      spans: [],
    } as never);
    expect(bars.map(({ step, name, startMs, durationMs }) => [step, name, startMs, durationMs])).toEqual([
      ['turn', '', 0, 500],
      ['prompt', '', 0, 100],
      ['model_call', 'u/m', 100, 300],
    ]);
  });
});

describe('spans', () => {
  test('the time line shows the spans of the server when there are any', () => {
    const spans = [
      { name: 'admission', kind: 'queue', start_us: 0, duration_us: 1500 },
      { name: 'u/m', kind: 'model_call', start_us: 2000, duration_us: 8000, attributes: { first_token_us: 500 }, error: 'upstream' },
    ];
    const bars = barsOf({ summary: null, calls: [], tool_calls: [], spans } as never);
    expect(bars.map(({ kind, startMs, durationMs, firstMs, failed }) => [kind, startMs, durationMs, firstMs, failed])).toEqual([
      ['turn', 0, 10, undefined, undefined],
      ['queue', 0, 1.5, undefined, false],
      ['model', 2, 8, 0.5, true],
    ]);
  });
});

describe('the palette', () => {
  test('ids lead to turns, sessions and searches, and other texts to nothing', () => {
    expect(targetsOf('resp_AM-1795014152511-mwm92wcf')).toEqual([{ kind: 'turn', path: '/turns/resp_AM-1795014152511-mwm92wcf' }]);
    expect(targetsOf(' req_AM-vtq34sa9 ')[0]?.kind).toBe('turn');
    expect(targetsOf('0199a0b2-1111-7222-8333-444455556666')[0]?.kind).toBe('turn');
    expect(targetsOf('call_AM-mwm92wcfa012')).toEqual([{ kind: 'turn', path: '/turns/call_AM-mwm92wcfa012' }]);
    expect(targetsOf('sess_AM-mwm92wcfa012')).toEqual([{ kind: 'text', path: '/turns', query: { session: 'sess_AM-mwm92wcfa012' } }]);
    expect(targetsOf('42')).toEqual([{ kind: 'session', path: '/sessions/42' }]);
    for (const nothing of ['', 'turns', 'two words', 'a_b']) expect(targetsOf(nothing), nothing).toEqual([]);
  });

  test('a path finds its page and its parameters', () => {
    expect(match('/turns/:id', '/turns/resp%2F1')).toEqual({ id: 'resp/1' });
    expect(match('/turns', '/turns')).toEqual({});
    expect(match('/turns', '/tools')).toBeNull();
    expect(match('/turns/:id', '/turns/%')).toBeNull();
  });
});

describe('differences', () => {
  test('only changed lines are added and removed', () => {
    const lines = diffLines('a\nb\nc', 'a\nB\nc\nd');
    expect(lines.map(({ change, line }) => `${change[0]} ${line}`)).toEqual(['s a', 'r b', 'a B', 's c', 'a d']);
    expect(diffLines('x', 'x').every((line) => line.change === 'same')).toBe(true);
    const long = Array.from({ length: 3000 }, (_, index) => `line ${index}`);
    expect(diffLines(long.join('\n'), [...long].reverse().join('\n')).length).toBeGreaterThan(3000);
  });
});

describe('forms', () => {
  test('a schema becomes fields, and fields become arguments', () => {
    const fields = fieldsOf({
      type: 'object',
      required: ['city'],
      properties: { city: { type: 'string' }, days: { type: ['integer', 'null'] }, unit: { enum: ['c', 'f'] }, deep: { type: 'object' }, live: { type: 'boolean' } },
    });
    expect(fields.map(({ name, type, required }) => [name, type, required])).toEqual([
      ['city', 'text', true],
      ['days', 'number', false],
      ['unit', 'choice', false],
      ['deep', 'json', false],
      ['live', 'boolean', false],
    ]);
    expect(argumentsOf(fields, { city: 'Rome', days: '3', unit: '', deep: '{"a":1}', live: 'true' })).toEqual({ city: 'Rome', days: 3, deep: { a: 1 }, live: true });
    expect(() => argumentsOf(fields, { deep: '{' })).toThrow(/^deep: /);
  });
});

describe('the playground', () => {
  const settings = { ...DEFAULTS, model: 'm', tools: '[{"type":"function","name":"f"}]' };
  const state = { items: [], previous: null, session: null, turnId: 'turn-1' };

  test('requests have only what was filled in', () => {
    expect(bodyOf(settings, 'hi', state)).toEqual({ model: 'm', input: 'hi', stream: true, tools: [{ type: 'function', name: 'f' }] });
    expect(bodyOf({ ...settings, door: 'assistant' }, 'hi', state)).toEqual({ agent: 'm', message: 'hi' });
    expect(bodyOf({ ...settings, door: 'execute' }, '', { ...state, session: 's' }, { c1: '{}' })).toEqual({ SessionId: 's', TurnId: 'turn-1', ToolResults: [{ ToolCallId: 'c1', ExecutionMs: 0, ResultJson: '{}' }] });
    expect(() => bodyOf({ ...settings, tools: '[' }, 'hi', state)).toThrow(/^tools: /);
  });

  test('events of all three APIs become an answer', () => {
    const of = (events: [string, unknown][]) => {
      const turn = newTurn('hi');
      events.forEach(([event, data], index) => apply(turn, { event, data: JSON.stringify(data) }, index * 10));
      return turn;
    };
    const response = of([
      ['response.created', { type: 'response.created', response: { id: 'resp_1' } }],
      ['response.output_text.delta', { type: 'response.output_text.delta', delta: 'Hel' }],
      ['response.output_text.delta', { type: 'response.output_text.delta', delta: 'lo' }],
      ['response.completed', { type: 'response.completed', response: { id: 'resp_1', status: 'completed', usage: { input_tokens: 1, output_tokens: 2 } } }],
    ]);
    expect(response).toMatchObject({ text: 'Hello', status: 'completed', responseId: 'resp_1', firstMs: 10, usage: { input: 1, output: 2 } });
    expect(response.events.map((event) => event.gap)).toEqual([0, 10, 10, 10]);
    const waiting = of([
      ['response.output_item.done', { type: 'response.output_item.done', item: { type: 'function_call', id: 'fc_1', call_id: 'c1', name: 'f', arguments: '{}' } }],
      ['response.completed', { type: 'response.completed', response: { status: 'completed' } }],
    ]);
    expect(waiting.status).toBe('waiting');
    const assistant = of([
      ['tool_call', { id: 'c', name: 'f', arguments: '{}' }],
      ['tool_result', { id: 'c', output: { a: 1 } }],
      ['message.delta', { delta: 'x' }],
      ['done', { message: 'xy', model: 'm' }],
    ]);
    expect(assistant).toMatchObject({ text: 'xy', status: 'completed', calls: [{ name: 'f', output: '{"a":1}' }] });
    const execute = of([
      ['response.output_text.delta', { Type: 'response.output_text.delta', Event: { type: 'response.output_text.delta', delta: 'a' } }],
      ['turn.result', { Type: 'turn.result', Final: true, Result: { Kind: 'tool_calls', Text: 'ab', ToolCalls: [{ CallId: 'c1', Name: 'f', ArgumentsJson: '{}' }] } }],
    ]);
    expect(execute).toMatchObject({ text: 'ab', status: 'waiting', calls: [{ callId: 'c1' }] });
  });

  test('a stored turn is filled in with everything, and the history of another user is sent as items', async () => {
    const message = (role: string, text: string): object => ({ type: 'message', id: 'msg_1', role, content: [{ type: 'input_text', text }] });
    const stored = (previous: string | null, text: string): never =>
      ({
        id: 'resp_2',
        user: 'ada',
        summary: { door: 'responses', tenant_id: 1, requested_model: 'm' },
        input: [message('user', text)],
        response: { model: 'm', previous_response_id: previous, temperature: 0.5, top_p: 0.9, reasoning: { effort: 'low' }, instructions: 'Be kind.', output: [message('assistant', 'Yes.')] },
      }) as never;
    const read = async (): Promise<never> => stored(null, 'First');
    const own = await sourceOf(stored('resp_1', 'Second'), false, true, read);
    expect(own.settings).toMatchObject({ model: 'm', temperature: '0.5', topP: '0.9', reasoning: 'low', instructions: 'Be kind.' });
    expect([own.text, own.conversation.previous, own.conversation.items]).toEqual(['Second', 'resp_1', []]);
    const after = await sourceOf(stored('resp_1', 'Second'), true, true, read);
    expect([after.text, after.conversation.previous]).toEqual(['', 'resp_2']);
    const foreign = await sourceOf(stored('resp_1', 'Second'), false, false, read);
    expect([foreign.text, foreign.conversation.previous]).toEqual(['Second', null]);
    expect(foreign.conversation.items.map((item) => [item.role, item.id])).toEqual([['user', undefined], ['assistant', undefined]]);
    expect(bodyOf(foreign.settings, 'Second', foreign.conversation).input).toHaveLength(3);
  });

  test('copied code of the execute API opens a session first', () => {
    const execute = { ...DEFAULTS, door: 'execute' as const, mode: 'QA', model: 'home' };
    const body = bodyOf(execute, 'Hi', state);
    for (const language of ['curl', 'python', 'typescript'] as const) {
      const text = snippet(language, execute, body, 'http://x');
      expect(text, language).toContain('/api/agent/sessions');
      expect(text, language).toContain('AgentContextId');
      expect(text, language).not.toContain('SESSION_ID');
    }
  });

  test('copied code is complete in every language', () => {
    const body = bodyOf(settings, "it's", state);
    expect(snippet('curl', settings, body, 'http://x')).toContain("it'\\''s");
    expect(snippet('python', settings, body, 'http://x')).toContain('base_url="http://x/v1"');
    expect(snippet('typescript', settings, body, 'http://x')).toContain('"stream": true');
    expect(python({ a: [true, null], b: {} })).toBe('{\n    "a": [\n        True,\n        None,\n    ],\n    "b": {},\n}');
  });
});

describe('numbers', () => {
  test('an axis ends at a round number', () => {
    expect([0, 3, 7, 42, 1001].map(roundUp)).toEqual([1, 5, 10, 50, 2000]);
  });

  test('values in a path are escaped, and empty ones are left out of the query', () => {
    expect(address('/admin/tools/{name}', { path: { name: 'a/b c' }, query: { x: '', y: 1, z: null } })).toBe('/admin/tools/a%2Fb%20c?y=1');
  });
});

describe('forms and exports', () => {
  test('a number of a form is read as it was typed, and anything else is none', () => {
    expect(['', ' 12 ', '1_000', '0'].map((text) => numberOf(text, true))).toEqual([null, 12, 1000, 0]);
    expect(['-1', '1.5', '1e3', 'many', '9'.repeat(16)].map((text) => numberOf(text, true))).toEqual(Array(5).fill(undefined));
    expect(['1.5', '0.000000001', '1.0000000001'].map((text) => numberOf(text, false))).toEqual([1.5, 1e-9, undefined]);
  });

  test('names are one a line, each once, and none at all is no list', () => {
    expect(namesOf(' a \n\nb\na\n')).toEqual(['a', 'b']);
    expect(namesOf(' \n')).toBeNull();
  });

  test('an export has every page, however many there are', async () => {
    const asked: (string | number | null)[] = [];
    const all = await allPages<number>((after) => {
      asked.push(after);
      const first = after === null ? 0 : Number(after);
      return Promise.resolve({ rows: [first], next: first < 2500 ? first + 1 : null });
    });
    expect([all.length, asked.slice(0, 3)]).toEqual([2501, [null, 1, 2]]);
  });
});
