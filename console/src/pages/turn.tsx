// One turn: what was said, when what happened, what the prompt was made of, and the exact text of every call.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { ApiError, call, type Schemas } from '../api/client';
import { count, dateTime, duration, money } from '../format';
import { useLoad, useVisible, type Loaded } from '../hooks';
import { t, word } from '../i18n';
import { viewsOf, type Item } from '../items';
import { go, href, location } from '../router';
import { mayUse } from '../session';
import { isPartId } from '../targets';
import { tenantOfPage } from '../tenant';
import { barsOf } from '../waterfall';
import { Conversation, LongText } from '../ui/conversation';
import { Card, Empty, Failure, Id, Loading, Notice, Page, Status, Tabs, TabPanel, Tag } from '../ui/parts';
import { RawText } from '../ui/raw';
import { Waterfall } from '../ui/waterfall';
import { Context } from './turn-context';
import { Calls, ToolCalls } from './turn-details';
import { Events, useEvents } from './turn-events';

type Turn = Schemas['Turn'];
type TabName = 'messages' | 'time' | 'calls' | 'tools' | 'context' | 'events' | 'json';

/** How often a turn that runs is read again while the page is visible. */
const RENEWED_MS = 1000;

export default function TurnPage({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const tenant = tenantOfPage();
  const turn = useLoad(
    (signal) => call('get', '/admin/turns/{response_id}', { path: { response_id: id }, query: { tenant_id: tenant, bodies: false }, signal }),
    [id, tenant],
  );
  const title = t('turn.title');
  if (turn.error && !turn.data) {
    const missing = turn.error instanceof ApiError && turn.error.status === 404;
    return (
      <Page title={title}>
        <Failure error={turn.error} retry={turn.reload} />
        {missing && isPartId(id) && (
          <Card>
            <Empty title={t('turn.searchText')} action={<a class="button primary" href={href('/turns', { q: id, tenant })}>{t('palette.search', { text: id })}</a>}>
              {t('turn.searchTextAbout')}
            </Empty>
          </Card>
        )}
      </Page>
    );
  }
  if (!turn.data || (turn.data.id !== id && turn.loading)) {
    return (
      <Page title={title}>
        <Card>
          <Loading />
        </Card>
      </Page>
    );
  }
  return <Details key={turn.data.id} turn={turn.data} loaded={turn} />;
}

export function runs(turn: Turn): boolean {
  return turn.summary?.status === 'in_progress' || turn.summary?.status === 'queued';
}

function Details({ turn, loaded }: { turn: Turn; loaded: Loaded<Turn> }) {
  const query = location.value.query;
  const tenant = tenantOfPage();
  const tab = (query.get('tab') as TabName | null) ?? 'messages';
  const summary = turn.summary;
  const running = runs(turn);
  const visible = useVisible();
  const bars = useMemo(() => barsOf(turn), [turn]);
  // The events of a turn that runs are also what is shown of its answer.
  const events = useEvents(turn.id, tenant, tab === 'events' || (running && tab === 'messages'), running && visible);
  useEffect(() => {
    if (!running || !visible || loaded.loading) return;
    const timer = setTimeout(loaded.reload, RENEWED_MS);
    return () => clearTimeout(timer);
  }, [running, visible, loaded.loading, turn]);
  const select = (next: TabName): void => go(location.value.path, { ...Object.fromEntries(query), tab: next === 'messages' ? null : next }, true);
  const tabs: { id: TabName; label: string; count?: number }[] = [
    { id: 'messages', label: t('turn.messages') },
    { id: 'time', label: t('turn.time') },
    { id: 'calls', label: t('turn.calls'), count: turn.calls.length },
    { id: 'tools', label: t('turn.tools'), count: turn.tool_calls.length },
    { id: 'context', label: t('turn.context') },
    { id: 'events', label: t('turn.events') },
    { id: 'json', label: t('turn.json') },
  ];
  return (
    <Page title={t('turn.title')} about={<Id value={turn.id} />} actions={<Actions turn={turn} reload={loaded.reload} tenant={tenant} />}>
      {summary && <Summary row={summary} tenant={tenant} />}
      {running && <Notice>{t('turn.running')}</Notice>}
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {turn.response?.error && (
        <Notice tone="wrong">
          <strong>{String(turn.response.error.code ?? 'error')}</strong>
          <p class="text-block">{String(turn.response.error.message ?? '')}</p>
        </Notice>
      )}
      <Tabs tabs={tabs} selected={tab} onSelect={select} label={t('turn.title')} />
      <TabPanel tab={tab}>
        {tab === 'messages' && <Messages turn={turn} tenant={tenant} draft={running ? events.draft : null} />}
        {tab === 'time' && (
          <Card title={t('turn.time')}>
            {bars.length ? <Waterfall bars={bars} /> : <Empty title={t('turn.noTimes')} />}
          </Card>
        )}
        {tab === 'calls' && <Calls turn={turn} tenant={tenant} />}
        {tab === 'tools' && <ToolCalls turn={turn} />}
        {tab === 'context' && <Context turn={turn} tenant={tenant} />}
        {tab === 'events' && <Events events={events} running={running} />}
        {tab === 'json' && <Whole turn={turn} />}
      </TabPanel>
    </Page>
  );
}

function Actions({ turn, reload, tenant }: { turn: Turn; reload: () => void; tenant: string | null }) {
  const may = mayUse.value && turn.response;
  return (
    <>
      <button type="button" class="button" onClick={reload}>
        {t('action.refresh')}
      </button>
      <a class="button" href={href('/compare', { a: turn.id, b: turn.response?.previous_response_id, tenant })}>
        {t('turn.compare')}
      </a>
      {may && turn.summary?.door === 'responses' && (
        <a class="button" href={href('/playground', { from: turn.id, after: '1', tenant })}>
          {t('turn.fork')}
        </a>
      )}
      {may && (
        <a class="button primary" href={href('/playground', { from: turn.id, tenant })}>
          {t('turn.open')}
        </a>
      )}
    </>
  );
}

function Summary({ row, tenant }: { row: Schemas['TurnRow']; tenant: string | null }) {
  const facts: [string, unknown][] = [
    [t('turns.status'), <Status value={row.status} />],
    [t('turns.time'), dateTime(row.created_at_ms)],
    [t('turns.model'), [row.upstream, row.model].filter(Boolean).join('/') || row.requested_model],
    [t('turns.duration'), duration(row.duration_ms)],
    [t('turns.first'), duration(row.first_token_ms)],
    [t('turn.tokens'), `${count(row.input_tokens)} → ${count(row.output_tokens)}`],
    [t('turns.cost'), money(row.cost_usd)],
    [t('turns.user'), row.user],
    [t('turns.door'), word('door', row.door)],
  ];
  if (tenant) facts.push([t('turns.tenant'), row.tenant_id]);
  if (row.profile) facts.push([t('turns.profile'), row.profile]);
  if (row.session_id) facts.push([t('turns.session'), row.door === 'assistant' ? <a href={href(`/sessions/${row.session_id}`, { tenant })}>{row.session_id}</a> : row.session_id]);
  if (row.request_id) facts.push([t('turns.request'), <code>{row.request_id}</code>]);
  if (row.key_id) facts.push([t('turns.key'), <code>{row.key_id}</code>]);
  return (
    <div class="card card-body turn-facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <div class="small muted">{name}</div>
          <div>{value as never}</div>
        </div>
      ))}
    </div>
  );
}

