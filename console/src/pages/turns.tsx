// The list of turns: live, with every filter of the API, by keyboard.

import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useDelayed, useShortcut, useStored } from '../hooks';
import { t, word, type Key } from '../i18n';
import { dateTime, duration, money, short } from '../format';
import { go, location } from '../router';
import { isOperator } from '../session';
import { Icon } from '../ui/icons';
import { Check, Empty, Failure, Loading, Page, Status, Time } from '../ui/parts';
import { VirtualList } from '../ui/virtual-list';
import { COLUMNS, DEFAULT_COLUMNS } from './turn-columns';
import { FILTERS, follow, loadPage, merged, queryOf, RANGES, type Filter, type TurnRow } from './turn-rows';

const STATUSES = ['queued', 'in_progress', 'completed', 'incomplete', 'failed', 'cancelled'];
const DOORS = ['responses', 'chat_completions', 'messages', 'embeddings', 'assistant', 'execute'];
const MORE: Filter[] = ['model', 'user', 'profile', 'upstream', 'tool', 'session', 'key', 'error', 'request_id', 'min_duration_ms', 'min_cost_usd'];

interface List {
  rows: TurnRow[];
  added: number;
  more: boolean;
  error?: Error;
  loading: boolean;
}

export default function Turns() {
  const search = location.value.query;
  const text = search.toString();
  const [columns, setColumns] = useStored<string[]>('turns.columns', DEFAULT_COLUMNS);
  const [live, setLive] = useStored('turns.live', true);
  const [panel, setPanel] = useState<'filters' | 'columns' | null>(() => (MORE.some((name) => search.get(name)) ? 'filters' : null));
  const [selected, setSelected] = useState(-1);
  const list = useTurns(text, live);
  const searchBox = useRef<HTMLInputElement>(null);
  const set = (name: string, value: string | null): void => {
    const query = Object.fromEntries(new URLSearchParams(window.location.search));
    go('/turns', { ...query, [name]: value }, true);
  };
  useShortcut({
    '/': (event) => {
      event.preventDefault();
      searchBox.current?.focus();
    },
    l: () => setLive(!live),
  });
  const active = FILTERS.filter((name) => search.get(name)).length;
  const shown = COLUMNS.filter((column) => columns.includes(column.id));
  return (
    <Page
      title={t('turns.title')}
      actions={
        <>
          <button type="button" class="button" aria-pressed={live} onClick={() => setLive(!live)}>
            <Icon name={live ? 'pause' : 'play'} />
            {live ? t('turns.live') : t('turns.paused')}
          </button>
          <button type="button" class="button" aria-expanded={panel === 'filters'} onClick={() => setPanel(panel === 'filters' ? null : 'filters')}>
            {t('turns.filters')}
            {active > 0 && ` (${active})`}
          </button>
          <button type="button" class="button" aria-expanded={panel === 'columns'} onClick={() => setPanel(panel === 'columns' ? null : 'columns')}>
            <Icon name="columns" />
            {t('turns.columns')}
          </button>
        </>
      }
    >
      <div class="filters">
        <SearchBox value={search.get('q') ?? ''} onChange={(value) => set('q', value)} reference={searchBox} />
        <Choice label={t('turns.status')} kind="status" value={search.get('status')} options={STATUSES} onChange={(value) => set('status', value)} />
        <Choice label={t('turns.door')} kind="door" value={search.get('door')} options={DOORS} onChange={(value) => set('door', value)} />
        <Choice label={t('turns.range')} value={search.get('range')} options={Object.keys(RANGES)} onChange={(value) => set('range', value)} />
        {isOperator.value && <Choice label={t('turns.tenants')} value={search.get('tenant')} options={['all']} onChange={(value) => set('tenant', value)} />}
      </div>
      {panel === 'filters' && (
        <div class="card card-body more-filters">
          {MORE.map((name) => (
            <FilterField key={name} name={name} value={search.get(name) ?? ''} onChange={(value) => set(name, value)} />
          ))}
          <div class="row end">
            <button type="button" class="button" disabled={!active && !search.get('range')} onClick={() => go('/turns')}>
              {t('turns.clear')}
            </button>
          </div>
        </div>
      )}
      {panel === 'columns' && (
        <fieldset class="card card-body column-picker">
          <legend class="hidden-text">{t('turns.columns')}</legend>
          {COLUMNS.map((column) => (
            <Check
              key={column.id}
              label={t(column.label)}
              checked={columns.includes(column.id)}
              onChange={(on) => setColumns(COLUMNS.map((one) => one.id).filter((id) => (id === column.id ? on : columns.includes(id))))}
            />
          ))}
          <button type="button" class="button small" onClick={() => setColumns(DEFAULT_COLUMNS)}>
            {t('action.reset')}
          </button>
        </fieldset>
      )}
      {list.error && <Failure error={list.error} retry={list.reload} />}
      <Progress list={list} />
      <div class="card turn-list">
        {list.rows.length ? (
          <Rows list={list} columns={shown} selected={selected} setSelected={setSelected} />
        ) : list.loading || (list.more && !list.stopped && !list.error) ? (
          <Loading />
        ) : (
          !list.error && (
            <Empty title={active ? t('turns.noneFound') : t('turns.none')} action={active ? undefined : <code class="small">POST /v1/responses</code>}>
              {active ? t('turns.noneFoundText') : t('turns.noneText')}
            </Empty>
          )
        )}
      </div>
      <p class="small muted keys">{t('turns.keys')}</p>
    </Page>
  );
}

