// What the tenant's users have said: threads with assistants, sessions of execute, conversations.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { count } from '../format';
import { useDelayed } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { ListCard } from '../ui/list';
import { Page, Status, TabPanel, Tabs, Time } from '../ui/parts';

type TabName = 'assistant' | 'execute' | 'conversations';

export default function Sessions() {
  const query = location.value.query;
  const tab = (query.get('tab') as TabName | null) ?? 'assistant';
  const [user, setUser] = useState(query.get('user') ?? '');
  const wanted = useDelayed(user.trim(), 350);
  const tabs: { id: TabName; label: string }[] = [
    { id: 'assistant', label: t('sessions.assistant') },
    { id: 'execute', label: t('sessions.execute') },
    { id: 'conversations', label: t('sessions.conversations') },
  ];
  return (
    <Page title={t('sessions.title')} about={t('sessions.about')}>
      <Tabs tabs={tabs} selected={tab} label={t('sessions.title')} onSelect={(next) => go('/sessions', { tab: next === 'assistant' ? null : next, user: wanted || null }, true)} />
      <div class="filters">
        <input class="input search" type="search" aria-label={t('sessions.user')} placeholder={t('sessions.user')} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
      </div>
      <TabPanel tab={tab}>
        {tab === 'assistant' && <Threads user={wanted} />}
        {tab === 'execute' && <ExecuteSessions user={wanted} />}
        {tab === 'conversations' && <Conversations user={wanted} />}
      </TabPanel>
    </Page>
  );
}

function Threads({ user }: { user: string }) {
  const [profile, setProfile] = useState('');
  const list = usePaged((after, signal) => call('get', '/admin/sessions', { query: { after, user, limit: 50 }, signal }), [user]);
  // The rows that are loaded: the API filters by user alone.
  const profiles = [...new Set(list.rows.map((row) => row.profile ?? ''))].sort();
  const rows = profile ? list.rows.filter((row) => row.profile === profile) : list.rows;
  return (
    <ListCard<Schemas['SessionHead']>
      list={{ ...list, rows }}
      title={t('sessions.assistant')}
      actions={
        profiles.length > 1 && (
          <select class="input choice" aria-label={t('turns.profile')} value={profile} onChange={(event) => setProfile(event.currentTarget.value)}>
            <option value="">{t('sessions.allProfiles')}</option>
            {profiles.filter(Boolean).map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        )
      }
      rowKey={(row) => String(row.id)}
      empty={t('sessions.none')}
      emptyText={t('sessions.noneText')}
      columns={[
        { label: t('sessions.session'), cell: (row) => <a href={href(`/sessions/${row.id}`)}>{row.id}</a> },
        { label: t('turns.user'), cell: (row) => row.user },
        { label: t('turns.profile'), cell: (row) => row.profile ?? <span class="muted">–</span> },
        { label: t('sessions.messages'), number: true, cell: (row) => count(row.message_count) },
        { label: t('turns.status'), cell: (row) => <Status value={row.status} /> },
        { label: t('sessions.last'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
      ]}
    />
  );
}

function ExecuteSessions({ user }: { user: string }) {
  const list = usePaged((after, signal) => call('get', '/admin/agent-sessions', { query: { after, user, limit: 50 }, signal }), [user]);
  return (
    <ListCard<Schemas['ExecuteSessionHead']>
      list={list}
      title={t('sessions.execute')}
      rowKey={(row) => row.id}
      empty={t('sessions.noExecute')}
      emptyText={t('sessions.noExecuteText')}
      columns={[
        { label: t('sessions.session'), cell: (row) => <a class="mono" href={href(`/agent-sessions/${row.id}`)}>{row.id}</a> },
        { label: t('turns.user'), cell: (row) => row.user },
        { label: t('turns.profile'), cell: (row) => row.profile ?? <span class="muted">–</span> },
        { label: t('sessions.mode'), cell: (row) => row.mode },
        { label: t('nav.turns'), number: true, cell: (row) => count(row.turns) },
        { label: t('sessions.last'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
      ]}
    />
  );
}

function Conversations({ user }: { user: string }) {
  const list = usePaged((after, signal) => call('get', '/admin/conversations', { query: { after, user, limit: 50 }, signal }), [user]);
  return (
    <ListCard<Schemas['ConversationHead']>
      list={list}
      title={t('sessions.conversations')}
      rowKey={(row) => row.id}
      empty={t('sessions.noConversations')}
      emptyText={t('sessions.noConversationsText')}
      columns={[
        { label: t('sessions.conversation'), cell: (row) => <a class="mono" href={href(`/conversations/${row.id}`)}>{row.id}</a> },
        { label: t('turns.user'), cell: (row) => row.user },
        { label: t('sessions.metadata'), cell: (row) => <span class="mono value-cell">{JSON.stringify(row.metadata)}</span> },
        { label: t('tenants.created'), cell: (row) => <Time ms={row.created_at * 1000} /> },
      ]}
    />
  );
}
