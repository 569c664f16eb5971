// The model calls of a turn, each loaded with its exact text when it is opened, and its tool calls.

import { useMemo, useState } from 'preact/hooks';
import { call as callApi, type Schemas } from '../api/client';
import { bytes, count, dateTime, duration, money } from '../format';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { pretty } from '../items';
import { indented } from '../text-search';
import { LongText } from '../ui/conversation';
import { Card, Check, Empty, Failure, Loading, Notice, Status, Tag } from '../ui/parts';
import { RawText } from '../ui/raw';

type Turn = Schemas['Turn'];
type ModelCall = Schemas['ModelCall'];

export function Calls({ turn, tenant }: { turn: Turn; tenant: string | null }) {
  if (!turn.calls.length) {
    return (
      <Card>
        <Empty title={t('turn.noCalls')}>{t('turn.noCallsText')}</Empty>
      </Card>
    );
  }
  return (
    <>
      {turn.calls.map((call) => (
        <CallDetails key={call.number} id={turn.id} tenant={tenant} call={call} />
      ))}
    </>
  );
}

function CallDetails({ id, tenant, call }: { id: string; tenant: string | null; call: ModelCall }) {
  const [open, setOpen] = useState(false);
  return (
    <Card
      flush
      title={
        <span class="row">
          {t('turn.call', { number: call.number + 1 })}
          <code>
            {call.upstream}/{call.model}
          </code>
        </span>
      }
      actions={
        <>
          {call.error ? <Status value="failed" /> : null}
          {call.retries > 0 && <Tag tone="wait">{t('turn.retries', { count: call.retries })}</Tag>}
          <span class="small muted">
            {duration(call.duration_ms)}
            {call.first_token_ms !== null && ` · ${t('turns.first')} ${duration(call.first_token_ms)}`}
          </span>
          <button type="button" class="button small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? t('turn.hideRaw') : t('turn.showRaw')}
          </button>
        </>
      }
    >
      <div class="card-body stack tight">
        <dl class="facts">
          <dt>{t('turn.asked')}</dt>
          <dd>{dateTime(call.asked_at_ms)}</dd>
          {call.usage && (
            <>
              <dt>{t('turn.tokens')}</dt>
              <dd>{tokens(call.usage as Record<string, unknown>)}</dd>
            </>
          )}
          <dt>{t('turns.cost')}</dt>
          <dd>{money(call.cost_usd)}</dd>
          <dt>{t('turn.sizes')}</dt>
          <dd>
            {bytes(call.request_bytes)} → {bytes(call.response_bytes)}
          </dd>
          {call.error && (
            <>
              <dt>{t('call.error')}</dt>
              <dd class="bad text-block">{call.error}</dd>
            </>
          )}
          {call.losses.length > 0 && (
            <>
              <dt>{t('turn.lost')}</dt>
              <dd class="row tight">
                {call.losses.map((loss) => (
                  <Tag key={loss}>{loss}</Tag>
                ))}
              </dd>
            </>
          )}
        </dl>
        {open && <Bodies id={id} tenant={tenant} number={call.number} />}
      </div>
    </Card>
  );
}

/** The exact request and answer. Indentation is added to a copy on request; the texts are shown as they were sent. */
function Bodies({ id, tenant, number }: { id: string; tenant: string | null; number: number }) {
  const [formatted, setFormatted] = useState(false);
  const loaded = useLoad(
    (signal) => callApi('get', '/admin/turns/{response_id}/calls/{number}', { path: { response_id: id, number }, query: { tenant_id: tenant }, signal }),
    [id, tenant, number],
  );
  const call = loaded.data;
  const request = useMemo(() => shown(call?.request, formatted), [call, formatted]);
  const response = useMemo(() => shown(call?.response, formatted), [call, formatted]);
  if (loaded.error) return <Failure error={loaded.error} retry={loaded.reload} />;
  if (!call) return <Loading />;
  return (
    <>
      <Check label={t('raw.format')} checked={formatted} onChange={setFormatted} />
      {call.request_incomplete && <Notice tone="wait">{t('turn.requestIncomplete')}</Notice>}
      <RawText text={request} label={t('turn.request')} />
      {call.response_cut && <Notice tone="wait">{t('turn.responseCut')}</Notice>}
      <RawText text={response} label={t('turn.answer')} />
    </>
  );
}

const shown = (text: string | null | undefined, formatted: boolean): string => (formatted ? indented(text ?? '') : (text ?? ''));

function tokens(usage: Record<string, unknown>): string {
  const details = usage.input_tokens_details as Record<string, unknown> | undefined;
  const cached = Number(details?.cached_tokens ?? 0);
  const parts = [`${count(Number(usage.input_tokens ?? 0))} → ${count(Number(usage.output_tokens ?? 0))}`];
  if (cached) parts.push(t('turn.cached', { count: count(cached) }));
  return parts.join(', ');
}

export function ToolCalls({ turn }: { turn: Turn }) {
  if (!turn.tool_calls.length) {
    return (
      <Card>
        <Empty title={t('turn.noTools')}>{t('turn.noToolsText')}</Empty>
      </Card>
    );
  }
  return (
    <>
      {turn.tool_calls.map((run) => (
        <Card
          key={run.number}
          title={<code>{run.name}</code>}
          actions={
            <>
              <Tag>{run.label}</Tag>
              {run.error ? <Status value="failed" /> : run.unknown ? <Status value="in_progress" /> : <Status value="completed" />}
              <span class="small muted">{duration(run.duration_ms)}</span>
            </>
          }
        >
          <div class="stack tight">
            <span class="small muted">{t('call.arguments')}</span>
            <LongText text={pretty(run.arguments)} code />
            {run.error && <p class="bad text-block">{[run.error, run.detail].filter(Boolean).join(': ')}</p>}
            <span class="small muted">{t('call.output')}</span>
            <LongText text={run.output === null || run.output === undefined ? '–' : typeof run.output === 'string' ? run.output : JSON.stringify(run.output, null, 2)} code />
          </div>
        </Card>
      ))}
    </>
  );
}
