// One column of the playground: settings above, answers below.

import { useMemo, useState } from 'preact/hooks';
import type { Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { count, duration } from '../format';
import { t } from '../i18n';
import { bodyOf, openCalls, type Door, type Results, type Settings, type Turn } from '../playground/model';
import { snippet, type Language } from '../playground/snippets';
import { href } from '../router';
import { maySee } from '../session';
import { CallCard, LongText } from '../ui/conversation';
import { Dialog } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { Code, Notice, Select, Status, Tabs, TextArea, TextField } from '../ui/parts';
import { ToolPicker } from '../ui/tool-picker';
import { VirtualList } from '../ui/virtual-list';
import type { ColumnState } from './playground';

export interface ColumnProps {
  number: number;
  settings: Settings;
  models: Schemas['Model'][];
  state: ColumnState;
  input: string;
  onSettings: (settings: Settings) => void;
  onResults: (results: Results) => void;
  onStop: () => void;
  onBranch: (turn: number) => void;
}

const DOORS: { value: Door; label: string }[] = [
  { value: 'responses', label: 'POST /v1/responses' },
  { value: 'assistant', label: 'POST /api/v2/ai-agent/respond/' },
  { value: 'execute', label: 'POST /api/agent/execute' },
];

export function Column(props: ColumnProps) {
  const { settings, state } = props;
  const [open, setOpen] = useState(false);
  const [copying, setCopying] = useState(false);
  const set = (change: Partial<Settings>): void => props.onSettings({ ...settings, ...change });
  const isProfile = (model: Schemas['Model']): boolean => model.owned_by === 'assistant';
  const names = props.models.filter((model) => settings.door === 'responses' || isProfile(model)).map((model) => model.id);
  const options = [
    ...(settings.door === 'responses' ? [] : [{ value: '', label: t('play.default') }]),
    ...[...new Set([...(settings.model ? [settings.model] : []), ...names])].map((name) => ({ value: name, label: name })),
  ];
  return (
    <section class="card play-column" aria-label={t('play.column', { number: props.number })}>
      <div class="card-body stack tight">
        <div class="play-choice">
          <Select label={t('play.door')} value={settings.door} options={DOORS} onChange={(door) => set({ door, model: '' })} />
          <Select label={settings.door === 'responses' ? t('play.model') : t('play.profile')} value={settings.model || (settings.door === 'responses' ? (names[0] ?? '') : '')} options={options} onChange={(model) => set({ model })} />
        </div>
        <div class="row">
          <button type="button" class="button small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {t('play.parameters')}
          </button>
          <button type="button" class="button small" onClick={() => setCopying(true)}>
            <Icon name="code" />
            {t('play.copyAs')}
          </button>
          {state.running && (
            <button type="button" class="button small danger" onClick={props.onStop}>
              {t('play.stop')}
            </button>
          )}
        </div>
        {open && <Parameters settings={settings} set={set} />}
      </div>
      <div class="play-turns">
        {state.turns.map((turn, index) => (
          <TurnCard key={index} turn={turn} last={index === state.turns.length - 1} onResults={props.onResults} onBranch={settings.door === 'responses' ? () => props.onBranch(index) : undefined} />
        ))}
        {!state.turns.length && <p class="muted play-empty">{t('play.empty')}</p>}
      </div>
      {copying && <CopyDialog {...props} onClose={() => setCopying(false)} />}
    </section>
  );
}

function Parameters({ settings, set }: { settings: Settings; set: (change: Partial<Settings>) => void }) {
  if (settings.door === 'assistant') {
    return <TextArea label={t('play.metadata')} code rows={3} value={settings.metadata} onInput={(metadata) => set({ metadata })} placeholder={'{"course_id": 28}'} />;
  }
  if (settings.door === 'execute') {
    return <TextField label={t('play.mode')} value={settings.mode} onInput={(mode) => set({ mode })} placeholder="QA" />;
  }
  const efforts = ['', 'minimal', 'low', 'medium', 'high'].map((value) => ({ value, label: value || t('play.default') }));
  return (
    <div class="stack tight">
      <TextArea label={t('play.instructions')} rows={2} value={settings.instructions} onInput={(instructions) => set({ instructions })} />
      <div class="play-choice four">
        <TextField label={t('play.temperature')} value={settings.temperature} onInput={(temperature) => set({ temperature })} placeholder="1" error={wrongNumber(settings.temperature)} />
        <TextField label={t('play.topP')} value={settings.topP} onInput={(topP) => set({ topP })} placeholder="1" error={wrongNumber(settings.topP)} />
        <TextField label={t('play.maxTokens')} value={settings.maxOutputTokens} onInput={(maxOutputTokens) => set({ maxOutputTokens })} error={wrongNumber(settings.maxOutputTokens)} />
        <Select label={t('play.reasoning')} value={settings.reasoning} options={efforts} onChange={(reasoning) => set({ reasoning })} />
      </div>
      {maySee.value && <BankTools tools={settings.tools} onChange={(tools) => set({ tools })} />}
      <TextArea label={t('play.tools')} code rows={4} value={settings.tools} onInput={(tools) => set({ tools })} placeholder={'[{"type": "function", "name": "get_course_detail"}]'} help={t('play.toolsHelp')} error={wrongJson(settings.tools)} />
      <TextArea label={t('play.schema')} code rows={3} value={settings.schema} onInput={(schema) => set({ schema })} error={wrongJson(settings.schema)} />
    </div>
  );
}

/** Chooses tools of the tool bank: entries of the list that have only a name. */
function BankTools({ tools, onChange }: { tools: string; onChange: (tools: string) => void }) {
  const [open, setOpen] = useState(false);
  const list = listOf(tools);
  const isOfBank = (tool: ToolEntry): boolean => tool.type === 'function' && typeof tool.name === 'string' && (tool.parameters === undefined || tool.parameters === null);
  if (!list) return null;
  const choose = (names: string[]): void => {
    const next = [...list.filter((tool) => !isOfBank(tool)), ...names.map((name) => ({ type: 'function', name }))];
    onChange(next.length ? JSON.stringify(next, null, 2) : '');
  };
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="small">{t('play.bank')}</summary>
      {open && <ToolPicker selected={list.filter(isOfBank).map((tool) => String(tool.name))} onChange={choose} whole />}
    </details>
  );
}

