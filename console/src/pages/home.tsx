// The first page: what is set up, what runs, and how the last day went.

import { useMemo } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { clock, count, duration, money, short } from '../format';
import { useLoad, useNow } from '../hooks';
import { t } from '../i18n';
import { go, href } from '../router';
import { mayUse } from '../session';
import { BarChart } from '../ui/chart';
import { Icon } from '../ui/icons';
import { Card, Empty, Failure, Loading, Page, Status, Time } from '../ui/parts';

const HOUR = 3_600_000;

type Overview = Schemas['Overview'];
type Turns = Schemas['TurnRow'][];
type Hours = Schemas['UsageOfGroup'][];

export default function Home() {
  const overview = useLoad((signal) => call('get', '/admin/overview', { signal }), []);
  return (
    <Page
      title={t('home.title')}
      actions={
        <button type="button" class="button" onClick={overview.reload}>
          <Icon name="refresh" />
          {t('action.refresh')}
        </button>
      }
    >
      {overview.error && <Failure error={overview.error} retry={overview.reload} />}
      {!overview.data && !overview.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {overview.data && (
        <>
          <Setup setup={overview.data.setup} />
          <Numbers overview={overview.data} />
          <Charts hours={overview.data.hours} />
          <div class="grid-2">
            <Running turns={overview.data.running} />
            <Errors overview={overview.data} />
          </div>
        </>
      )}
    </Page>
  );
}

function Setup({ setup }: { setup: Overview['setup'] }) {
  const usable = setup.model_known === true && !setup.demo_model;
  const model = setup.demo_model ? 'setup.modelDemo' : setup.model_known === false ? 'setup.modelMissing' : setup.model_known === null ? 'setup.modelUnknown' : 'setup.modelIs';
  const steps: { done: boolean; title: string; text: string; link: string }[] = [
    { done: usable, title: t('setup.model'), text: t(model, { model: setup.model }), link: '/docs/configuration.md' },
    { done: setup.has_key, title: t('setup.key'), text: setup.has_key ? t('setup.keyDone') : t('setup.keyNone'), link: href('/keys') },
    { done: setup.has_profile, title: t('setup.profile'), text: setup.has_profile ? t('setup.profileDone') : t('setup.profileNone'), link: href('/profiles') },
    { done: setup.assistant_enabled, title: t('setup.assistant'), text: setup.assistant_enabled ? t('setup.assistantOn') : t('setup.assistantOff'), link: '/docs/assistant.md' },
    { done: setup.has_turn, title: t('setup.turn'), text: setup.has_turn ? t('setup.turnDone') : t('setup.turnNone'), link: mayUse.value ? href('/playground') : '/docs/clients.md' },
  ];
  if (steps.every((step) => step.done)) return null;
  return (
    <Card title={t('setup.title')}>
      <ul class="steps">
        {steps.map((step) => (
          <li key={step.title} class={step.done ? 'done' : ''}>
            <span class="step-mark" aria-label={step.done ? t('setup.done') : t('setup.open')} role="img">
              {step.done && <Icon name="check" />}
            </span>
            <div class="grow">
              <strong>{step.title}</strong>
              <p class="muted">{step.text}</p>
            </div>
            {!step.done && (
              <a class="button small" href={step.link}>
                {t('setup.how')}
              </a>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Numbers({ overview: { total, latency } }: { overview: Overview }) {
  const tokens = total.input_tokens + total.output_tokens;
  const measured = (percentiles: Overview['latency']['duration_ms']): string =>
    percentiles ? t(latency.partial ? 'home.p95Newest' : 'home.p95', { value: duration(percentiles.p95), count: count(latency.turns) }) : t('home.day');
  const numbers: { name: string; value: string; note: string; bad?: boolean }[] = [
    { name: t('home.turns'), value: short(total.turns), note: t('home.day') },
    { name: t('home.failed'), value: short(total.failed_turns), note: total.turns ? t('home.share', { percent: ((total.failed_turns / total.turns) * 100).toFixed(1) }) : t('home.day'), bad: total.failed_turns > 0 },
    { name: t('home.tokens'), value: short(tokens), note: t('home.inOut', { input: short(total.input_tokens), output: short(total.output_tokens) }) },
    { name: t('home.cost'), value: total.turns ? money(total.cost_usd) : '–', note: total.unpriced_calls ? t('home.unpriced', { count: count(total.unpriced_calls) }) : t('home.day') },
    { name: t('home.latency'), value: duration(latency.duration_ms?.p50), note: measured(latency.duration_ms) },
    { name: t('home.firstToken'), value: duration(latency.first_token_ms?.p50), note: measured(latency.first_token_ms) },
  ];
  return (
    <div class="numbers">
      {numbers.map((number) => (
        <div class="card card-body" key={number.name}>
          <div class="small muted">{number.name}</div>
          <div class={`number${number.bad ? ' bad' : ''}`}>{number.value}</div>
          <div class="small muted">{number.note}</div>
        </div>
      ))}
    </div>
  );
}

/** One point for each of the last 24 hours, also for those without turns. */
export function hours(usage: Hours, now: number): { label: string; row: Schemas['UsageOfGroup'] | undefined }[] {
  const byHour = new Map(usage.map((row) => [Date.parse(String((row as Record<string, unknown>).hour)), row]));
  const last = Math.floor(now / HOUR) * HOUR;
  return Array.from({ length: 24 }, (_, index) => {
    const at = last - (23 - index) * HOUR;
    return { label: clock(at).slice(0, 5), row: byHour.get(at) };
  });
}

function Charts({ hours: usage }: { hours: Hours }) {
  const points = useMemo(() => hours(usage, Date.now()), [usage]);
  return (
    <div class="grid-3">
      <Card>
        <BarChart
          title={t('home.turnsByHour')}
          series={[t('home.succeeded'), t('home.failed')]}
          format={(value) => short(value)}
          points={points.map(({ label, row }) => ({ label, values: [(row?.turns ?? 0) - (row?.failed_turns ?? 0), row?.failed_turns ?? 0] }))}
        />
      </Card>
      <Card>
        <BarChart
          title={t('home.tokensByHour')}
          series={[t('home.input'), t('home.output')]}
          format={(value) => short(value)}
          points={points.map(({ label, row }) => ({ label, values: [row?.input_tokens ?? 0, row?.output_tokens ?? 0] }))}
        />
      </Card>
      <Card>
        <BarChart title={t('home.costByHour')} series={[t('home.cost')]} format={money} points={points.map(({ label, row }) => ({ label, values: [row?.cost_usd ?? 0] }))} />
      </Card>
    </div>
  );
}

function Running({ turns }: { turns: Turns }) {
  const now = useNow(1000);
  return (
    <Card title={t('home.running')} flush actions={<a href={href('/turns', { status: 'in_progress' })}>{t('home.all')}</a>}>
      {turns.length ? (
        <ShortList turns={turns} time={(turn) => duration(now - turn.created_at_ms)} />
      ) : (
        <Empty title={t('home.nothingRuns')}>{mayUse.value ? t('home.nothingRunsText') : undefined}</Empty>
      )}
    </Card>
  );
}

function Errors({ overview: { errors, failed } }: { overview: Overview }) {
  return (
    <Card title={t('home.errors')} flush actions={<a href={href('/turns', { status: 'failed', range: '24h' })}>{t('home.all')}</a>}>
      {errors.length > 0 && (
        <ul class="row tight card-body" aria-label={t('home.errors')}>
          {errors.slice(0, 8).map((error) => (
            <li key={error.code}>
              <a class="badge plain wrong" href={href('/turns', { status: 'failed', range: '24h', error: error.code })}>
                {error.code || t('home.unknownError')}: {count(error.turns)}
              </a>
            </li>
          ))}
        </ul>
      )}
      {failed.length ? <ShortList turns={failed} time={(turn) => <Time ms={turn.created_at_ms} relative />} /> : <Empty title={t('home.noErrors')} />}
    </Card>
  );
}

function ShortList(props: { turns: Turns; time: (turn: Turns[number]) => preact.ComponentChildren }) {
  return (
    <div class="table-wrap">
      <table class="table linked">
        <thead class="hidden-text">
          <tr>
            <th scope="col">{t('turns.model')}</th>
            <th scope="col">{t('turns.status')}</th>
            <th scope="col">{t('turns.time')}</th>
          </tr>
        </thead>
        <tbody>
          {props.turns.map((turn) => (
            <tr key={turn.id} onClick={() => go(`/turns/${turn.id}`)}>
              <td>
                <a href={href(`/turns/${turn.id}`)}>{turn.model ?? turn.requested_model}</a>
                <div class="small muted">{turn.error ?? turn.user}</div>
              </td>
              <td>
                <Status value={turn.status} />
              </td>
              <td class="num small">{props.time(turn)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
