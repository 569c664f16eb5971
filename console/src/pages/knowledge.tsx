// Collections of documents that agents search.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { count } from '../format';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { mayChange } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { ListCard } from '../ui/list';
import { Page, Time } from '../ui/parts';

export default function Knowledge() {
  const name = location.value.query.get('collection');
  return name ? <Documents name={name} /> : <Collections />;
}

function Collections() {
  const list = usePaged((after, signal) => call('get', '/admin/knowledge', { query: { after, limit: 50 }, signal }), []);
  return (
    <Page title={t('knowledge.title')} about={t('knowledge.about')}>
      <ListCard<Schemas['KnowledgeCollection']>
        list={list}
        rowKey={(row) => row.name}
        empty={t('knowledge.none')}
        emptyText={t('knowledge.noneText')}
        emptyAction={<code>amalgam knowledge import PATH --collection NAME --tenant ID</code>}
        columns={[
          { label: t('knowledge.collection'), cell: (row) => <a href={href('/knowledge', { collection: row.name })}>{row.name}</a> },
          { label: t('knowledge.documents'), number: true, cell: (row) => count(row.documents) },
          { label: t('knowledge.chunks'), number: true, cell: (row) => count(row.chunks) },
          { label: t('knowledge.search'), cell: (row) => row.embedding_model ?? t('knowledge.words') },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
        ]}
      />
    </Page>
  );
}

function Documents({ name }: { name: string }) {
  const list = usePaged((after, signal) => call('get', '/admin/knowledge/{collection}/documents', { path: { collection: name }, query: { after, limit: 50 }, signal }), [name]);
  const [deleting, setDeleting] = useState(false);
  return (
    <Page
      title={name}
      about={<a href={href('/knowledge')}>{t('knowledge.all')}</a>}
      actions={
        mayChange.value && (
          <button type="button" class="button danger" onClick={() => setDeleting(true)}>
            {t('action.delete')}
          </button>
        )
      }
    >
      <ListCard<Schemas['KnowledgeDocument']>
        list={list}
        rowKey={(row) => row.id}
        empty={t('knowledge.noDocuments')}
        columns={[
          { label: t('knowledge.path'), cell: (row) => <span class="mono">{row.path}</span> },
          { label: t('knowledge.source'), cell: (row) => row.source },
          { label: t('knowledge.language'), cell: (row) => row.language },
          { label: t('knowledge.chunks'), number: true, cell: (row) => count(row.chunks) },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
        ]}
      />
      {deleting && (
        <Confirm
          title={t('knowledge.deleteTitle', { name })}
          action={t('action.delete')}
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await send('delete', '/admin/knowledge/{collection}', { path: { collection: name } });
            toast(t('state.deleted'));
            go('/knowledge');
          }}
        >
          <p>{t('knowledge.deleteText')}</p>
        </Confirm>
      )}
    </Page>
  );
}
