// API keys, browser sessions and tenants.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { dateTime } from '../format';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { isAdmin, isOperator, mayChange, session } from '../session';
import { Confirm, Dialog, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Check, Code, Failure, Notice, Page, Select, Status, TabPanel, Tabs, Tag, TextField, Time } from '../ui/parts';

type KeyView = Schemas['Key'];
type TabName = 'keys' | 'sessions' | 'tenants';

export default function Keys() {
  const query = location.value.query;
  const tab = (query.get('tab') as TabName | null) ?? 'keys';
  const tabs: { id: TabName; label: string }[] = [
    { id: 'keys', label: t('keys.keys') },
    { id: 'sessions', label: t('keys.sessions') },
  ];
  if (isOperator.value) tabs.push({ id: 'tenants', label: t('keys.tenants') });
  return (
    <Page
      title={t('keys.title')}
      about={t('keys.about')}
      actions={
        isAdmin.value && (
          <a class="button" href={href(`/tenants/${session.value?.tenant_id}`)}>
            <Icon name="gear" />
            {t('keys.settings')}
          </a>
        )
      }
    >
      <Tabs tabs={tabs} selected={tab} label={t('keys.title')} onSelect={(next) => go('/keys', { tab: next === 'keys' ? null : next }, true)} />
      <TabPanel tab={tab}>
        {tab === 'keys' && <KeyList />}
        {tab === 'sessions' && <SessionList />}
        {tab === 'tenants' && isOperator.value && <TenantList />}
      </TabPanel>
    </Page>
  );
}

function stateOf(key: KeyView): string {
  if (key.revoked_at) return 'revoked';
  if (key.expires_at && key.expires_at * 1000 < Date.now()) return 'expired';
  return 'active';
}

function KeyList() {
  const tenant = location.value.query.get('tenant');
  const keys = usePaged((after, signal) => call('get', '/admin/keys', { query: { after, limit: 50, tenant_id: tenant }, signal }), [tenant]);
  const [creating, setCreating] = useState<Partial<KeyView> | null>(null);
  const [revoking, setRevoking] = useState<KeyView | null>(null);
  return (
    <>
      <ListCard<KeyView>
        list={keys}
        title={tenant ? t('keys.ofTenant', { id: tenant }) : t('keys.keys')}
        actions={
          mayChange.value && (
            <button type="button" class="button small" onClick={() => setCreating({})}>
              <Icon name="plus" />
              {t('keys.new')}
            </button>
          )
        }
        rowKey={(row) => row.id}
        empty={t('keys.none')}
        emptyText={t('keys.noneText')}
        columns={[
          {
            label: t('keys.key'),
            cell: (row) => (
              <>
                <div>{row.label ?? <span class="muted">{t('keys.noLabel')}</span>}</div>
                <code class="muted">{row.prefix}…</code>
              </>
            ),
          },
          {
            label: t('keys.scopes'),
            cell: (row) => (
              <span class="row tight">
                {row.scopes.map((scope) => (
                  <Tag key={scope} tone={scope === 'operator' || scope === 'admin' ? 'live' : undefined}>
                    {scope}
                  </Tag>
                ))}
              </span>
            ),
          },
          { label: t('turns.user'), cell: (row) => row.user ?? <span class="muted">{t('keys.service')}</span> },
          { label: t('turns.status'), cell: (row) => <Status value={stateOf(row)} /> },
          { label: t('keys.lastUsed'), cell: (row) => (row.last_used_at ? <Time ms={row.last_used_at * 1000} relative /> : <span class="muted">{t('keys.never')}</span>) },
          { label: t('keys.expires'), cell: (row) => (row.expires_at ? dateTime(row.expires_at * 1000) : <span class="muted">{t('keys.never')}</span>) },
          {
            label: t('keys.actions'),
            cell: (row) =>
              mayChange.value && !row.revoked_at ? (
                <span class="row tight">
                  <button type="button" class="button small" onClick={() => setCreating(row)}>
                    {t('keys.rotate')}
                  </button>
                  <button type="button" class="button small danger" onClick={() => setRevoking(row)}>
                    {t('keys.revoke')}
                  </button>
                </span>
              ) : null,
          },
        ]}
      />
      {creating && (
        <CreateKey
          like={creating}
          tenant={tenant}
          onClose={() => {
            setCreating(null);
            keys.reload();
          }}
        />
      )}
      {revoking && (
        <Confirm
          title={t('keys.revokeTitle', { prefix: revoking.prefix })}
          action={t('keys.revoke')}
          onClose={() => setRevoking(null)}
          onConfirm={async () => {
            await send('delete', '/admin/keys/{key_id}', { path: { key_id: revoking.id }, query: { tenant_id: tenant } });
            toast(t('keys.revoked'));
            keys.reload();
          }}
        >
          <p>{t('keys.revokeText')}</p>
        </Confirm>
      )}
    </>
  );
}

