// Tries any API with any model or profile, in up to three columns side by side.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useAction, useLoad, useStored } from '../hooks';
import { t } from '../i18n';
import { DEFAULTS, NEW_CONVERSATION, type Attachment, type Conversation, type Results, type Settings, type Turn } from '../playground/model';
import { run } from '../playground/run';
import { reader, sourceOf, type Source } from '../playground/source';
import { location } from '../router';
import { session } from '../session';
import { tenantOfPage } from '../tenant';
import { Confirm } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { Failure, IconButton, Notice, Page, Tag } from '../ui/parts';
import { Column } from './playground-column';

/** A column while it runs or has answered. */
export interface ColumnState {
  turns: Turn[];
  conversation: Conversation;
  running: boolean;
}

const EMPTY: ColumnState = { turns: [], conversation: NEW_CONVERSATION, running: false };

export default function Playground() {
  const [stored, setColumns] = useStored<Settings[]>('playground.columns', [DEFAULTS]);
  // An earlier version may have stored fewer settings.
  const columns = stored.map((settings) => ({ ...DEFAULTS, ...settings }));
  const [clearing, setClearing] = useState(false);
  const [input, setInput] = useStored('playground.input', '');
  const [states, setStates] = useState<ColumnState[]>(() => columns.map(() => EMPTY));
  const [files, setFiles] = useState<Attachment[]>([]);
  const picker = useRef<HTMLInputElement>(null);
  const upload = useAction(async (chosen: File[]) => {
    for (const file of chosen) {
      const form = new FormData();
      form.set('purpose', 'user_data');
      form.set('file', file);
      const made = (await (await send('post', '/v1/files', { body: form })).json()) as { id: string };
      setFiles((before) => [...before, { id: made.id, name: file.name, image: file.type.startsWith('image/') }]);
    }
  });
  const stops = useRef<(AbortController | null)[]>([]);
  const models = useLoad((signal) => call('get', '/v1/models', { signal }).then((list) => list.data as Schemas['Model'][]), []);
  const source = location.value.query.get('from');
  const filled = useSource(source, ({ settings, text, files: attached, conversation }) => {
    setColumns([settings, ...columns.slice(1)]);
    setStates((before) => [{ ...EMPTY, conversation }, ...before.slice(1)]);
    setFiles(attached);
    setInput(text);
  });
  useEffect(() => () => stops.current.forEach((stop) => stop?.abort()), []);

  const change = useCallback((index: number, update: (state: ColumnState) => ColumnState) => {
    setStates((before) => before.map((state, at) => (at === index ? update(state) : state)));
  }, []);
  const start = async (index: number, text: string, results: Results = {}): Promise<void> => {
    const settings = columns[index];
    const state = states[index];
    if (!settings || !state || state.running) return;
    const stop = new AbortController();
    stops.current[index] = stop;
    const number = state.turns.length;
    const model = settings.model || models.data?.[0]?.id || '';
    change(index, (before) => ({ ...before, running: true }));
    const set = (turn: Turn): void => change(index, (before) => ({ ...before, turns: Object.assign(before.turns.slice(), { [number]: turn }) }));
    try {
      const ended = await run({ ...settings, model: settings.door === 'responses' ? model : settings.model }, text, state.conversation, results, Object.keys(results).length ? [] : files, stop.signal, set);
      change(index, (before) => ({ ...before, running: false, conversation: ended.conversation }));
    } catch (error) {
      change(index, (before) => ({ ...before, running: false }));
      throw error;
    }
  };
  const sendAll = (): void => {
    const text = input.trim();
    if (!text) return;
    columns.forEach((_, index) => void start(index, text));
    setInput('');
    setFiles([]);
  };
  const stopAll = (): void => stops.current.forEach((stop) => stop?.abort());
  const resize = (count: number): void => {
    setColumns(Array.from({ length: count }, (_, index) => columns[index] ?? columns[0] ?? DEFAULTS));
    setStates(Array.from({ length: count }, (_, index) => states[index] ?? EMPTY));
  };
  const busy = states.some((state) => state.running);
  return (
    <Page
      title={t('play.title')}
      actions={
        <>
          <div class="row tight" role="group" aria-label={t('play.columns')}>
            {[1, 2, 3].map((count) => (
              <button key={count} type="button" class="button small" aria-pressed={columns.length === count} disabled={busy} onClick={() => resize(count)}>
                {count}
              </button>
            ))}
          </div>
          <button type="button" class="button" disabled={busy} onClick={() => (states.some((state) => state.turns.length) ? setClearing(true) : setStates(columns.map(() => EMPTY)))}>
            {t('play.clear')}
          </button>
        </>
      }
    >
      {models.error && <Failure error={models.error} retry={models.reload} />}
      {filled.error && <Failure error={filled.error} />}
      {source && filled.shown && <SourceNotice id={source} source={filled.shown} conversation={states[0]?.conversation ?? NEW_CONVERSATION} />}
      {clearing && (
        <Confirm
          title={t('play.clearTitle')}
          action={t('play.clear')}
          onConfirm={async () => setStates(columns.map(() => EMPTY))}
          onClose={() => setClearing(false)}
        >
          <p>{t('play.clearText')}</p>
        </Confirm>
      )}
      <div class={`play-columns of-${columns.length}`}>
        {columns.map((settings, index) => (
          <Column
            key={index}
            number={index + 1}
            settings={settings}
            models={models.data ?? []}
            state={states[index] ?? EMPTY}
            input={input}
            onSettings={(next) => setColumns(columns.map((one, at) => (at === index ? next : one)))}
            onResults={(results) => void start(index, '', results)}
            onStop={() => stops.current[index]?.abort()}
            onBranch={(number) => {
              const state = states[index];
              const turn = state?.turns[number];
              if (!state || !turn) return;
              const previous = number > 0 ? (state.turns[number - 1]?.responseId ?? null) : null;
              change(index, (before) => ({ ...before, turns: before.turns.slice(0, number), conversation: { ...NEW_CONVERSATION, previous } }));
              setInput(turn.input);
            }}
          />
        ))}
      </div>
      <form
        class="composer card"
        onSubmit={(event) => {
          event.preventDefault();
          sendAll();
        }}
      >
        <textarea
          class="input"
          rows={3}
          aria-label={t('play.message')}
          placeholder={t('play.placeholder')}
          value={input}
          onInput={(event) => setInput(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && (event.metaKey || event.ctrlKey)) {
              event.preventDefault();
              sendAll();
            }
          }}
        />
        {upload.error && <Failure error={upload.error} />}
        {files.length > 0 && (
          <div class="row tight">
            {files.map((file) => (
              <span class="row tight attached" key={file.id}>
                <Tag>{file.name}</Tag>
                <IconButton icon="close" small label={t('play.detach', { name: file.name })} onClick={() => setFiles(files.filter((one) => one.id !== file.id))} />
              </span>
            ))}
          </div>
        )}
        <div class="row">
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            aria-label={t('play.attach')}
            onChange={(event) => {
              void upload.run([...(event.currentTarget.files ?? [])]);
              event.currentTarget.value = '';
            }}
          />
          <button type="button" class="button small" disabled={upload.busy || columns.some((column) => column.door !== 'responses')} onClick={() => picker.current?.click()}>
            <Icon name="plus" />
            {t('play.attach')}
          </button>
          <span class="small muted grow">{t('play.send.keys')}</span>
          {busy ? (
            <button type="button" class="button danger" onClick={stopAll}>
              <Icon name="stop" />
              {t('play.stop')}
            </button>
          ) : (
            <button type="submit" class="button primary" disabled={!input.trim()}>
              <Icon name="play" />
              {t('play.send')}
            </button>
          )}
        </div>
      </form>
    </Page>
  );
}

