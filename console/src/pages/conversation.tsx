// One conversation of any user: its items, oldest first, page by page.

import { useState } from 'preact/hooks';
import { allPages } from '../all-pages';
import { call, type Schemas } from '../api/client';
import { count, dateTime } from '../format';
import { t } from '../i18n';
import { viewsOf, type Item } from '../items';
import { usePaged } from '../paged';
import { Conversation } from '../ui/conversation';
import { Card, Empty, Failure, Loading, Page } from '../ui/parts';
import { DeleteButton, ExportButton } from './thread-actions';

type ItemsPage = Schemas['ConversationItems'];

async function page(id: string, after?: string, signal?: AbortSignal): Promise<ItemsPage> {
  return call('get', '/admin/conversations/{conversation_id}', { path: { conversation_id: id }, query: { after, limit: 50, order: 'asc' }, signal });
}

/** The conversation with all of its items. */
async function whole(id: string): Promise<ItemsPage> {
  let head: ItemsPage | undefined;
  const data = await allPages<Item>(async (after) => {
    const next = await page(id, after === null ? undefined : String(after));
    head ??= next;
    return { rows: next.data as Item[], next: next.has_more ? next.last_id : null };
  });
  return { ...(head as ItemsPage), data: data as ItemsPage['data'], has_more: false };
}

export default function ConversationPage({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const [head, setHead] = useState<ItemsPage>();
  const [failed, setFailed] = useState<Error>();
  const items = usePaged<Item>(
    async (after, signal) => {
      const next = await page(id, after, signal);
      setHead(next);
      return { ...next, data: next.data as Item[] };
    },
    [id],
  );
  return (
    <Page
      title={t('sessions.conversation')}
      about={head && `${head.user} · ${dateTime(head.created_at * 1000)}`}
      actions={
        head && (
          <>
            <ExportButton name={id} load={() => whole(id)} onError={setFailed} />
            <DeleteButton title={t('sessions.deleteConversation')} text={t('sessions.deleteConversationText', { user: head.user })} path={`/admin/conversations/${encodeURIComponent(id)}`} back="conversations" />
          </>
        )
      }
    >
      <p>
        <code>{id}</code>
      </p>
      {items.error && <Failure error={items.error} retry={items.reload} />}
      {failed && <Failure error={failed} />}
      {items.loading && !items.rows.length && (
        <Card>
          <Loading />
        </Card>
      )}
      {!items.loading && !items.error && !items.rows.length && (
        <Card>
          <Empty title={t('turn.noItems')} />
        </Card>
      )}
      {items.rows.length > 0 && <Conversation views={viewsOf(items.rows)} />}
      {items.more && (
        <div class="row">
          <button type="button" class="button small" disabled={items.loading} onClick={items.next}>
            {t('list.more')}
          </button>
          <span class="small muted">{t('sessions.loaded', { count: count(items.rows.length) })}</span>
        </div>
      )}
    </Page>
  );
}
