// One thread as a conversation, oldest message first, with what is known about each message. Older messages are loaded on demand.

import { useState } from 'preact/hooks';
import { allPages } from '../all-pages';
import { call, send, type Schemas } from '../api/client';
import { count, dateTime } from '../format';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { href } from '../router';
import { mayChange } from '../session';
import { tenantOfPage } from '../tenant';
import { LongText } from '../ui/conversation';
import { Confirm, toast } from '../ui/dialog';
import { Card, Code, Empty, Failure, Loading, Page, Status, Tag } from '../ui/parts';
import { DeleteButton, ExportButton } from './thread-actions';

type Session = Schemas['Session'];
type Message = Schemas['SessionMessage'];

const PAGE = 50;

async function page(id: string, tenant: string | null, after: number | null, signal?: AbortSignal): Promise<Session> {
  return call('get', '/admin/sessions/{session_id}', { path: { session_id: id }, query: { tenant_id: tenant, limit: PAGE, after }, signal });
}

/** The thread with all of its messages, oldest first. */
async function whole(id: string, tenant: string | null): Promise<Session> {
  let head: Session | undefined;
  const messages = await allPages<Message>(async (after) => {
    const next = await page(id, tenant, after as number | null);
    head ??= next;
    return { rows: next.messages, next: next.has_more ? next.last_id : null };
  });
  return { ...(head as Session), messages: messages.reverse(), has_more: false };
}

export default function SessionPage({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const tenant = tenantOfPage();
  const session = useLoad((signal) => page(id, tenant, null, signal), [id, tenant]);
  const [older, setOlder] = useState<Message[]>([]);
  const [more, setMore] = useState<{ after: number | null } | null>(null);
  const [closing, setClosing] = useState(false);
  const [failed, setFailed] = useState<Error>();
  const next = more ?? (session.data?.has_more ? { after: session.data.last_id } : { after: null });
  const load = useAction(async () => {
    const page_ = await page(id, tenant, next.after);
    setOlder([...page_.messages.slice().reverse(), ...older]);
    setMore({ after: page_.has_more ? page_.last_id : null });
  });
  const messages = [...older, ...(session.data?.messages.slice().reverse() ?? [])];
  return (
    <Page
      title={t('sessions.number', { id })}
      about={session.data && `${session.data.user} · ${session.data.profile ?? '–'} · ${dateTime(session.data.created_at * 1000)}`}
      actions={
        session.data && (
          <>
            <Status value={session.data.status} />
            <ExportButton name={`session-${id}`} load={() => whole(id, tenant)} onError={setFailed} />
            <a class="button" href={href('/turns', { session: id })}>
              {t('sessions.turns')}
            </a>
            {mayChange.value && session.data.status === 'active' && (
              <button type="button" class="button" onClick={() => setClosing(true)}>
                {t('sessions.close')}
              </button>
            )}
            <DeleteButton title={t('sessions.deleteTitle', { id })} text={t('sessions.deleteText', { user: session.data.user, count: count(session.data.message_count) })} path={`/admin/sessions/${id}`} back="" />
          </>
        )
      }
    >
      {session.error && <Failure error={session.error} retry={session.reload} />}
      {failed && <Failure error={failed} />}
      {!session.data && !session.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {session.data && next.after !== null && (
        <div class="row">
          <button type="button" class="button small" disabled={load.busy} onClick={() => void load.run()}>
            {t('sessions.older')}
          </button>
          <span class="small muted">{t('sessions.shown', { count: count(messages.length), all: count(session.data.message_count) })}</span>
        </div>
      )}
      {load.error && <Failure error={load.error} />}
      {session.data && (messages.length ? <Messages messages={messages} /> : <Card><Empty title={t('sessions.noMessages')} /></Card>)}
      {closing && (
        <Confirm
          title={t('sessions.closeTitle', { id })}
          action={t('sessions.close')}
          onClose={() => setClosing(false)}
          onConfirm={async () => {
            await send('post', '/admin/sessions/{session_id}/close', { path: { session_id: id } });
            toast(t('sessions.closed'));
            session.reload();
          }}
        >
          <p>{t('sessions.closeText')}</p>
        </Confirm>
      )}
    </Page>
  );
}

function Messages({ messages }: { messages: Message[] }) {
  return (
    <ol class="conversation">
      {messages.map((message) => (
        <li key={message.id} class={`said message ${message.role}`}>
          <div class="row between">
            <span class="who">{message.role}</span>
            <span class="small muted">{dateTime(message.created_at * 1000)}</span>
          </div>
          <LongText text={message.content} />
          <div class="row tight">
            {message.metadata.map((record, index) => (
              <details key={index} class="metadata">
                <summary>
                  <Tag tone={record.kind === 'error' ? 'wrong' : undefined}>{record.kind}</Tag>
                </summary>
                <Code text={JSON.stringify(record.value, null, 2)} label={record.kind} />
              </details>
            ))}
            {message.response_id && <a class="small" href={href(`/turns/${message.response_id}`)}>{t('play.turn')}</a>}
          </div>
        </li>
      ))}
    </ol>
  );
}
