// The threads of the tenant's users with their assistants.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { count } from '../format';
import { useDelayed } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { href } from '../router';
import { ListCard } from '../ui/list';
import { Page, Status, Time } from '../ui/parts';

export default function Sessions() {
  const [user, setUser] = useState('');
  const wanted = useDelayed(user.trim(), 350);
  const sessions = usePaged((after, signal) => call('get', '/admin/sessions', { query: { after, user: wanted, limit: 50 }, signal }), [wanted]);
  return (
    <Page title={t('sessions.title')} about={t('sessions.about')}>
      <div class="filters">
        <input class="input search" type="search" aria-label={t('sessions.user')} placeholder={t('sessions.user')} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
      </div>
      <ListCard<Schemas['SessionHead']>
        list={sessions}
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
    </Page>
  );
}