interface TurnsState extends List {
  /** Where the list continues: the last turn that the server looked at, which need not be listed. */
  after?: string;
  /** The user has stopped a search that goes further back. */
  stopped: boolean;
}

/** A search looks further back by itself until so many turns are found. */
const ENOUGH = 50;

const FRESH: TurnsState = { rows: [], added: 0, more: false, loading: true, stopped: false };

/** The list: pages of the store, which may be empty before its end, and changes of the live list. */
function useTurns(search: string, live: boolean): TurnsState & { next: () => void; stop: () => void; reload: () => void } {
  const [list, setList] = useState<TurnsState>(FRESH);
  const [turn, setTurn] = useState(0);
  const query = useMemo(() => queryOf(new URLSearchParams(search), Date.now()), [search, turn]);
  const requests = useRef(new AbortController());
  const pending = useRef(false);
  const load = useCallback(
    (after: string | undefined) => {
      const { signal } = requests.current;
      pending.current = true;
      setList((before) => ({ ...before, loading: true, error: undefined }));
      loadPage(query, after, signal).then(
        (page) => {
          if (signal.aborted) return;
          pending.current = false;
          const last = page.last_id === null || page.last_id === undefined ? undefined : String(page.last_id);
          setList((before) => ({ ...before, rows: after ? [...before.rows, ...page.data] : page.data, added: 0, after: last, more: page.has_more, loading: false }));
        },
        (error: unknown) => {
          if (signal.aborted) return;
          pending.current = false;
          setList((before) => ({ ...before, loading: false, error: error as Error }));
        },
      );
    },
    [query],
  );
  useEffect(() => {
    requests.current = new AbortController();
    setList(FRESH);
    load(undefined);
    const current = requests.current;
    return () => current.abort();
  }, [load]);
  const first = list.rows.length > 0 || !list.loading;
  useEffect(() => {
    if (!live || !first || list.error || query.to) return;
    const stop = new AbortController();
    const { from: _from, ...filters } = query;
    void follow(filters, stop.signal, (rows) => {
      setList((before) => {
        const next = merged(before.rows, rows);
        return { ...before, rows: next.rows, added: next.added };
      });
    });
    return () => stop.abort();
  }, [query, live, first, Boolean(list.error)]);
  const next = useCallback(() => {
    if (list.more && !list.stopped && !list.error && !pending.current && list.after) load(list.after);
  }, [list.more, list.stopped, list.error, list.after, load]);
  useEffect(() => {
    if (!list.loading && list.rows.length < ENOUGH) next();
  }, [list.loading, list.rows.length, next]);
  const stop = useCallback(() => {
    requests.current.abort();
    requests.current = new AbortController();
    pending.current = false;
    setList((before) => ({ ...before, loading: false, stopped: !before.stopped }));
  }, []);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  return { ...list, next, stop, reload };
}

/** How far a search has looked back, with a way to stop it and to go on. */
function Progress({ list }: { list: TurnsState & { stop: () => void } }) {
  const looked = Number(/^resp_AM-(\d{10,})-/.exec(list.after ?? '')?.[1]);
  if (!list.more || !looked || list.rows.length >= ENOUGH) return null;
  return (
    <p class="row small muted" role="status">
      {list.stopped ? t('turns.searchStopped', { time: dateTime(looked) }) : t('turns.searching', { time: dateTime(looked) })}
      <button type="button" class="button small" onClick={list.stop}>
        {list.stopped ? t('turns.searchOn') : t('turns.searchStop')}
      </button>
    </p>
  );
}