function Messages({ turn, tenant, draft }: { turn: Turn; tenant: string | null; draft: ReturnType<typeof useEvents>['draft'] | null }) {
  const response = turn.response;
  const input = (turn.input ?? []) as unknown as Item[];
  const output = (response?.output ?? []) as unknown as Item[];
  const views = useMemo(() => viewsOf([...input, ...output]), [turn]);
  if (!response) {
    return (
      <Card>
        <Empty title={t('turn.notStored')}>{t('turn.notStoredText')}</Empty>
      </Card>
    );
  }
  return (
    <>
      {response.previous_response_id && (
        <p>
          {t('turn.continues')} <a class="mono" href={href(`/turns/${response.previous_response_id}`, { tenant })}>{response.previous_response_id}</a>
        </p>
      )}
      {typeof response.instructions === 'string' && response.instructions && (
        <details class="card card-body">
          <summary>{t('turn.instructions')}</summary>
          <LongText text={response.instructions} />
        </details>
      )}
      {views.length ? <Conversation views={views} /> : <Card><Empty title={t('turn.noItems')} /></Card>}
      {draft && (draft.text || draft.reasoning || draft.calls.length > 0) && (
        <Conversation
          views={[
            ...(draft.reasoning ? [{ kind: 'reasoning' as const, text: draft.reasoning }] : []),
            ...draft.calls,
            ...(draft.text ? [{ kind: 'message' as const, role: 'assistant', text: draft.text, attachments: [] }] : []),
          ]}
        />
      )}
      <Losses turn={turn} />
    </>
  );
}

function Losses({ turn }: { turn: Turn }) {
  const losses = [...new Set(turn.calls.flatMap((one) => one.losses))];
  if (!losses.length) return null;
  return (
    <Notice tone="wait">
      <strong>{t('turn.lost')}</strong>
      <div class="row tight">
        {losses.map((loss) => (
          <Tag key={loss}>{loss}</Tag>
        ))}
      </div>
    </Notice>
  );
}

function Whole({ turn }: { turn: Turn }) {
  const [shown, setShown] = useState(false);
  const text = useMemo(() => (shown ? JSON.stringify({ ...turn, calls: undefined }, null, 2) : ''), [shown, turn]);
  if (!shown) {
    return (
      <Card>
        <button type="button" class="button" onClick={() => setShown(true)}>
          {t('turn.showJson')}
        </button>
      </Card>
    );
  }
  return (
    <div class="card">
      <RawText text={text} label={t('turn.json')} />
    </div>
  );
}
