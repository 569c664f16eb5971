// Jumps to any id, page or action from the keyboard.

import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { call } from './api/client';
import { language, setLanguage, t, type Key } from './i18n';
import { isAllowed, PAGES } from './pages';
import { go } from './router';
import { isOperator, maySee, mayChange, signOut } from './session';
import { targetsOf } from './targets';
import { setTheme } from './theme';
import { Icon, type IconName } from './ui/icons';

const open = signal(false);

export function openPalette(): void {
  open.value = true;
}

export function listenForPalette(): void {
  document.addEventListener('keydown', (event) => {
    if (event.key.toLowerCase() === 'k' && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      open.value = !open.value;
    }
  });
}

interface Entry {
  label: string;
  hint: string;
  icon: IconName;
  run: () => void;
}

export function Palette() {
  return open.value ? <PaletteDialog close={() => (open.value = false)} /> : null;
}

function PaletteDialog({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [selected, setSelected] = useState(0);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  const objects = useObjects();
  const entries = useMemo(() => entriesFor(text, objects), [text, objects]);
  const choose = (entry: Entry | undefined): void => {
    if (!entry) return;
    close();
    entry.run();
  };
  const move = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step) {
      event.preventDefault();
      setSelected((selected + step + entries.length) % Math.max(1, entries.length));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      choose(entries[selected]);
    }
  };
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label={t('palette.label')}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) close();
      }}
    >
      <input
        class="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={entries.length ? `palette-${selected}` : undefined}
        aria-label={t('palette.label')}
        placeholder={t('palette.placeholder')}
        value={text}
        spellcheck={false}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setSelected(0);
        }}
        onKeyDown={move}
      />
      <ul class="palette-list" id="palette-list" role="listbox" aria-label={t('palette.label')}>
        {entries.map((entry, index) => (
          <li key={`${entry.hint} ${entry.label}`} id={`palette-${index}`} role="option" aria-selected={index === selected} onClick={() => choose(entry)}>
            <Icon name={entry.icon} />
            <span class="grow">{entry.label}</span>
            <span class="small muted">{entry.hint}</span>
          </li>
        ))}
      </ul>
      {!entries.length && <p class="palette-none muted">{t('palette.none')}</p>}
    </dialog>
  );
}

/** Profiles, tools and keys by name, and the actions that need rights. Read when the palette is opened. */
function useObjects(): Entry[] {
  const [objects, setObjects] = useState<Entry[]>([]);
  useEffect(() => {
    if (!maySee.value) return;
    const stop = new AbortController();
    const add = (entries: Entry[]): void => setObjects((before) => [...before, ...entries]);
    const { signal } = stop;
    const query = { limit: 100 };
    // A list that cannot be read is left out: the page of the list says why.
    call('get', '/admin/profiles', { query, signal }).then((list) => add(list.data.map((profile) => entry(profile.slug, 'nav.profiles', 'person', `/profiles/${encodeURIComponent(profile.slug)}`))), () => {});
    call('get', '/admin/tools', { query, signal }).then((list) => add(list.data.map((tool) => entry(tool.name, 'nav.tools', 'tool', `/tools/${encodeURIComponent(tool.name)}`))), () => {});
    call('get', '/admin/keys', { query, signal }).then((list) => add(list.data.map((key) => entry([key.label, key.prefix].filter(Boolean).join(' '), 'nav.keys', 'key', '/keys'))), () => {});
    return () => stop.abort();
  }, []);
  return objects;
}

function entry(label: string, hint: Key, icon: IconName, path: string): Entry {
  return { label, hint: t(hint), icon, run: () => go(path) };
}

function entriesFor(text: string, objects: Entry[]): Entry[] {
  const id = text.trim();
  const jumps: Entry[] = targetsOf(id).map(({ kind, path, query }) => ({
    label: kind === 'session' ? t('palette.session', { id }) : kind === 'text' ? t('palette.search', { text: id }) : t('palette.turn', { id }),
    hint: t('palette.jump'),
    icon: kind === 'session' ? 'chat' : kind === 'text' ? 'search' : 'list',
    run: () => go(path, query),
  }));
  const pages: Entry[] = PAGES.filter((page) => page.entry && isAllowed(page)).map((page) => ({
    label: page.entry ? t(page.entry.label) : '',
    hint: t('palette.page'),
    icon: page.entry?.icon ?? 'list',
    run: () => go(page.path),
  }));
  const actions: Entry[] = [
    { label: t('palette.dark'), hint: t('palette.action'), icon: 'sun', run: () => setTheme('dark') },
    { label: t('palette.light'), hint: t('palette.action'), icon: 'sun', run: () => setTheme('light') },
    { label: language.value === 'en' ? 'Bahasa Indonesia' : 'English', hint: t('palette.action'), icon: 'book', run: () => setLanguage(language.value === 'en' ? 'id' : 'en') },
    { label: t('action.signOut'), hint: t('palette.action'), icon: 'out', run: () => void signOut() },
  ];
  if (mayChange.value) actions.unshift(entry(t('profiles.new'), 'palette.action', 'plus', '/profiles'), entry(t('tools.new'), 'palette.action', 'plus', '/tools'), entry(t('keys.new'), 'palette.action', 'plus', '/keys'));
  if (isOperator.value) actions.unshift(entry(t('system.reload'), 'palette.action', 'refresh', '/system'));
  const wanted = id.toLowerCase();
  const search: Entry[] =
    id && !jumps.length ? [{ label: t('palette.search', { text: id }), hint: t('nav.turns'), icon: 'search', run: () => go('/turns', { q: id }) }] : [];
  return [...jumps, ...[...pages, ...(wanted ? objects : []), ...actions].filter((entry) => entry.label.toLowerCase().includes(wanted)), ...search].slice(0, 12);
}
