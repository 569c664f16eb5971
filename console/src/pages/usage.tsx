// Tokens, cost and turns over time and by what caused them.

import { useMemo } from 'preact/hooks';
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
const DAY = 86_400_000;

type Row = Schemas['UsageOfGroup'] & Record<string, unknown>;

export default function Usage() {
  const query = location.value.query;
  const range = query.get('range') ?? '30d';
  const group = (GROUPS as readonly string[]).includes(query.get('by') ?? '') ? (query.get('by') as (typeof GROUPS)[number]) : 'model';
  const tenant = isOperator.value ? query.get('tenant') : null;
  const from = useMemo(() => new Date(Math.floor(Date.now() / DAY) * DAY - ((DAYS[range] ?? 30) - 1) * DAY).toISOString(), [range]);
  const usage = useLoad(
    async (signal) => {
      const [days, groups] = await Promise.all([
        call('get', '/admin/usage', { query: { group_by: 'day', from, tenant }, signal }),
        call('get', '/admin/usage', { query: { group_by: group, from, tenant }, signal }),
      ]);
      return { days: days.data as Row[], groups: groups.data as Row[] };
    },
    [from, group, tenant],
  );
  const set = (name: string, value: string | null): void => go('/usage', { ...Object.fromEntries(query), [name]: value }, true);
  const points = useMemo(() => daysOf(usage.data?.days ?? [], from), [usage.data, from]);
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
          <Select
            label={t('turns.tenant')}
            value={tenant ?? ''}
            onChange={(value) => set('tenant', value || null)}
            options={[
              { value: '', label: t('turns.tenants') },
              { value: 'all', label: t('usage.allTenants') },
            ]}
          />
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
          <div class="grid-2">
            <Card>
              <BarChart title={t('usage.turns')} series={[t('home.succeeded'), t('home.failed')]} format={short} points={points.map(({ label, row }) => ({ label, values: [(row?.turns ?? 0) - (row?.failed_turns ?? 0), row?.failed_turns ?? 0] }))} />
            </Card>
            <Card>
              <BarChart title={t('usage.tokens')} series={[t('home.input'), t('home.output')]} format={short} points={points.map(({ label, row }) => ({ label, values: [row?.input_tokens ?? 0, row?.output_tokens ?? 0] }))} />
            </Card>
          </div>
          <GroupTable rows={usage.data.groups} group={group} />
        </>
      )}
    </Page>
  );
}

function daysOf(rows: Row[], from: string): { label: string; row: Row | undefined }[] {
  const byDay = new Map(rows.map((row) => [String(row.day).slice(0, 10), row]));
  const points = [];
  for (let at = Date.parse(from); at <= Date.now(); at += DAY) points.push({ label: day(at), row: byDay.get(new Date(at).toISOString().slice(0, 10)) });
  return points;
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
