// One session of the execute contract: its turns, each with its submissions. The content of a step is loaded when it is opened.

import { useState } from 'preact/hooks';
import { allPages } from '../all-pages';
import { call, type Schemas } from '../api/client';
import { count, dateTime } from '../format';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { viewsOf, type Item } from '../items';
import { usePaged } from '../paged';
import { href } from '../router';
import { Conversation } from '../ui/conversation';
import { Card, Empty, Failure, Loading, Page, Status } from '../ui/parts';
import { DeleteButton, ExportButton } from './thread-actions';

type Session = Schemas['ExecuteSession'];
type Turn = Session['data'][number];
type Step = Turn['steps'][number];

async function page(id: string, after?: string, signal?: AbortSignal): Promise<Session> {
  return call('get', '/admin/agent-sessions/{session_id}', { path: { session_id: id }, query: { after, limit: 50 }, signal });
}

/** The session with all of its turns, newest first. */
async function whole(id: string): Promise<Session> {
  let head: Session | undefined;
  const data = await allPages<Turn>(async (after) => {
    const next = await page(id, after === null ? undefined : String(after));
    head ??= next;
    return { rows: next.data, next: next.has_more ? next.last_id : null };
  });
  return { ...(head as Session), data, has_more: false };
}

export default function AgentSession({ parameters }: { parameters: Record<string, string> }) {
  const id = parameters.id ?? '';
  const [head, setHead] = useState<Session>();
  const [failed, setFailed] = useState<Error>();
  const turns = usePaged<Turn>(
    async (after, signal) => {
      const next = await page(id, after, signal);
      setHead(next);
      return next;
    },
    [id],
  );
  return (
    <Page
      title={t('sessions.executeNumber')}
      about={head && `${head.user} · ${head.profile ?? '–'} · ${head.mode} · ${dateTime(head.created_at * 1000)}`}
      actions={
        head && (
          <>
            <ExportButton name={id} load={() => whole(id)} onError={setFailed} />
            <a class="button" href={href('/turns', { session: id })}>
              {t('sessions.turns')}
            </a>
            <DeleteButton title={t('sessions.deleteTitle', { id })} text={t('sessions.deleteExecuteText', { user: head.user, count: count(head.turns) })} path={`/admin/agent-sessions/${encodeURIComponent(id)}`} back="execute" />
          </>
        )
      }
    >
      <p>
        <code>{id}</code>
      </p>
      {turns.error && <Failure error={turns.error} retry={turns.reload} />}
      {failed && <Failure error={failed} />}
      {turns.loading && !turns.rows.length && (
        <Card>
          <Loading />
        </Card>
      )}
      {!turns.loading && !turns.error && !turns.rows.length && (
        <Card>
          <Empty title={t('sessions.noTurns')} />
        </Card>
      )}
      {turns.rows.map((turn) => (
        <Card key={turn.number} title={`${turn.number} · ${turn.turn_id}`}>
          <ul class="rows">
            {turn.steps.map((step) => (
              <StepRow key={step.response_id} step={step} />
            ))}
          </ul>
        </Card>
      ))}
      {turns.more && (
        <div class="row">
          <button type="button" class="button small" disabled={turns.loading} onClick={turns.next}>
            {t('list.more')}
          </button>
        </div>
      )}
    </Page>
  );
}

function StepRow({ step }: { step: Step }) {
  const [open, setOpen] = useState(false);
  return (
    <li class="stack tight">
      <div class="row between wrap">
        <a class="mono" href={href(`/turns/${step.response_id}`)}>
          {step.response_id}
        </a>
        <span class="row tight">
          <span class="small muted">{dateTime(step.created_at * 1000)}</span>
          <Status value={step.status} />
          <button type="button" class="button small" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? t('sessions.hide') : t('sessions.read')}
          </button>
        </span>
      </div>
      {open && <StepItems id={step.response_id} />}
    </li>
  );
}

function StepItems({ id }: { id: string }) {
  const turn = useLoad((signal) => call('get', '/admin/turns/{response_id}', { path: { response_id: id }, signal }), [id]);
  if (turn.error) return <Failure error={turn.error} retry={turn.reload} />;
  if (!turn.data) return <Loading />;
  const items = [...((turn.data.input ?? []) as Item[]), ...(((turn.data.response as { output?: Item[] } | null)?.output ?? []) as Item[])];
  return <Conversation views={viewsOf(items)} />;
}