type ToolEntry = Record<string, unknown>;

/** The tools of a text; null if it is not a list. */
function listOf(tools: string): ToolEntry[] | null {
  if (!tools.trim()) return [];
  try {
    const list: unknown = JSON.parse(tools);
    return Array.isArray(list) ? (list as ToolEntry[]) : null;
  } catch {
    return null;
  }
}

function wrongNumber(text: string): string | undefined {
  return text.trim() && !Number.isFinite(Number(text)) ? t('play.noNumber') : undefined;
}

function wrongJson(text: string): string | undefined {
  if (!text.trim()) return undefined;
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

const STATUS: Record<Turn['status'], string> = { running: 'in_progress', completed: 'completed', failed: 'failed', stopped: 'cancelled', incomplete: 'incomplete', waiting: 'pending' };

function TurnCard({ turn, last, onResults, onBranch }: { turn: Turn; last: boolean; onResults: (results: Results) => void; onBranch?: () => void }) {
  const open = last && turn.status === 'waiting' ? openCalls(turn) : [];
  return (
    <article class="play-turn">
      {turn.input && (
        <div class="said user">
          <div class="text-block">{turn.input}</div>
          {onBranch && turn.status !== 'running' && (
            <button type="button" class="button small quiet" onClick={onBranch}>
              {t('play.branch')}
            </button>
          )}
        </div>
      )}
      {turn.reasoning && (
        <details class="said reasoning">
          <summary class="who">{t('part.reasoning')}</summary>
          <LongText text={turn.reasoning} />
        </details>
      )}
      {turn.calls.map((call) => (
        <div class="said call" key={call.id ?? call.callId}>
          <CallCard view={call} />
        </div>
      ))}
      {turn.text && (
        <div class="said assistant" aria-live="polite">
          <LongText text={turn.text} />
        </div>
      )}
      {turn.error && (
        <Notice tone="wrong">
          <p class="text-block">{turn.error}</p>
          {turn.requestId && (
            <p class="small muted">
              {t('error.request')} <code>{turn.requestId}</code>
            </p>
          )}
        </Notice>
      )}
      {open.length > 0 && <ResultForm key={turn.responseId} calls={open.map((call) => ({ id: call.callId ?? '', name: call.name }))} onResults={onResults} />}
      <div class="row small muted play-facts">
        <Status value={STATUS[turn.status]} />
        {turn.firstMs !== null && <span>{t('play.first', { value: duration(turn.firstMs) })}</span>}
        {turn.durationMs !== null && <span>{duration(turn.durationMs)}</span>}
        {turn.usage && (
          <span>
            {count(turn.usage.input)} → {count(turn.usage.output)}
          </span>
        )}
        {turn.responseId && turn.status !== 'running' && <a href={href(`/turns/${turn.responseId}`)}>{t('play.turn')}</a>}
      </div>
      <EventList turn={turn} />
    </article>
  );
}

/** The client's part: a result for each call. */
function ResultForm({ calls, onResults }: { calls: { id: string; name: string }[]; onResults: (results: Results) => void }) {
  const [results, setResults, clearResults] = useDraft<Results>(`results.${calls.map((call) => call.id).join('.')}`, Object.fromEntries(calls.map((call) => [call.id, ''])));
  return (
    <form
      class="card card-body stack tight"
      onSubmit={(event) => {
        event.preventDefault();
        clearResults();
        onResults(results);
      }}
    >
      <strong>{t('play.results')}</strong>
      {calls.map((call) => (
        <TextArea key={call.id} label={t('play.result', { name: call.name })} code rows={2} value={results[call.id] ?? ''} onInput={(value) => setResults({ ...results, [call.id]: value })} placeholder={'{"ok": true}'} />
      ))}
      <div class="row">
        <button type="submit" class="button primary small">
          {t('play.sendResults')}
        </button>
      </div>
    </form>
  );
}

function EventList({ turn }: { turn: Turn }) {
  const [open, setOpen] = useState(false);
  const [selected, setSelected] = useState(-1);
  const chosen = turn.events[selected];
  if (!turn.events.length) return null;
  return (
    <details class="play-events" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="small">{t('play.events', { count: count(turn.events.length) })}</summary>
      {open && (
        <>
          <VirtualList
            count={turn.events.length}
            rowHeight={24}
            label={t('play.events', { count: count(turn.events.length) })}
            selected={selected}
            onSelect={setSelected}
            onOpen={setSelected}
            row={(index) => {
              const event = turn.events[index];
              return event ? (
                <div class="event-row small" role="presentation">
                  <span role="gridcell" class="num">
                    +{Math.round(event.at)} ms
                  </span>
                  <span role="gridcell" class="num muted">
                    {event.gap >= 1 ? `Δ ${Math.round(event.gap)}` : ''}
                  </span>
                  <span role="gridcell" class="mono">
                    {event.type}
                  </span>
                </div>
              ) : null;
            }}
          />
          {chosen && <Code text={chosen.data} label={chosen.type} />}
        </>
      )}
    </details>
  );
}

function CopyDialog(props: ColumnProps & { onClose: () => void }) {
  const [language, setLanguage] = useState<Language>('curl');
  const { text, error } = useMemo(() => {
    try {
      const settings = { ...props.settings, model: props.settings.model || (props.settings.door === 'responses' ? (props.models[0]?.id ?? 'demo') : '') };
      const body = bodyOf(settings, props.input || 'Hello!', props.state.conversation);
      return { text: snippet(language, settings, body, window.location.origin), error: null };
    } catch (failure) {
      return { text: '', error: (failure as Error).message };
    }
  }, [language, props.settings, props.input]);
  return (
    <Dialog title={t('play.copyAs')} onClose={props.onClose} wide>
      <Tabs
        label={t('play.copyAs')}
        selected={language}
        onSelect={setLanguage}
        tabs={[
          { id: 'curl', label: 'curl' },
          { id: 'python', label: 'Python' },
          { id: 'typescript', label: 'TypeScript' },
        ]}
      />
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${language}`}>
        {error ? <Notice tone="wrong">{error}</Notice> : <Code text={text} />}
      </div>
    </Dialog>
  );
}
