// The calls of a turn with their exact text, and what the prompt was made of.

import { useState } from 'preact/hooks';
import type { Schemas } from '../api/client';
import { count, dateTime, duration } from '../format';
import { t } from '../i18n';
import { pretty } from '../items';
import { LongText } from '../ui/conversation';
import { Card, Check, Empty, Notice, Status, Tag } from '../ui/parts';
import { RawText } from '../ui/raw';

type Turn = Schemas['Turn'];
type ModelCall = Schemas['ModelCall'];

export function Calls({ turn }: { turn: Turn }) {
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
        <CallDetails key={call.number} call={call} />
      ))}
    </>
  );
}

function CallDetails({ call }: { call: ModelCall }) {
  const [open, setOpen] = useState(false);
  const [formatted, setFormatted] = useState(true);
  const show = (text: string): string => (formatted ? pretty(text) : text);
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
        {open && (
          <>
            <Check label={t('raw.format')} checked={formatted} onChange={setFormatted} />
            {call.request_incomplete && <Notice tone="wait">{t('turn.requestIncomplete')}</Notice>}
            <RawText text={show(call.request)} label={t('turn.request')} />
            {call.response_cut && <Notice tone="wait">{t('turn.responseCut')}</Notice>}
            <RawText text={show(call.response)} label={t('turn.answer')} />
          </>
        )}
      </div>
    </Card>
  );
}

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

/** What is known about the tokens of the prompt: cached and written to the cache, answer and reasoning. */
export function Context({ turn }: { turn: Turn }) {
  const row = turn.summary;
  if (!row) {
    return (
      <Card>
        <Empty title={t('turn.noTimes')} />
      </Card>
    );
  }
  const parts: { name: string; tokens: number; tone: string }[] = [
    { name: t('context.cached'), tokens: row.cached_input_tokens, tone: 'series-2' },
    { name: t('context.written'), tokens: row.cache_write_tokens, tone: 'series-3' },
    { name: t('context.fresh'), tokens: Math.max(0, row.input_tokens - row.cached_input_tokens - row.cache_write_tokens), tone: 'series-1' },
    { name: t('context.reasoning'), tokens: row.reasoning_tokens, tone: 'series-4' },
    { name: t('context.answer'), tokens: Math.max(0, row.output_tokens - row.reasoning_tokens), tone: 'series-5' },
  ].filter((part) => part.tokens > 0);
  const total = parts.reduce((sum, part) => sum + part.tokens, 0) || 1;
  return (
    <Card title={t('turn.context')}>
      <div class="stack">
        <div class="stacked" role="img" aria-label={parts.map((part) => `${part.name}: ${count(part.tokens)}`).join(', ')}>
          {parts.map((part) => (
            <span key={part.name} class={part.tone} style={{ width: `${(part.tokens / total) * 100}%` }} />
          ))}
        </div>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{t('context.part')}</th>
              <th scope="col" class="num">
                {t('turn.tokens')}
              </th>
            </tr>
          </thead>
          <tbody>
            {parts.map((part) => (
              <tr key={part.name}>
                <td>
                  <span class={`swatch ${part.tone}`} /> {part.name}
                </td>
                <td class="num">{count(part.tokens)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <p class="small muted">{t('context.note')}</p>
      </div>
    </Card>
  );
}
