// One turn: what was said, when what happened, and the exact text of every call.

import { useMemo, useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { count, dateTime, duration, money } from '../format';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { viewsOf, type Item } from '../items';
import { go, href, location } from '../router';
import { mayUse } from '../session';
import { barsOf } from '../waterfall';
import { Conversation } from '../ui/conversation';
import { Card, Empty, Failure, Id, Loading, Notice, Page, Status, Tabs, TabPanel, Tag } from '../ui/parts';
import { RawText } from '../ui/raw';
import { Waterfall } from '../ui/waterfall';
import { Calls, Context, ToolCalls } from './turn-details';

type Turn = Schemas['Turn'];
type TabName = 'messages' | 'time' | 'calls' | 'tools' | 'context' | 'json';

export default function TurnPage({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const tenant = location.value.query.get('tenant');
  const turn = useLoad((signal) => call('get', '/admin/turns/{response_id}', { path: { response_id: id }, query: { tenant_id: tenant }, signal }), [id, tenant]);
  const title = t('turn.title');
  if (turn.error) {
    return (
      <Page title={title}>
        <Failure error={turn.error} retry={turn.reload} />
      </Page>
    );
  }
  if (!turn.data) {
    return (
      <Page title={title}>
        <Card>
          <Loading />
        </Card>
      </Page>
    );
  }
  return <Details turn={turn.data} reload={turn.reload} />;
}

function Details({ turn, reload }: { turn: Turn; reload: () => void }) {
  const query = location.value.query;
  const tab = (query.get('tab') as TabName | null) ?? 'messages';
  const summary = turn.summary;
  const bars = useMemo(() => barsOf(turn), [turn]);
  const select = (next: TabName): void => go(location.value.path, { ...Object.fromEntries(query), tab: next === 'messages' ? null : next }, true);
  const tabs: { id: TabName; label: string; count?: number }[] = [
    { id: 'messages', label: t('turn.messages') },
    { id: 'time', label: t('turn.time') },
    { id: 'calls', label: t('turn.calls'), count: turn.calls.length },
    { id: 'tools', label: t('turn.tools'), count: turn.tool_calls.length },
    { id: 'context', label: t('turn.context') },
    { id: 'json', label: t('turn.json') },
  ];
  return (
    <Page
      title={t('turn.title')}
      about={<Id value={turn.id} />}
      actions={
        <>
          <button type="button" class="button" onClick={reload}>
            {t('action.refresh')}
          </button>
          <a class="button" href={href('/compare', { a: turn.id, b: turn.response?.previous_response_id })}>
            {t('turn.compare')}
          </a>
          {mayUse.value && turn.response && (
            <a class="button primary" href={href('/playground', { from: turn.id })}>
              {t('turn.open')}
            </a>
          )}
        </>
      }
    >
      {summary && <Summary row={summary} />}
      {turn.response?.error && (
        <Notice tone="wrong">
          <strong>{String(turn.response.error.code ?? 'error')}</strong>
          <p class="text-block">{String(turn.response.error.message ?? '')}</p>
        </Notice>
      )}
      <Tabs tabs={tabs} selected={tab} onSelect={select} label={t('turn.title')} />
      <TabPanel tab={tab}>
        {tab === 'messages' && <Messages turn={turn} />}
        {tab === 'time' && (
          <Card title={t('turn.time')}>
            {bars.length ? <Waterfall bars={bars} /> : <Empty title={t('turn.noTimes')} />}
          </Card>
        )}
        {tab === 'calls' && <Calls turn={turn} />}
        {tab === 'tools' && <ToolCalls turn={turn} />}
        {tab === 'context' && <Context turn={turn} />}
        {tab === 'json' && <Whole turn={turn} />}
      </TabPanel>
    </Page>
  );
}

function Summary({ row }: { row: Schemas['TurnRow'] }) {
  const facts: [string, unknown][] = [
    [t('turns.status'), <Status value={row.status} />],
    [t('turns.time'), dateTime(row.created_at_ms)],
    [t('turns.model'), [row.upstream, row.model].filter(Boolean).join('/') || row.requested_model],
    [t('turns.duration'), duration(row.duration_ms)],
    [t('turns.first'), duration(row.first_token_ms)],
    [t('turn.tokens'), `${count(row.input_tokens)} → ${count(row.output_tokens)}`],
    [t('turns.cost'), money(row.cost_usd)],
    [t('turns.user'), row.user],
    [t('turns.door'), row.door],
  ];
  if (row.profile) facts.push([t('turns.profile'), row.profile]);
  if (row.session_id) facts.push([t('turns.session'), row.door === 'assistant' ? <a href={href(`/sessions/${row.session_id}`)}>{row.session_id}</a> : row.session_id]);
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

function Messages({ turn }: { turn: Turn }) {
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
          {t('turn.continues')} <a class="mono" href={href(`/turns/${response.previous_response_id}`)}>{response.previous_response_id}</a>
        </p>
      )}
      {typeof response.instructions === 'string' && response.instructions && (
        <details class="card card-body">
          <summary>{t('turn.instructions')}</summary>
          <div class="text-block">{response.instructions}</div>
        </details>
      )}
      {views.length ? <Conversation views={views} /> : <Card><Empty title={t('turn.noItems')} /></Card>}
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
  return <RawCard text={text} />;
}

function RawCard({ text }: { text: string }) {
  return (
    <div class="card">
      <RawText text={text} label={t('turn.json')} />
    </div>
  );
}
