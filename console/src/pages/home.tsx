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
import { percentile } from '../statistics';

const DAY = 86_400_000;
const HOUR = 3_600_000;
const RECENT = 200;

type Turns = Schemas['TurnRow'][];
type Usage = Schemas['UsageReport'];

export default function Home() {
  const overview = useLoad(async (signal) => {
    const from = new Date(Date.now() - DAY).toISOString();
    const [usage, turns, diagnosis] = await Promise.all([
      call('get', '/admin/usage', { query: { group_by: 'hour', from }, signal }),
      call('get', '/admin/turns', { query: { from, limit: RECENT }, signal }),
      call('get', '/admin/diagnose', { signal }).catch(() => null),
    ]);
    return { usage, turns: turns.data, more: turns.has_more, diagnosis };
  }, []);
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
          <Setup diagnosis={overview.data.diagnosis} turns={overview.data.turns.length} />
          <Numbers usage={overview.data.usage} turns={overview.data.turns} more={overview.data.more} />
          <Charts usage={overview.data.usage} />
          <div class="grid-2">
            <Running turns={overview.data.turns} />
            <Errors turns={overview.data.turns} />
          </div>
        </>
      )}
    </Page>
  );
}

function Setup({ diagnosis, turns }: { diagnosis: Schemas['Diagnosis'] | null; turns: number }) {
  if (!diagnosis) return null;
  const steps: { done: boolean; title: string; text: string; link: string }[] = [
    { done: diagnosis.model.known && diagnosis.model.name !== 'demo', title: t('setup.model'), text: diagnosis.model.known ? t('setup.modelIs', { model: diagnosis.model.name }) : t('setup.modelMissing', { model: diagnosis.model.name }), link: '/docs/configuration.md' },
    { done: diagnosis.feature_enabled, title: t('setup.assistant'), text: diagnosis.feature_enabled ? t('setup.assistantOn') : t('setup.assistantOff'), link: '/docs/assistant.md' },
    { done: turns > 0, title: t('setup.turn'), text: turns > 0 ? t('setup.turnDone') : t('setup.turnNone'), link: '/docs/clients.md' },
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

function Numbers({ usage, turns, more }: { usage: Usage; turns: Turns; more: boolean }) {
  const sum = (read: (row: Schemas['UsageOfGroup']) => number): number => usage.data.reduce((total, row) => total + read(row), 0);
  const ended = turns.map((turn) => turn.duration_ms).filter((ms): ms is number => ms !== null);
  const costs = usage.data.filter((row) => row.cost_usd !== null);
  const all = sum((row) => row.turns);
  const failed = sum((row) => row.failed_turns);
  const unpriced = sum((row) => row.unpriced_calls);
  const numbers: { name: string; value: string; note: string; bad?: boolean }[] = [
    { name: t('home.turns'), value: short(all), note: t('home.day') },
    { name: t('home.failed'), value: short(failed), note: all ? t('home.share', { percent: ((failed / all) * 100).toFixed(1) }) : t('home.day'), bad: failed > 0 },
    { name: t('home.tokens'), value: short(sum((row) => row.input_tokens + row.output_tokens)), note: t('home.inOut', { input: short(sum((row) => row.input_tokens)), output: short(sum((row) => row.output_tokens)) }) },
    { name: t('home.cost'), value: costs.length ? money(sum((row) => row.cost_usd ?? 0)) : '–', note: unpriced ? t('home.unpriced', { count: count(unpriced) }) : t('home.day') },
    { name: t('home.latency'), value: duration(percentile(ended, 50)), note: t('home.p95', { value: duration(percentile(ended, 95)), count: more ? `${RECENT}` : count(ended.length) }) },
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
export function hours(usage: Usage, now: number): { label: string; row: Schemas['UsageOfGroup'] | undefined }[] {
  const byHour = new Map(usage.data.map((row) => [Date.parse(String((row as Record<string, unknown>).hour)), row]));
  const last = Math.floor(now / HOUR) * HOUR;
  return Array.from({ length: 24 }, (_, index) => {
    const at = last - (23 - index) * HOUR;
    return { label: clock(at).slice(0, 5), row: byHour.get(at) };
  });
}

function Charts({ usage }: { usage: Usage }) {
  const points = useMemo(() => hours(usage, Date.now()), [usage]);
  return (
    <div class="grid-2">
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
    </div>
  );
}

function Running({ turns }: { turns: Turns }) {
  const now = useNow(1000);
  const running = turns.filter((turn) => turn.status === 'in_progress' || turn.status === 'queued');
  return (
    <Card title={t('home.running')} flush actions={<a href={href('/turns', { status: 'in_progress' })}>{t('home.all')}</a>}>
      {running.length ? (
        <ShortList turns={running.slice(0, 8)} time={(turn) => duration(now - turn.created_at_ms)} />
      ) : (
        <Empty title={t('home.nothingRuns')}>{mayUse.value ? t('home.nothingRunsText') : undefined}</Empty>
      )}
    </Card>
  );
}

function Errors({ turns }: { turns: Turns }) {
  const failed = turns.filter((turn) => turn.status === 'failed');
  return (
    <Card title={t('home.errors')} flush actions={<a href={href('/turns', { status: 'failed', range: '24h' })}>{t('home.all')}</a>}>
      {failed.length ? <ShortList turns={failed.slice(0, 8)} time={(turn) => <Time ms={turn.created_at_ms} relative />} /> : <Empty title={t('home.noErrors')} />}
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
