// What tenants, keys, users and models may use, and what is used of it.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { count, dateTime, money } from '../format';
import { t, type Key } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { isOperator, mayChange } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Meter } from '../ui/meter';
import { Page, Tag } from '../ui/parts';
import { LimitForm } from './limit-form';

type Limit = Schemas['Limit'];

export default function Limits() {
  const tenant = location.value.query.get('tenant');
  const list = usePaged((after, signal) => call('get', '/admin/limits', { query: { after, limit: 50, tenant }, signal }), [tenant]);
  const [editing, setEditing] = useState<Limit | 'new' | null>(null);
  const [deleting, setDeleting] = useState<Limit | null>(null);
  const create = (
    <button type="button" class="button" onClick={() => setEditing('new')}>
      <Icon name="plus" />
      {t('limits.new')}
    </button>
  );
  return (
    <Page title={t('limits.title')} about={t('limits.about')} actions={mayChange.value && create}>
      <ListCard<Limit>
        list={list}
        rowKey={(row) => `${row.kind}/${row.tenant_id}/${row.id}`}
        empty={t('limits.none')}
        emptyText={t('limits.noneText')}
        emptyAction={mayChange.value && create}
        columns={[
          { label: t('limits.of'), cell: (row) => <Subject limit={row} /> },
          { label: t('limits.requests'), cell: (row) => <Window limit={row.requests_per_minute} usage={row.usage.requests_per_minute} /> },
          { label: t('limits.tokens'), cell: (row) => <Window limit={row.tokens_per_minute} usage={row.usage.tokens_per_minute} /> },
          { label: t('limits.inFlight'), cell: (row) => (row.in_flight === null ? <Unlimited /> : <Meter used={row.usage.in_flight ?? 0} limit={row.in_flight} text={`${count(row.usage.in_flight ?? 0)} / ${count(row.in_flight)}`} />) },
          { label: t('limits.budget'), cell: (row) => <Budget limit={row} /> },
          { label: t('limits.only'), cell: (row) => <Only limit={row} /> },
          {
            label: t('keys.actions'),
            cell: (row) =>
              mayEdit(row) && (
                <span class="row tight">
                  <button type="button" class="button small" onClick={() => setEditing(row)}>
                    {t('action.change')}
                  </button>
                  <button type="button" class="button small danger" onClick={() => setDeleting(row)}>
                    {t('action.delete')}
                  </button>
                </span>
              ),
          },
        ]}
      />
      {editing && (
        <LimitForm
          limit={editing === 'new' ? null : editing}
          tenant={tenant}
          onClose={() => setEditing(null)}
          onSaved={() => {
            setEditing(null);
            toast(t('state.saved'));
            list.reload();
          }}
        />
      )}
      {deleting && (
        <Confirm
          title={t('limits.deleteTitle', { kind: kindText(deleting.kind), id: deleting.id })}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await send('delete', `/admin/limits/${deleting.kind}/{id}`, { path: { id: deleting.id }, query: { tenant: tenantOf(deleting) } });
            toast(t('state.deleted'));
            list.reload();
          }}
        >
          <p>{t('limits.deleteText')}</p>
        </Confirm>
      )}
    </Page>
  );
}

/** The query parameter that names the tenant of a key's or a user's limit. */
function tenantOf(limit: Limit): number | null {
  return limit.kind === 'keys' || limit.kind === 'users' ? limit.tenant_id : null;
}

/** Limits of tenants and models are the operator's. */
function mayEdit(limit: Limit): boolean {
  return limit.kind === 'tenants' || limit.kind === 'models' ? isOperator.value : mayChange.value;
}

function kindText(kind: Limit['kind']): string {
  return t(`limits.kind.${kind}` as Key);
}

function Subject({ limit }: { limit: Limit }) {
  const link =
    limit.kind === 'tenants' ? href(`/tenants/${limit.id}`)
    : limit.kind === 'keys' ? href('/turns', { key: limit.id })
    : limit.kind === 'users' ? href('/turns', { user: limit.id })
    : href('/turns', { model: limit.id });
  return (
    <>
      <div class="small muted">{kindText(limit.kind)}</div>
      <a href={link}>{limit.id}</a>
      {limit.tenant_id !== null && limit.kind !== 'tenants' && isOperator.value && (
        <div class="small">
          <button type="button" class="link" onClick={() => go('/limits', { tenant: String(limit.tenant_id) })}>
            {t('tenants.tenant', { id: limit.tenant_id })}
          </button>
        </div>
      )}
    </>
  );
}

function Unlimited() {
  return <span class="muted">{t('limits.unlimited')}</span>;
}

function Window({ limit, usage }: { limit: number | null; usage: Limit['usage']['requests_per_minute'] }) {
  if (limit === null || !usage) return <Unlimited />;
  return <Meter used={usage.used} reserved={usage.reserved} limit={limit} text={`${count(usage.used + usage.reserved)} / ${count(limit)}`} />;
}

function Budget({ limit }: { limit: Limit }) {
  const { budget } = limit;
  const usage = limit.usage.budget;
  if (!budget || !usage) return <Unlimited />;
  const amount = (value: number): string => (budget.unit === 'usd' ? money(value) : count(value));
  return (
    <Meter
      used={usage.used}
      reserved={usage.reserved}
      limit={budget.amount}
      text={t('limits.budgetText', { used: amount(usage.used), amount: amount(budget.amount), unit: budget.unit === 'tokens' ? t('limits.unit.tokens') : '', period: t(`limits.period.${budget.period}` as Key) })}
      note={[usage.reserved ? t('limits.reserved', { amount: amount(usage.reserved) }) : '', usage.resets_at ? t('limits.resets', { time: dateTime(usage.resets_at * 1000) }) : ''].filter(Boolean).join(' · ')}
    />
  );
}

function Only({ limit }: { limit: Limit }) {
  if (!limit.models && !limit.tools) return <span class="muted">{t('limits.all')}</span>;
  return (
    <span class="row tight wrap">
      {limit.models?.map((name) => <Tag key={`m${name}`}>{name}</Tag>)}
      {limit.models?.length === 0 && <Tag tone="wrong">{t('limits.noModels')}</Tag>}
      {limit.tools?.map((name) => (
        <Tag key={`t${name}`} tone="live">
          {name}
        </Tag>
      ))}
      {limit.tools?.length === 0 && <Tag tone="wrong">{t('limits.noTools')}</Tag>}
    </span>
  );
}
