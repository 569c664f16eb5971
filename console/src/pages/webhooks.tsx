// Webhook endpoints of the tenant and their deliveries.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { mayChange } from '../session';
import { Confirm, Dialog, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Check, Code, Failure, Notice, Status, Tag, TextField, Time } from '../ui/parts';

type Endpoint = Schemas['WebhookEndpoint'];

const EVENTS = ['response.completed', 'response.failed', 'response.cancelled', 'response.incomplete', 'amalgam.approval.requested', 'amalgam.budget.reached'];

export function Webhooks() {
  const endpoints = usePaged((after, signal) => call('get', '/v1/webhook_endpoints', { query: { after, limit: 50 }, signal }), []);
  const [editing, setEditing] = useState<Endpoint | 'new' | null>(null);
  const [rotating, setRotating] = useState<Endpoint | null>(null);
  const [rotated, setRotated] = useState<string | null>(null);
  const [opened, setOpened] = useState<Endpoint | null>(null);
  const [deleting, setDeleting] = useState<Endpoint | null>(null);
  const test = useAction(async (endpoint: Endpoint) => {
    await send('post', '/v1/webhook_endpoints/{id}/test', { path: { id: endpoint.id }, body: {} });
    toast(t('webhooks.tested'));
  });
  return (
    <>
      {test.error && <Failure error={test.error} />}
      <ListCard<Endpoint>
        list={endpoints}
        title={t('webhooks.title')}
        actions={
          mayChange.value && (
            <button type="button" class="button small" onClick={() => setEditing('new')}>
              <Icon name="plus" />
              {t('webhooks.new')}
            </button>
          )
        }
        rowKey={(row) => row.id}
        empty={t('webhooks.none')}
        emptyText={t('webhooks.noneText')}
        columns={[
          { label: t('webhooks.url'), cell: (row) => <span class="mono">{row.url}</span> },
          {
            label: t('webhooks.events'),
            cell: (row) => (
              <span class="row tight">
                {row.event_types.map((name) => (
                  <Tag key={name}>{name}</Tag>
                ))}
              </span>
            ),
          },
          {
            label: t('keys.actions'),
            cell: (row) => (
              <span class="row tight">
                <button type="button" class="button small" onClick={() => setOpened(row)}>
                  {t('webhooks.deliveries')}
                </button>
                <button type="button" class="button small" disabled={test.busy} onClick={() => void test.run(row)}>
                  {t('webhooks.test')}
                </button>
                {mayChange.value && (
                  <>
                    <button type="button" class="button small" onClick={() => setEditing(row)}>
                      {t('action.change')}
                    </button>
                    <button type="button" class="button small" onClick={() => setRotating(row)}>
                      {t('webhooks.rotate')}
                    </button>
                    <button type="button" class="button small danger" onClick={() => setDeleting(row)}>
                      {t('action.delete')}
                    </button>
                  </>
                )}
              </span>
            ),
          },
        ]}
      />
      {editing && (
        <EndpointForm
          endpoint={editing === 'new' ? null : editing}
          onClose={() => {
            setEditing(null);
            endpoints.reload();
          }}
        />
      )}
      {rotating && (
        <Confirm
          title={t('webhooks.rotateTitle')}
          action={t('webhooks.rotate')}
          onClose={() => setRotating(null)}
          onConfirm={async () => setRotated((await call('post', '/v1/webhook_endpoints/{id}/rotate_secret', { path: { id: rotating.id }, body: {} })).signing_secret)}
        >
          <p>{t('webhooks.rotateText', { url: rotating.url })}</p>
        </Confirm>
      )}
      {rotated && !rotating && <Secret title={t('webhooks.rotated')} secret={rotated} onClose={() => setRotated(null)} />}
      {opened && <Deliveries endpoint={opened} onClose={() => setOpened(null)} />}
      {deleting && (
        <Confirm
          title={t('webhooks.deleteTitle')}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await send('delete', '/v1/webhook_endpoints/{id}', { path: { id: deleting.id } });
            toast(t('state.deleted'));
            endpoints.reload();
          }}
        >
          <p>{t('webhooks.deleteText', { url: deleting.url })}</p>
        </Confirm>
      )}
    </>
  );
}

