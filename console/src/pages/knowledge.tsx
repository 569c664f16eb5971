// Collections of documents: search as an agent does, upload, and delete.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { count } from '../format';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { mayChange } from '../session';
import { Confirm, Dialog, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Page, Prose, TextField, Time } from '../ui/parts';
import { KnowledgeSearch } from './knowledge-search';
import { KnowledgeUpload } from './knowledge-upload';

/** What the server accepts as the name of a collection or of a source. */
export const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

export default function Knowledge() {
  const name = location.value.query.get('collection');
  return name ? <Collection key={name} name={name} /> : <Collections />;
}

function Collections() {
  const list = usePaged((after, signal) => call('get', '/admin/knowledge', { query: { after, limit: 50 }, signal }), []);
  const [creating, setCreating] = useState(false);
  const create = mayChange.value && (
    <button type="button" class="button" onClick={() => setCreating(true)}>
      <Icon name="plus" />
      {t('knowledge.new')}
    </button>
  );
  return (
    <Page title={t('knowledge.title')} about={t('knowledge.about')} actions={create}>
      {list.rows.length > 0 && <KnowledgeSearch collection={null} />}
      <ListCard<Schemas['KnowledgeCollection']>
        list={list}
        rowKey={(row) => row.name}
        empty={t('knowledge.none')}
        emptyText={<Prose text={t('knowledge.noneText')} />}
        emptyAction={create}
        columns={[
          { label: t('knowledge.collection'), cell: (row) => <a href={href('/knowledge', { collection: row.name })}>{row.name}</a> },
          { label: t('knowledge.documents'), number: true, cell: (row) => count(row.documents) },
          { label: t('knowledge.chunks'), number: true, cell: (row) => count(row.chunks) },
          { label: t('knowledge.search'), cell: (row) => row.embedding_model ?? t('knowledge.words') },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
        ]}
      />
      {creating && <NewCollection onClose={() => setCreating(false)} />}
    </Page>
  );
}

/** A collection exists once it has a document: this only chooses its name. */
function NewCollection({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('');
  const valid = NAME.test(name.trim());
  return (
    <Dialog
      title={t('knowledge.new')}
      onClose={onClose}
      foot={
        <button type="button" class="button primary" disabled={!valid} onClick={() => go('/knowledge', { collection: name.trim() })}>
          {t('knowledge.continue')}
        </button>
      }
    >
      <TextField label={t('keys.label')} value={name} onInput={setName} autofocus help={t('knowledge.nameHelp')} error={name && !valid ? t('knowledge.nameHelp') : undefined} />
    </Dialog>
  );
}

/** The list of a collection that does not exist yet is empty. */
async function documentsOf(name: string, after: string | undefined, signal: AbortSignal): Promise<Schemas['KnowledgeDocumentList']> {
  return call('get', '/admin/knowledge/{collection}/documents', { path: { collection: name }, query: { after, limit: 50 }, signal });
}

function Collection({ name }: { name: string }) {
  const list = usePaged((after, signal) => documentsOf(name, after, signal), [name]);
  const missing = list.error && 'status' in list.error && list.error.status === 404;
  const [deleting, setDeleting] = useState<Schemas['KnowledgeDocument'] | 'all' | null>(null);
  return (
    <Page
      title={name}
      about={<a href={href('/knowledge')}>{t('knowledge.all')}</a>}
      actions={
        mayChange.value &&
        list.rows.length > 0 && (
          <button type="button" class="button danger" onClick={() => setDeleting('all')}>
            {t('action.delete')}
          </button>
        )
      }
    >
      {list.rows.length > 0 && <KnowledgeSearch collection={name} />}
      {mayChange.value && <KnowledgeUpload collection={name} onDone={list.reload} />}
      <ListCard<Schemas['KnowledgeDocument']>
        list={missing ? { ...list, error: undefined } : list}
        title={t('knowledge.documents')}
        rowKey={(row) => row.id}
        empty={t('knowledge.noDocuments')}
        emptyText={<Prose text={t('knowledge.noDocumentsText')} />}
        columns={[
          { label: t('knowledge.path'), cell: (row) => <span class="mono">{row.path}</span> },
          { label: t('knowledge.source'), cell: (row) => row.source },
          { label: t('knowledge.language'), cell: (row) => row.language },
          { label: t('knowledge.chunks'), number: true, cell: (row) => count(row.chunks) },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
          {
            label: t('keys.actions'),
            cell: (row) =>
              mayChange.value && (
                <button type="button" class="button small danger" aria-label={t('knowledge.deleteDocument', { path: row.path })} onClick={() => setDeleting(row)}>
                  {t('action.delete')}
                </button>
              ),
          },
        ]}
      />
      {deleting === 'all' && (
        <Confirm
          title={t('knowledge.deleteTitle', { name })}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await send('delete', '/admin/knowledge/{collection}', { path: { collection: name } });
            toast(t('state.deleted'));
            go('/knowledge');
          }}
        >
          <p>{t('knowledge.deleteText')}</p>
        </Confirm>
      )}
      {deleting && deleting !== 'all' && (
        <Confirm
          title={t('knowledge.deleteDocument', { path: deleting.path })}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await send('delete', '/admin/knowledge/{collection}/documents/{document_id}', { path: { collection: name, document_id: deleting.id } });
            toast(t('state.deleted'));
            list.reload();
          }}
        >
          <p>{t('knowledge.deleteDocumentText', { chunks: deleting.chunks, source: deleting.source })}</p>
        </Confirm>
      )}
    </Page>
  );
}
