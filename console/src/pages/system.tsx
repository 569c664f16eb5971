// The state of the server, its configuration, the audit, and webhooks.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { count } from '../format';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, location } from '../router';
import { isAdmin, isOperator, mayUse, version } from '../session';
import { Dialog } from '../ui/dialog';
import { ListCard } from '../ui/list';
import { Card, Code, Failure, Loading, Page, Prose, Status, TabPanel, Tabs, Tag, Time } from '../ui/parts';
import { SystemConfiguration } from './system-configuration';
import { SystemState } from './system-state';
import { Webhooks } from './webhooks';

type TabName = 'health' | 'state' | 'configuration' | 'audit' | 'webhooks';

export default function System() {
  const tab = (location.value.query.get('tab') as TabName | null) ?? 'health';
  const tabs: { id: TabName; label: string }[] = [
    { id: 'health', label: t('system.health') },
    ...(isOperator.value ? ([{ id: 'state', label: t('system.state') }, { id: 'configuration', label: t('system.configuration') }] as const) : []),
    { id: 'audit', label: t('system.audit') },
  ];
  if (mayUse.value && isAdmin.value) tabs.push({ id: 'webhooks', label: t('system.webhooks') });
  return (
    <Page title={t('system.title')}>
      <Tabs tabs={tabs} selected={tab} label={t('system.title')} onSelect={(next) => go('/system', { tab: next === 'health' ? null : next }, true)} />
      <TabPanel tab={tab}>
        {tab === 'health' && <Health />}
        {tab === 'state' && isOperator.value && <SystemState />}
        {tab === 'configuration' && isOperator.value && <SystemConfiguration />}
        {tab === 'audit' && <Audit />}
        {tab === 'webhooks' && mayUse.value && <Webhooks />}
      </TabPanel>
    </Page>
  );
}

function Health() {
  const health = useLoad(
    async (signal) => {
      const [ready, diagnosis] = await Promise.all([call('get', '/readyz', { signal }), call('get', '/admin/diagnose', { signal })]);
      return { ready, diagnosis };
    },
    [],
  );
  if (health.error) return <Failure error={health.error} retry={health.reload} />;
  if (!health.data) {
    return (
      <Card>
        <Loading />
      </Card>
    );
  }
  const { ready, diagnosis } = health.data;
  return (
    <>
      <div class="grid-2">
        <Card title={t('system.process')} actions={<Status value={ready.status} />}>
          <dl class="facts">
            <dt>{t('system.version')}</dt>
            <dd>{version.value}</dd>
            <dt>{t('system.running')}</dt>
            <dd>{count(ready.turns_in_flight ?? 0)}</dd>
            <dt>{t('system.waiting')}</dt>
            <dd>{count(ready.turns_waiting ?? 0)}</dd>
          </dl>
        </Card>
        <Card title={t('system.diagnosis')} actions={<Tag tone={diagnosis.model.known ? 'good' : 'wrong'}>{diagnosis.model.name}</Tag>}>
          <ul class="bullets">
            {diagnosis.verdict.map((line) => (
              <li key={line}>
                <Prose text={line} />
              </li>
            ))}
          </ul>
        </Card>
      </div>
    </>
  );
}

function Audit() {
  const [object, setObject] = useState('');
  const [shown, setShown] = useState<Schemas['AuditEntry'] | null>(null);
  const entries = usePaged((after, signal) => call('get', '/admin/audit', { query: { after, limit: 50, object: object || null }, signal }), [object]);
  const objects = [
    'agent_session', 'approval', 'config', 'configuration', 'console_link', 'console_session', 'conversation', 'course', 'courses', 'key', 'knowledge', 'learner', 'learner_course',
    'learner_courses', 'limit', 'master_key', 'mode', 'price', 'profile', 'session', 'store', 'tenant', 'tool', 'webhook_endpoint',
  ];
  return (
    <>
      <div class="filters">
        <select class="input choice" aria-label={t('system.object')} value={object} onChange={(event) => setObject(event.currentTarget.value)}>
          <option value="">{t('system.allObjects')}</option>
          {objects.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </div>
      <ListCard<Schemas['AuditEntry']>
        list={entries}
        title={t('system.audit')}
        rowKey={(row) => row.id}
        empty={t('system.noAudit')}
        columns={[
          { label: t('turns.time'), cell: (row) => <Time ms={row.created_at * 1000} /> },
          { label: t('system.action'), cell: (row) => <code>{row.action}</code> },
          { label: t('system.target'), cell: (row) => (row.target as { id?: string }).id ?? '–' },
          { label: t('system.actor'), cell: (row) => [row.actor.type, row.actor.user ?? row.actor.key_id].filter(Boolean).join(' · ') },
          { label: t('system.origin'), cell: (row) => row.actor.origin ?? '–' },
          {
            label: t('keys.actions'),
            cell: (row) => (
              <button type="button" class="button small" onClick={() => setShown(row)}>
                {t('system.details')}
              </button>
            ),
          },
        ]}
      />
      {shown && (
        <Dialog title={shown.action} wide onClose={() => setShown(null)}>
          <div class="grid-2">
            <div class="stack tight">
              <strong>{t('system.before')}</strong>
              <Code text={JSON.stringify(shown.before ?? null, null, 2)} label={t('system.before')} />
            </div>
            <div class="stack tight">
              <strong>{t('system.after')}</strong>
              <Code text={JSON.stringify(shown.after ?? null, null, 2)} label={t('system.after')} />
            </div>
          </div>
          <p class="small muted">
            {t('system.hash')} <code>{shown.hash}</code>
          </p>
        </Dialog>
      )}
    </>
  );
}