/** Where the settings are from, and what is sent besides them. */
function SourceNotice({ id, source, conversation }: { id: string; source: Source; conversation: Conversation }) {
  return (
    <Notice>
      <p>{t('play.from', { id })}</p>
      {conversation.previous && <p>{t('play.continues', { id: conversation.previous })}</p>}
      {conversation.items.length > 0 && <p>{t('play.history', { count: conversation.items.length })}</p>}
      {source.cut && <p>{t('play.historyCut')}</p>}
    </Notice>
  );
}

/** Fills the first column with a stored turn, once. */
function useSource(id: string | null, fill: (source: Source) => void): { shown: Source | null; error: Error | undefined } {
  const done = useRef<string | null>(null);
  const [shown, setShown] = useState<Source | null>(null);
  const [error, setError] = useState<Error>();
  const after = location.value.query.get('after') !== null;
  const tenant = tenantOfPage();
  useEffect(() => {
    const key = `${id} ${after}`;
    if (!id || done.current === key) return;
    done.current = key;
    const read = reader(tenant);
    const load = async (): Promise<void> => {
      const turn = await read(id);
      const who = session.value;
      const isOwn = turn.user === who?.user && (turn.summary?.tenant_id ?? who.tenant_id) === who.tenant_id;
      const source = await sourceOf(turn, after, isOwn, read);
      fill(source);
      setShown(source);
    };
    load().catch((failure: unknown) => setError(failure as Error));
  }, [id, after]);
  return { shown, error };
}