const SCOPES = ['use', 'view', 'admin', 'metrics', 'operator'] as const;
const EXPIRIES = ['', '7', '30', '90', '365'];

function CreateKey({ like, tenant, onClose }: { like: Partial<KeyView>; tenant: string | null; onClose: () => void }) {
  const [draft, setDraft, clearDraft] = useDraft(`key.${like.id ?? 'new'}`, { label: like.label ?? '', scopes: (like.scopes ?? ['use']) as string[], user: like.user ?? '', days: '' });
  const { label, scopes, user, days } = draft;
  const [made, setMade] = useState<Schemas['NewKey']>();
  const create = useAction(async () => {
    setMade(
      await call('post', '/admin/keys', {
        body: {
          label: label.trim() || null,
          scopes,
          user: user.trim() || null,
          tenant_id: tenant ? Number(tenant) : (like.tenant_id ?? null),
          expires_at: days ? Math.floor(Date.now() / 1000) + Number(days) * 86_400 : null,
        },
      }),
    );
    clearDraft();
  });
  if (made) {
    return (
      <Dialog title={t('keys.made')} onClose={onClose} foot={<button type="button" class="button primary" onClick={onClose}>{t('action.done')}</button>}>
        <Notice tone="wait">{t('keys.once')}</Notice>
        <Code text={made.key} label={t('keys.key')} />
        {like.id && <p>{t('keys.rotated', { prefix: like.prefix ?? '' })}</p>}
      </Dialog>
    );
  }
  return (
    <Dialog
      title={like.id ? t('keys.rotateTitle', { prefix: like.prefix ?? '' }) : t('keys.new')}
      onClose={onClose}
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            {t('action.cancel')}
          </button>
          <button type="button" class="button primary" disabled={create.busy || !scopes.length} onClick={() => void create.run()}>
            {t('keys.create')}
          </button>
        </>
      }
    >
      <TextField label={t('keys.label')} value={label} onInput={(next) => setDraft({ ...draft, label: next })} autofocus />
      <fieldset class="field">
        <legend>{t('keys.scopes')}</legend>
        {SCOPES.filter((scope) => scope !== 'operator' || isOperator.value).map((scope) => (
          <Check
            key={scope}
            label={
              <>
                <code>{scope}</code> <span class="muted">{t(`scope.${scope}`)}</span>
              </>
            }
            checked={scopes.includes(scope)}
            onChange={(on) => setDraft({ ...draft, scopes: on ? [...scopes, scope] : scopes.filter((one) => one !== scope) })}
          />
        ))}
      </fieldset>
      <TextField label={t('keys.user')} value={user} onInput={(next) => setDraft({ ...draft, user: next })} help={t('keys.userHelp')} />
      <Select label={t('keys.expires')} value={days} onChange={(next) => setDraft({ ...draft, days: next })} options={EXPIRIES.map((value) => ({ value, label: value ? t('keys.inDays', { count: value }) : t('keys.never') }))} />
      {create.error && <Failure error={create.error} />}
    </Dialog>
  );
}

