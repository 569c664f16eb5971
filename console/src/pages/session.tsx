// One thread as a conversation, oldest message first, with what is known about each message.

import { call, type Schemas } from '../api/client';
import { dateTime } from '../format';
import { t } from '../i18n';
import { useLoad } from '../hooks';
import { href } from '../router';
import { tenantOfPage } from '../tenant';
import { LongText } from '../ui/conversation';
import { Icon } from '../ui/icons';
import { Card, Code, Empty, Failure, Loading, Page, Status, Tag } from '../ui/parts';

type Session = Schemas['Session'];
type Message = Schemas['SessionMessage'];

/** All messages of a thread; the API gives them in pages. */
async function whole(id: string, tenant: string | null, signal: AbortSignal): Promise<Session> {
  const options = { path: { session_id: id }, signal };
  const first = await call('get', '/admin/sessions/{session_id}', { ...options, query: { tenant_id: tenant, limit: 100 } });
  const messages = [...first.messages];
  for (let page = first; page.has_more && page.last_id !== null && messages.length < 2000; ) {
    page = await call('get', '/admin/sessions/{session_id}', { ...options, query: { tenant_id: tenant, limit: 100, after: page.last_id } });
    messages.push(...page.messages);
  }
  return { ...first, messages: messages.sort((one, other) => one.id - other.id) };
}

export default function SessionPage({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const tenant = tenantOfPage();
  const session = useLoad((signal) => whole(id, tenant, signal), [id, tenant]);
  const title = t('sessions.number', { id });
  const save = (data: Session): void => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(data, null, 2)], { type: 'application/json' }));
    const anchor = document.createElement('a');
    anchor.href = url;
    anchor.download = `session-${id}.json`;
    anchor.click();
    URL.revokeObjectURL(url);
  };
  return (
    <Page
      title={title}
      about={session.data && `${session.data.user} · ${session.data.profile ?? '–'} · ${dateTime(session.data.created_at * 1000)}`}
      actions={
        session.data && (
          <>
            <Status value={session.data.status} />
            <button type="button" class="button" onClick={() => session.data && save(session.data)}>
              <Icon name="download" />
              {t('sessions.export')}
            </button>
            <a class="button" href={href('/turns', { session: id, tenant })}>
              {t('sessions.turns')}
            </a>
          </>
        )
      }
    >
      {session.error && <Failure error={session.error} retry={session.reload} />}
      {!session.data && !session.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {session.data && (session.data.messages.length ? <Messages messages={session.data.messages} /> : <Card><Empty title={t('sessions.noMessages')} /></Card>)}
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
            {message.response_id && <a class="small" href={href(`/turns/${message.response_id}`, { tenant: tenantOfPage() })}>{t('play.turn')}</a>}
          </div>
        </li>
      ))}
    </ol>
  );
}