/** A signing secret, which is shown once. */
function Secret({ title, secret, onClose }: { title: string; secret: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose} foot={<button type="button" class="button primary" onClick={onClose}>{t('action.done')}</button>}>
      <Notice tone="wait">{t('webhooks.once')}</Notice>
      <Code text={secret} label={t('webhooks.secret')} />
    </Dialog>
  );
}

function EndpointForm({ endpoint, onClose }: { endpoint: Endpoint | null; onClose: () => void }) {
  const name = endpoint ? `webhook.${endpoint.id}` : 'webhook.new';
  const [draft, setDraft, clearDraft] = useDraft<{ url: string; events: string[] }>(name, { url: endpoint?.url ?? '', events: endpoint?.event_types ?? ['response.completed'] });
  const { url, events } = draft;
  const [made, setMade] = useState<Schemas['NewWebhookEndpoint']>();
  const known = [...new Set([...EVENTS, ...(endpoint?.event_types ?? [])])];
  const save = useAction(async () => {
    const body = { url: url.trim(), event_types: events };
    if (!endpoint) {
      setMade(await call('post', '/v1/webhook_endpoints', { body }));
      clearDraft();
      return;
    }
    await send('post', '/v1/webhook_endpoints/{id}', { path: { id: endpoint.id }, body });
    clearDraft();
    toast(t('state.saved'));
    onClose();
  });
  if (made) return <Secret title={t('webhooks.made')} secret={made.signing_secret} onClose={onClose} />;
  return (
    <Dialog
      title={endpoint ? t('webhooks.change') : t('webhooks.new')}
      onClose={onClose}
      foot={
        <button type="button" class="button primary" disabled={save.busy || !url.trim() || !events.length} onClick={() => void save.run()}>
          {endpoint ? t('action.save') : t('keys.create')}
        </button>
      }
    >
      <TextField label={t('webhooks.url')} value={url} onInput={(next) => setDraft({ ...draft, url: next })} placeholder="https://example.com/hook" autofocus />
      <fieldset class="field">
        <legend>{t('webhooks.events')}</legend>
        {known.map((name) => (
          <Check key={name} label={<code>{name}</code>} checked={events.includes(name)} onChange={(on) => setDraft({ ...draft, events: on ? [...events, name] : events.filter((one) => one !== name) })} />
        ))}
      </fieldset>
      {save.error && <Failure error={save.error} />}
    </Dialog>
  );
}

function Deliveries({ endpoint, onClose }: { endpoint: Endpoint; onClose: () => void }) {
  const deliveries = usePaged((after, signal) => call('get', '/v1/webhook_endpoints/{id}/deliveries', { path: { id: endpoint.id }, query: { after, limit: 50 }, signal }), [endpoint.id]);
  const resend = useAction(async (id: string) => {
    await send('post', '/v1/webhook_endpoints/{id}/deliveries/{delivery_id}/resend', { path: { id: endpoint.id, delivery_id: id }, body: {} });
    toast(t('webhooks.resent'));
    deliveries.reload();
  });
  return (
    <Dialog title={t('webhooks.deliveries')} wide onClose={onClose}>
      {resend.error && <Failure error={resend.error} />}
      <ListCard<Schemas['WebhookDelivery']>
        list={deliveries}
        rowKey={(row) => row.id}
        empty={t('webhooks.noDeliveries')}
        columns={[
          { label: t('turns.time'), cell: (row) => <Time ms={row.created_at * 1000} /> },
          { label: t('webhooks.event'), cell: (row) => <code>{row.event.type}</code> },
          { label: t('turns.status'), cell: (row) => <Status value={row.status} /> },
          { label: t('webhooks.attempts'), number: true, cell: (row) => row.attempts },
          { label: t('call.error'), cell: (row) => row.last_error ?? (row.last_status_code ? `HTTP ${row.last_status_code}` : '–') },
          {
            label: t('keys.actions'),
            cell: (row) => (
              <button type="button" class="button small" disabled={resend.busy} onClick={() => void resend.run(row.id)}>
                {t('webhooks.resend')}
              </button>
            ),
          },
        ]}
      />
    </Dialog>
  );
}
