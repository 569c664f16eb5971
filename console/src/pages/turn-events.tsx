// The stored events of a turn, page by page, and live while it runs.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, call, type Schemas } from '../api/client';
import { count } from '../format';
import { t } from '../i18n';
import { apply } from '../playground/events';
import { newTurn, type Turn as Draft } from '../playground/model';
import { indented } from '../text-search';
import { Card, Code, Empty, Failure, Loading, Notice } from '../ui/parts';
import { VirtualList } from '../ui/virtual-list';

type Entry = Schemas['TurnEventEntry'];

const PAGE = 500;

/** How often the events of a turn that runs are read. */
const RENEWED_MS = 700;

export interface TurnEvents {
  entries: Entry[];
  /** The answer so far, made from the events. */
  draft: Draft;
  loading: boolean;
  more: boolean;
  error: Error | undefined;
  next: () => void;
}

/** Loads events when they are `wanted`: the first page, further ones on demand, and all of them in time while the turn runs. */
export function useEvents(id: string, tenant: string | null, wanted: boolean, live: boolean): TurnEvents {
  const [state, setState] = useState<{ entries: Entry[]; loaded: boolean; loading: boolean; more: boolean; error?: Error }>({ entries: [], loaded: false, loading: false, more: false });
  const draft = useRef<Draft>(newTurn(''));
  const busy = useRef(false);
  const stop = useRef(new AbortController());
  useEffect(() => {
    stop.current = new AbortController();
    const current = stop.current;
    return () => current.abort();
  }, [id, tenant]);
  const last = state.entries[state.entries.length - 1]?.sequence_number;
  const next = useCallback(() => {
    if (busy.current) return;
    busy.current = true;
    const { signal } = stop.current;
    setState((before) => ({ ...before, loading: true, error: undefined }));
    call('get', '/admin/turns/{response_id}/events', { path: { response_id: id }, query: { tenant_id: tenant, after: last, limit: PAGE }, signal }).then(
      (page) => {
        busy.current = false;
        if (signal.aborted) return;
        for (const entry of page.data) apply(draft.current, { event: entry.type, data: JSON.stringify(entry.event) }, 0);
        setState((before) => ({ entries: [...before.entries, ...page.data], loaded: true, loading: false, more: page.has_more }));
      },
      (error: unknown) => {
        busy.current = false;
        // A turn that is not in the store yet has no events.
        const early = error instanceof ApiError && error.status === 404 && live;
        if (!signal.aborted) setState((before) => ({ ...before, loaded: true, loading: false, error: early ? undefined : (error as Error) }));
      },
    );
  }, [id, tenant, last, live]);
  useEffect(() => {
    if (wanted && !state.loaded && !state.error) next();
  }, [wanted, state.loaded]);
  const wasLive = useRef(live);
  useEffect(() => {
    if (!wanted || !state.loaded || state.loading || state.error) return;
    // Once more after the end: the last events come with it.
    if (!live && !wasLive.current) return;
    const timer = setTimeout(() => {
      wasLive.current = live;
      next();
    }, state.more ? 0 : RENEWED_MS);
    return () => clearTimeout(timer);
  }, [wanted, live, state, next]);
  useEffect(() => {
    if (live) wasLive.current = true;
  }, [live]);
  return { entries: state.entries, draft: draft.current, loading: state.loading || !state.loaded, more: state.more, error: state.error, next };
}

export function Events({ events, running }: { events: TurnEvents; running: boolean }) {
  const [selected, setSelected] = useState(-1);
  const chosen = events.entries[selected];
  if (events.error) return <Failure error={events.error} retry={events.next} />;
  if (!events.entries.length) {
    return <Card>{events.loading || running ? <Loading /> : <Empty title={t('events.none')}>{t('events.noneText')}</Empty>}</Card>;
  }
  return (
    <>
      <Notice>{t('events.note')}</Notice>
      <div class="card turn-events">
        <VirtualList
          count={events.entries.length}
          rowHeight={26}
          label={t('turn.events')}
          selected={selected}
          onSelect={setSelected}
          onOpen={setSelected}
          onEnd={events.more ? events.next : undefined}
          row={(index) => {
            const entry = events.entries[index];
            return entry ? (
              <div class="event-row small" role="presentation">
                <span role="gridcell" class="num muted">
                  {entry.sequence_number}
                </span>
                <span role="gridcell" class="mono">
                  {entry.type}
                </span>
                <span role="gridcell" class="muted event-text">
                  {summaryOf(entry)}
                </span>
              </div>
            ) : null;
          }}
        />
      </div>
      <p class="small muted" role="status">
        {t(events.more ? 'events.countMore' : 'events.count', { count: count(events.entries.length) })}
      </p>
      {chosen && (
        <Card title={<code>{chosen.type}</code>}>
          <Code text={indented(JSON.stringify(chosen.event))} label={chosen.type} />
        </Card>
      )}
    </>
  );
}

/** What an event says, in one line. */
function summaryOf(entry: Entry): string {
  const event = entry.event as Record<string, unknown>;
  const item = event.item as Record<string, unknown> | undefined;
  const text = event.delta ?? event.text ?? event.arguments ?? item?.type ?? '';
  return (typeof text === 'string' ? text : JSON.stringify(text)).slice(0, 200);
}
