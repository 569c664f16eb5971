// The settings of a tenant: each with its effective value and where that comes from.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { isOperator, mayChange, session } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { Card, Check, Failure, Loading, Page, Select, Tag, TextField } from '../ui/parts';

type Config = Schemas['AgentConfig'];
type Resolved = Record<string, { value: unknown; origin: string }>;

/** Secrets are set and never shown. */
const SECRETS = ['api_key', 'safety_salt'];

export default function TenantPage({ parameters }: { parameters: Record<string, string> }) {
  const id = Number(parameters.id);
  const loaded = useLoad(
    async (signal) => {
      const [config, tenant] = await Promise.all([
        call('get', '/admin/configs/{tenant_id}', { path: { tenant_id: id }, signal }),
        isOperator.value ? call('get', '/admin/tenants/{tenant_id}', { path: { tenant_id: id }, signal }) : Promise.resolve(null),
      ]);
      return { config, tenant };
    },
    [id],
  );
  const name = loaded.data?.tenant?.name ?? (id === session.value?.tenant_id ? session.value.tenant_name : String(id));
  return (
    <Page title={t('tenants.title', { name })} about={t('tenants.about')}>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data && !loaded.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {loaded.data?.tenant && <TenantForm key={JSON.stringify(loaded.data.tenant)} tenant={loaded.data.tenant} reload={loaded.reload} />}
      {loaded.data && <Settings id={id} config={loaded.data.config} reload={loaded.reload} />}
    </Page>
  );
}

function TenantForm({ tenant, reload }: { tenant: Schemas['Tenant']; reload: () => void }) {
  const [name, setName] = useState(tenant.name);
  const [state, setState] = useState<'stored' | 'stateless'>(tenant.state);
  const [enabled, setEnabled] = useState(tenant.ai_agent_enabled);
  const save = useAction(async () => {
    await send('patch', '/admin/tenants/{tenant_id}', { path: { tenant_id: tenant.id }, body: { name: name.trim(), state, ai_agent_enabled: enabled } });
    toast(t('state.saved'));
    reload();
  });
  const dirty = name !== tenant.name || state !== tenant.state || enabled !== tenant.ai_agent_enabled;
  return (
    <Card
      title={t('tenants.tenant', { id: tenant.id })}
      actions={
        <button type="button" class="button small primary" disabled={!dirty || save.busy} onClick={() => void save.run()}>
          {t('action.save')}
        </button>
      }
    >
      <div class="play-choice">
        <TextField label={t('tenants.name')} value={name} onInput={setName} />
        <Select
          label={t('tenants.state')}
          value={state}
          onChange={setState}
          help={t('tenants.stateHelp')}
          options={[
            { value: 'stored', label: t('tenants.stored') },
            { value: 'stateless', label: t('tenants.stateless') },
          ]}
        />
        <Check label={t('tenants.assistantOn')} checked={enabled} onChange={setEnabled} />
      </div>
      {save.error && <Failure error={save.error} />}
    </Card>
  );
}

function Settings({ id, config, reload }: { id: number; config: Config; reload: () => void }) {
  const [editing, setEditing] = useState<string | null>(null);
  const resolved = config.resolved as unknown as Resolved;
  const own = config as unknown as Record<string, unknown>;
  return (
    <Card title={t('tenants.settings')} flush>
      <div class="table-wrap" tabIndex={0} role="group" aria-label={t('tenants.settings')}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{t('tenants.setting')}</th>
              <th scope="col">{t('tenants.effective')}</th>
              <th scope="col">{t('tenants.origin')}</th>
              <th scope="col">{t('keys.actions')}</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(resolved).map(([name, { value, origin }]) => (
              <tr key={name}>
                <td>
                  <code>{name}</code>
                </td>
                <td>{editing === name ? <SettingForm id={id} name={name} value={own[name]} onDone={() => (setEditing(null), reload())} onCancel={() => setEditing(null)} /> : <span class="text-block clamp" tabIndex={shown(value).length > 200 ? 0 : undefined}>{shown(value)}</span>}</td>
                <td>
                  <Tag tone={origin === 'config' ? 'live' : undefined}>{origin}</Tag>
                </td>
                <td>
                  {mayChange.value && editing !== name && (
                    <button type="button" class="button small" onClick={() => setEditing(name)}>
                      {t('action.change')}
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function shown(value: unknown): string {
  if (value === null || value === undefined || value === '') return '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function SettingForm({ id, name, value, onDone, onCancel }: { id: number; name: string; value: unknown; onDone: () => void; onCancel: () => void }) {
  const secret = SECRETS.includes(name);
  const [unsetting, setUnsetting] = useState(false);
  const stored = value === null || value === undefined ? '' : String(value);
  const [draft, setDraft, clearDraft] = useDraft(`setting.${id}.${name}`, stored);
  // A secret is not kept.
  const [typed, setTyped] = useState('');
  const [text, setText] = secret ? [typed, setTyped] : [draft, setDraft];
  const save = useAction(async (next: string | null) => {
    let body: unknown = next;
    if (next !== null && !secret && /^(true|false|-?\d+(\.\d+)?)$/.test(next)) body = JSON.parse(next);
    await send('patch', '/admin/configs/{tenant_id}', { path: { tenant_id: id }, body: { [name]: body } });
    clearDraft();
    toast(t('state.saved'));
    onDone();
  });
  return (
    <form
      class="stack tight"
      onSubmit={(event) => {
        event.preventDefault();
        void save.run(text);
      }}
    >
      {name === 'system_prompt' ? (
        <textarea class="input" rows={6} aria-label={name} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      ) : (
        <input class="input" {...(secret ? { type: 'password' as const } : { type: 'text' as const })} aria-label={name} autocomplete="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      )}
      {save.error && <Failure error={save.error} />}
      <div class="row tight">
        <button type="submit" class="button small primary" disabled={save.busy || !text}>
          {t('action.save')}
        </button>
        <button type="button" class="button small" disabled={save.busy} onClick={() => setUnsetting(true)}>
          {t('tenants.unset')}
        </button>
        {unsetting && (
          <Confirm title={t('tenants.unsetTitle')} action={t('tenants.unset')} onConfirm={() => save.run(null)} onClose={() => setUnsetting(false)}>
            <p>{t('tenants.unsetText')}</p>
          </Confirm>
        )}
        <button type="button" class="button small quiet" onClick={onCancel}>
          {t('action.cancel')}
        </button>
      </div>
    </form>
  );
}