function SessionList() {
  const sessions = usePaged((after, signal) => call('get', '/admin/console/sessions', { query: { after, limit: 50 }, signal }), []);
  const [ending, setEnding] = useState<Schemas['ConsoleSession'] | null>(null);
  return (
    <>
      <ListCard<Schemas['ConsoleSession']>
        list={sessions}
        title={t('keys.sessions')}
        rowKey={(row) => row.id}
        empty={t('keys.noSessions')}
        columns={[
          {
            label: t('keys.browser'),
            cell: (row) => (
              <>
                <div class="one-line">{row.browser ?? '–'}</div>
                <span class="small muted">{row.address ?? '–'}</span>
                {row.id === session.value?.id && <Tag tone="live">{t('keys.thisOne')}</Tag>}
              </>
            ),
          },
          { label: t('keys.signIn'), cell: (row) => openedBy(row) },
          { label: t('keys.scopes'), cell: (row) => row.scopes.join(', ') },
          { label: t('keys.lastUsed'), cell: (row) => <Time ms={row.last_used_at * 1000} relative /> },
          { label: t('keys.expires'), cell: (row) => dateTime(row.expires_at * 1000) },
          {
            label: t('keys.actions'),
            cell: (row) =>
              mayChange.value && row.id !== session.value?.id ? (
                <button type="button" class="button small danger" onClick={() => setEnding(row)}>
                  {t('keys.end')}
                </button>
              ) : null,
          },
        ]}
      />
      {ending && (
        <Confirm
          title={t('keys.endTitle')}
          action={t('keys.end')}
          onClose={() => setEnding(null)}
          onConfirm={async () => {
            await send('delete', '/admin/console/sessions/{session_id}', { path: { session_id: ending.id } });
            toast(t('keys.ended'));
            sessions.reload();
          }}
        >
          <p>{t('keys.endText', { browser: ending.browser ?? '–' })}</p>
        </Confirm>
      )}
    </>
  );
}

function TenantList() {
  const tenants = usePaged((after, signal) => call('get', '/admin/tenants', { query: { after, limit: 50 }, signal }), []);
  const [name, setName, clearName] = useDraft('tenant.new', '');
  const [creating, setCreating] = useState(false);
  const create = useAction(async () => {
    await send('post', '/admin/tenants', { body: { name: name.trim() } });
    clearName();
    setCreating(false);
    toast(t('state.saved'));
    tenants.reload();
  });
  return (
    <>
      <ListCard<Schemas['Tenant']>
        list={tenants}
        title={t('keys.tenants')}
        actions={
          <button type="button" class="button small" onClick={() => setCreating(true)}>
            <Icon name="plus" />
            {t('tenants.new')}
          </button>
        }
        rowKey={(row) => String(row.id)}
        empty={t('tenants.none')}
        columns={[
          { label: t('tenants.id'), number: true, cell: (row) => row.id },
          { label: t('tenants.name'), cell: (row) => <a href={href(`/tenants/${row.id}`)}>{row.name}</a> },
          { label: t('tenants.state'), cell: (row) => row.state },
          { label: t('tenants.assistant'), cell: (row) => <Tag tone={row.ai_agent_enabled ? 'good' : undefined}>{row.ai_agent_enabled ? t('state.on') : t('state.off')}</Tag> },
          { label: t('tenants.created'), cell: (row) => dateTime(row.created_at * 1000) },
          { label: t('keys.keys'), cell: (row) => <a href={href('/keys', { tenant: String(row.id) })}>{t('keys.keys')}</a> },
        ]}
      />
      {creating && (
        <Dialog
          title={t('tenants.new')}
          onClose={() => setCreating(false)}
          foot={
            <button type="button" class="button primary" disabled={create.busy || !name.trim()} onClick={() => void create.run()}>
              {t('keys.create')}
            </button>
          }
        >
          <TextField label={t('tenants.name')} value={name} onInput={setName} autofocus />
          {create.error && <Failure error={create.error} />}
        </Dialog>
      )}
    </>
  );
}

/** What opened a session: a link, the key, or the user of the OpenID Connect provider. */
function openedBy(row: Schemas['ConsoleSession']): string {
  if (row.sign_in === 'link') return t('keys.byLink');
  return row.user_name ?? row.user_id ?? row.key_id ?? t('keys.byKey');
}
