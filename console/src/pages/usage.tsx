// Tokens, cost and turns over time and by what caused them.

import { useMemo, useState } from 'preact/hooks';
import { address, call, type Schemas } from '../api/client';
import { count, day, money, short } from '../format';
import { useLoad } from '../hooks';
import { t, type Key } from '../i18n';
import { go, location } from '../router';
import { isOperator } from '../session';
import { BarChart } from '../ui/chart';
import { Icon } from '../ui/icons';
import { Card, Empty, Failure, Loading, Page, Select } from '../ui/parts';

const DAYS: Record<string, number> = { '1d': 1, '7d': 7, '30d': 30, '90d': 90 };
const GROUPS = ['model', 'user', 'key', 'profile', 'door', 'upstream', 'day', 'tenant'] as const;

type Row = Schemas['UsageOfGroup'] & Record<string, unknown>;

export default function Usage() {
  const query = location.value.query;
  const range = query.get('range') ?? '30d';
  const group = (GROUPS as readonly string[]).includes(query.get('by') ?? '') ? (query.get('by') as (typeof GROUPS)[number]) : 'model';
  const tenant = isOperator.value ? query.get('tenant') : null;
  const from = useMemo(() => daysAgo((DAYS[range] ?? 30) - 1).toISOString(), [range]);
  const usage = useLoad(
    async (signal) => {
      const [hours, groups] = await Promise.all([
        call('get', '/admin/usage', { query: { group_by: 'hour', from, tenant }, signal }),
        group === 'day' ? null : call('get', '/admin/usage', { query: { group_by: group, from, tenant }, signal }),
      ]);
      const days = daysOf(hours.data as Row[], from);
      return { days, groups: groups ? (groups.data as Row[]) : days.flatMap(({ label, row }) => (row ? [{ ...row, day: label }] : [])) };
    },
    [from, group, tenant],
  );
  // Only read when an operator wants to choose.
  const [choosing, setChoosing] = useState(false);
  const tenants = useLoad(async (signal) => (choosing ? (await call('get', '/admin/tenants', { query: { limit: 100 }, signal })).data : []), [choosing]);
  const set = (name: string, value: string | null): void => go('/usage', { ...Object.fromEntries(query), [name]: value }, true);
  const points = usage.data?.days ?? [];
  const csv = address('/admin/usage', { query: { group_by: `day,${group === 'day' ? 'model' : group}`, from, tenant, format: 'csv' } });
  return (
    <Page
      title={t('usage.title')}
      actions={
        <a class="button" href={csv} download="usage.csv">
          <Icon name="download" />
          {t('usage.csv')}
        </a>
      }
    >
      <div class="filters">
        <Select label={t('usage.range')} value={range} onChange={(value) => set('range', value)} options={Object.keys(DAYS).map((value) => ({ value, label: t(`usage.range.${value}` as Key) }))} />
        <Select
          label={t('usage.by')}
          value={group}
          onChange={(value) => set('by', value)}
          options={GROUPS.filter((name) => name !== 'tenant' || isOperator.value).map((value) => ({ value, label: t(`usage.by.${value}` as Key) }))}
        />
        {isOperator.value && (
          <div class="choice-of-tenant" onFocusCapture={() => setChoosing(true)} onPointerEnter={() => setChoosing(true)}>
          <Select
            label={t('turns.tenant')}
            value={tenant ?? ''}
            onChange={(value) => set('tenant', value || null)}
            options={[
              { value: '', label: t('turns.tenants') },
              { value: 'all', label: t('usage.allTenants') },
              ...[...(tenants.data ?? [])].map((one) => ({ value: String(one.id), label: `${one.id}: ${one.name}` })),
              ...(tenant && tenant !== 'all' && !tenants.data?.some((one) => String(one.id) === tenant) ? [{ value: tenant, label: tenant }] : []),
            ]}
          />
          </div>
        )}
      </div>
      {usage.error && <Failure error={usage.error} retry={usage.reload} />}
      {!usage.data && !usage.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {usage.data && (
        <>
          <div class="grid-3">
            <Card>
              <BarChart title={t('usage.turns')} series={[t('home.succeeded'), t('home.failed')]} format={short} points={points.map(({ label, row }) => ({ label, values: [(row?.turns ?? 0) - (row?.failed_turns ?? 0), row?.failed_turns ?? 0] }))} />
            </Card>
            <Card>
              <BarChart title={t('usage.tokens')} series={[t('home.input'), t('home.output')]} format={short} points={points.map(({ label, row }) => ({ label, values: [row?.input_tokens ?? 0, row?.output_tokens ?? 0] }))} />
            </Card>
            <Card>
              <BarChart title={t('usage.cost')} series={[t('turns.cost')]} format={money} points={points.map(({ label, row }) => ({ label, values: [row?.cost_usd ?? 0] }))} />
            </Card>
          </div>
          <p class="small muted">{t('usage.days', { zone: Intl.DateTimeFormat().resolvedOptions().timeZone })}</p>
          <GroupTable rows={usage.data.groups} group={group} />
        </>
      )}
    </Page>
  );
}

/** Midnight so many days ago, in the user's zone. */
function daysAgo(days: number): Date {
  const midnight = new Date();
  midnight.setHours(0, 0, 0, 0);
  midnight.setDate(midnight.getDate() - days);
  return midnight;
}

/** Sums of the hours of each day of the user's zone. */
export function daysOf(hours: Row[], from: string): { label: string; row: Row | undefined }[] {
  const sums = new Map<string, Row>();
  for (const hour of hours) {
    const name = new Date(Date.parse(String(hour.hour))).toDateString();
    const sum = sums.get(name);
    sums.set(name, sum ? added(sum, hour) : { ...hour });
  }
  const points = [];
  for (const at = new Date(from); at.getTime() <= Date.now(); at.setDate(at.getDate() + 1)) points.push({ label: day(at.getTime()), row: sums.get(at.toDateString()) });
  return points;
}

function added(one: Row, other: Row): Row {
  const sum: Row = { ...one };
  for (const [name, value] of Object.entries(other)) if (typeof value === 'number') sum[name] = Number(one[name] ?? 0) + value;
  return sum;
}

function GroupTable({ rows, group }: { rows: Row[]; group: string }) {
  const sorted = [...rows].sort((one, other) => other.input_tokens + other.output_tokens - one.input_tokens - one.output_tokens);
  const most = Math.max(1, ...sorted.map((row) => row.input_tokens + row.output_tokens));
  return (
    <Card title={t(`usage.by.${group}` as Key)} flush>
      {sorted.length ? (
        <div class="table-wrap" tabIndex={0} role="group" aria-label={t(`usage.by.${group}` as Key)}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">{t(`usage.by.${group}` as Key)}</th>
                <th scope="col" class="num">{t('usage.turns')}</th>
                <th scope="col" class="num">{t('home.failed')}</th>
                <th scope="col" class="num">{t('usage.input')}</th>
                <th scope="col" class="num">{t('usage.cached')}</th>
                <th scope="col" class="num">{t('usage.output')}</th>
                <th scope="col" class="num">{t('turns.cost')}</th>
                <th scope="col" class="share">{t('usage.share')}</th>
              </tr>
            </thead>
            <tbody>
              {sorted.map((row, index) => (
                <tr key={index}>
                  <td>{row[group] === null || row[group] === undefined ? '–' : String(row[group])}</td>
                  <td class="num">{count(row.turns)}</td>
                  <td class={`num${row.failed_turns ? ' bad' : ''}`}>{count(row.failed_turns)}</td>
                  <td class="num">{count(row.input_tokens)}</td>
                  <td class="num">{count(row.cached_input_tokens)}</td>
                  <td class="num">{count(row.output_tokens)}</td>
                  <td class="num">{money(row.cost_usd)}</td>
                  <td class="share">
                    <span class="share-bar" style={{ width: `${((row.input_tokens + row.output_tokens) / most) * 100}%` }} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <Empty title={t('usage.none')}>{t('usage.noneText')}</Empty>
      )}
    </Card>
  );
}
