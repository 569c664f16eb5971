// What the prompt of a model call was made of, what was cached, and where it differs from the prompt before.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { count } from '../format';
import { useLoad } from '../hooks';
import { t, type Key } from '../i18n';
import { href } from '../router';
import { Card, Empty, Failure, Loading, Notice, Select } from '../ui/parts';

type Turn = Schemas['Turn'];
type TurnContext = Schemas['TurnContext'];
type Part = TurnContext['parts'][number];

interface Bar {
  name: string;
  tokens: number;
  tone: string;
}

const TONES = ['series-1', 'series-2', 'series-3', 'series-4', 'series-5', 'series-6', 'series-7', 'series-8'];

export function Context({ turn, tenant }: { turn: Turn; tenant: string | null }) {
  const [number, setNumber] = useState(0);
  const calls = turn.calls.length;
  const context = useLoad(
    async (signal) => (calls ? call('get', '/admin/turns/{response_id}/context', { path: { response_id: turn.id }, query: { tenant_id: tenant, call: number }, signal }) : null),
    [turn.id, tenant, number, calls > 0],
  );
  if (!calls) {
    return (
      <Card>
        <Empty title={t('turn.noCalls')}>{t('turn.noCallsText')}</Empty>
      </Card>
    );
  }
  return (
    <>
      {calls > 1 && (
        <div class="filters">
          <Select
            label={t('context.call')}
            value={String(number)}
            options={turn.calls.map((one) => ({ value: String(one.number), label: `${t('turn.call', { number: one.number + 1 })}: ${one.upstream}/${one.model}` }))}
            onChange={(value) => setNumber(Number(value))}
          />
        </div>
      )}
      {context.error && <Failure error={context.error} retry={context.reload} />}
      {!context.data && !context.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {context.data && <Prompt context={context.data} />}
      {context.data && <Cache context={context.data} tenant={tenant} />}
    </>
  );
}

const nameOf = (part: { kind: Part['kind']; tool: string | null }): string => [t(`context.kind.${part.kind}` as Key), part.tool].filter(Boolean).join(': ');

function Prompt({ context }: { context: TurnContext }) {
  // One colour for each kind; the table has the tools one by one.
  const kinds = [...new Set(context.parts.map((part) => part.kind))];
  const tone = (kind: Part['kind']): string => TONES[kinds.indexOf(kind) % TONES.length] ?? '';
  if (!context.parts.length) {
    return (
      <Card>
        <Empty title={t('context.none')}>{t('context.noneText')}</Empty>
      </Card>
    );
  }
  const bars = kinds.map((kind) => ({ name: t(`context.kind.${kind}` as Key), tone: tone(kind), tokens: context.parts.filter((part) => part.kind === kind).reduce((sum, part) => sum + part.tokens, 0) }));
  return (
    <Card title={t('context.prompt', { count: count(context.estimated_tokens) })}>
      <div class="stack">
        {context.request_incomplete && <Notice tone="wait">{t('turn.requestIncomplete')}</Notice>}
        <Stacked bars={bars} />
        <div class="table-wrap" tabIndex={0} role="group" aria-label={t('turn.context')}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">{t('context.part')}</th>
                <th scope="col" class="num">
                  {t('context.count')}
                </th>
                <th scope="col" class="num">
                  {t('turn.tokens')}
                </th>
                <th scope="col" class="num">
                  {t('context.share')}
                </th>
              </tr>
            </thead>
            <tbody>
              {context.parts.map((part) => (
                <tr key={`${part.kind} ${part.tool}`}>
                  <td>
                    <span class={`swatch ${tone(part.kind)}`} /> {nameOf(part)}
                  </td>
                  <td class="num">{count(part.count)}</td>
                  <td class="num">{count(part.tokens)}</td>
                  <td class="num">{((part.tokens / Math.max(1, context.estimated_tokens)) * 100).toFixed(1)} %</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        <p class="small muted">{context.reported_tokens === null ? t('context.estimate') : t('context.reported', { count: count(context.reported_tokens) })}</p>
      </div>
    </Card>
  );
}

function Cache({ context, tenant }: { context: TurnContext; tenant: string | null }) {
  const { reported_tokens: reported, cached_tokens: cached, cache_write_tokens: written, previous } = context;
  const bars: Bar[] = [
    { name: t('context.cached'), tokens: cached ?? 0, tone: 'series-2' },
    { name: t('context.written'), tokens: written ?? 0, tone: 'series-3' },
    { name: t('context.fresh'), tokens: Math.max(0, (reported ?? 0) - (cached ?? 0) - (written ?? 0)), tone: 'series-5' },
  ].filter((bar) => bar.tokens > 0);
  return (
    <Card title={t('context.cache')}>
      <div class="stack">
        {bars.length > 0 && (
          <>
            <Stacked bars={bars} />
            <ul class="legend">
              {bars.map((bar) => (
                <li key={bar.name}>
                  <span class={`swatch ${bar.tone}`} /> {bar.name}: {count(bar.tokens)}
                </li>
              ))}
            </ul>
          </>
        )}
        {reported === null && <p class="muted">{t('context.noReport')}</p>}
        {!previous && <p>{t('context.noPrevious')}</p>}
        {previous && (
          <>
            <p>
              {t('context.comparedWith')} <a class="mono" href={href(`/turns/${previous.response_id}`, { tenant, tab: 'calls' })}>{previous.response_id}</a>, {t('turn.call', { number: previous.call + 1 })}.
            </p>
            <p>{previous.difference ? t('context.differs', { count: count(previous.same_tokens), part: nameOf(previous.difference) }) : t('context.extends', { count: count(previous.same_tokens) })}</p>
            {previous.difference && (
              <dl class="facts">
                <dt>{t('context.earlier')}</dt>
                <dd>
                  <code class="text-block">{previous.difference.earlier ?? t('context.end')}</code>
                </dd>
                <dt>{t('context.now')}</dt>
                <dd>
                  <code class="text-block">{previous.difference.now ?? t('context.end')}</code>
                </dd>
              </dl>
            )}
          </>
        )}
        <p class="small muted">{t('context.note')}</p>
      </div>
    </Card>
  );
}

function Stacked({ bars }: { bars: Bar[] }) {
  const total = bars.reduce((sum, bar) => sum + bar.tokens, 0) || 1;
  return (
    <div class="stacked" role="img" aria-label={bars.map((bar) => `${bar.name}: ${count(bar.tokens)}`).join(', ')}>
      {bars.map((bar) => (
        <span key={bar.name} class={bar.tone} style={{ width: `${(bar.tokens / total) * 100}%` }} title={`${bar.name}: ${count(bar.tokens)}`} />
      ))}
    </div>
  );
}