function Rows(props: { list: List & { next: () => void }; columns: typeof COLUMNS; selected: number; setSelected: (index: number) => void }) {
  const { list, columns } = props;
  const [narrow, setNarrow] = useState(() => window.matchMedia('(max-width: 700px)').matches);
  useEffect(() => {
    const media = window.matchMedia('(max-width: 700px)');
    const change = (): void => setNarrow(media.matches);
    media.addEventListener('change', change);
    return () => media.removeEventListener('change', change);
  }, []);
  const needed = columns.reduce((sum, column) => sum + Number(/\d+/.exec(column.width)?.[0] ?? 0) + 14, 14);
  const template = { gridTemplateColumns: columns.map((column) => column.width).join(' ') };
  const open = (index: number): void => {
    const row = list.rows[index];
    if (row) go(`/turns/${encodeURIComponent(row.id)}`, row.tenant_id ? { tenant: location.value.query.get('tenant') ? String(row.tenant_id) : null } : {});
  };
  return (
    <VirtualList
      count={list.rows.length}
      rowHeight={narrow ? 56 : 33}
      minWidth={narrow ? undefined : needed}
      label={t('turns.title')}
      selected={props.selected}
      onSelect={props.setSelected}
      onOpen={open}
      onEnd={list.next}
      added={list.added}
      header={
        !narrow && (
          <div class="cells" style={template} role="presentation">
            {columns.map((column) => (
              <span key={column.id} role="columnheader" class={column.number ? 'num' : ''}>
                {t(column.label)}
              </span>
            ))}
          </div>
        )
      }
      row={(index) => {
        const row = list.rows[index];
        if (!row) return null;
        if (narrow) return <NarrowRow row={row} />;
        return (
          <div class="cells" style={template} role="presentation">
            {columns.map((column) => (
              <span key={column.id} role="gridcell" class={column.number ? 'num' : ''}>
                {column.cell(row)}
              </span>
            ))}
          </div>
        );
      }}
    />
  );
}

function NarrowRow({ row }: { row: TurnRow }) {
  return (
    <div class="narrow-row" role="gridcell">
      <div class="row between">
        <strong>{row.model ?? row.requested_model}</strong>
        <Status value={row.status} />
      </div>
      <div class="row between small muted">
        <span>
          <Time ms={row.created_at_ms} /> · {row.user}
        </span>
        <span>
          {short(row.input_tokens + row.output_tokens)} · {money(row.cost_usd)} · {duration(row.duration_ms)}
        </span>
      </div>
    </div>
  );
}

function SearchBox(props: { value: string; onChange: (value: string) => void; reference: { current: HTMLInputElement | null } }) {
  const [value, setValue] = useState(props.value);
  const delayed = useDelayed(value, 350);
  useEffect(() => {
    if (delayed !== props.value) props.onChange(delayed);
  }, [delayed]);
  return (
    <input
      ref={props.reference}
      class="input search"
      type="search"
      aria-label={t('turns.search')}
      placeholder={t('turns.search')}
      value={value}
      onInput={(event) => setValue(event.currentTarget.value)}
    />
  );
}

function Choice(props: { label: string; kind?: 'status' | 'door'; value: string | null; options: string[]; onChange: (value: string | null) => void }) {
  return (
    <select class="input choice" aria-label={props.label} value={props.value ?? ''} onChange={(event) => props.onChange(event.currentTarget.value || null)}>
      <option value="">{props.label}</option>
      {props.options.map((option) => (
        <option value={option} key={option}>
          {props.kind ? word(props.kind, option) : option}
        </option>
      ))}
    </select>
  );
}

function FilterField(props: { name: Filter; value: string; onChange: (value: string) => void }) {
  const [value, setValue] = useState(props.value);
  useEffect(() => setValue(props.value), [props.value]);
  const delayed = useDelayed(value, 500);
  useEffect(() => {
    if (delayed !== props.value) props.onChange(delayed);
  }, [delayed]);
  return (
    <label class="field">
      <span class="label">{t(`filter.${props.name}` as Key)}</span>
      <input class="input" value={value} spellcheck={false} onInput={(event) => setValue(event.currentTarget.value)} />
    </label>
  );
}
