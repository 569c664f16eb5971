// A long text as the server has it, searched in place. Only the visible lines are drawn.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { bytes } from '../format';
import { useDelayed } from '../hooks';
import { t } from '../i18n';
import { CopyButton, IconButton } from './parts';
import { visibleRows } from './virtual-list';

const LINE = 18;
/** The width of a drawn line in characters; longer lines are broken. */
const WIDTH = 160;

/** Breaks a text into lines that can be drawn, without cutting a character in two. */
export function linesOf(text: string): string[] {
  const lines: string[] = [];
  for (const line of text.split('\n')) {
    if (line.length <= WIDTH) {
      lines.push(line);
      continue;
    }
    let at = 0;
    while (at < line.length) {
      let end = Math.min(line.length, at + WIDTH);
      const code = line.charCodeAt(end - 1);
      if (end < line.length && code >= 0xd800 && code < 0xdc00) end -= 1;
      lines.push(line.slice(at, end));
      at = end;
    }
  }
  return lines;
}

/** The numbers of the lines that contain a text, ignoring case. */
export function found(lines: string[], wanted: string): number[] {
  const needle = wanted.toLowerCase();
  return needle ? lines.flatMap((line, index) => (line.toLowerCase().includes(needle) ? [index] : [])) : [];
}

export function RawText({ text, label }: { text: string; label: string }) {
  const [wanted, setWanted] = useState('');
  const needle = useDelayed(wanted, 150);
  const [hit, setHit] = useState(0);
  const view = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 420 });
  const lines = useMemo(() => linesOf(text), [text]);
  const hits = useMemo(() => found(lines, needle), [lines, needle]);
  useEffect(() => setHit(0), [needle]);
  useEffect(() => {
    const line = hits[hit];
    if (line !== undefined && view.current) view.current.scrollTop = Math.max(0, line * LINE - 120);
  }, [hits, hit]);
  const { first, last } = visibleRows(scroll.top, scroll.height, LINE, lines.length);
  const move = (step: number): void => setHit(hits.length ? (hit + step + hits.length) % hits.length : 0);
  return (
    <div class="raw">
      <div class="row raw-head">
        <strong>{label}</strong>
        <span class="small muted">{bytes(new Blob([text]).size)}</span>
        <span class="grow" />
        <input
          class="input raw-search"
          type="search"
          aria-label={t('raw.search', { label })}
          placeholder={t('raw.find')}
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter') move(event.shiftKey ? -1 : 1);
          }}
        />
        {needle && (
          <>
            <span class="small muted" role="status">
              {hits.length ? `${hit + 1} / ${hits.length}` : t('raw.none')}
            </span>
            <IconButton icon="back" label={t('raw.previous')} small onClick={() => move(-1)} />
            <IconButton icon="next" label={t('raw.next')} small onClick={() => move(1)} />
          </>
        )}
        <CopyButton text={text} />
      </div>
      <div
        class="raw-view"
        ref={view}
        style={{ height: `${Math.min(420, lines.length * LINE + 12)}px` }}
        tabIndex={0}
        role="group"
        aria-label={label}
        onScroll={(event) => setScroll({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
      >
        <pre style={{ height: `${lines.length * LINE}px` }}>
          {lines.slice(first, last).map((line, index) => {
            const number = first + index;
            return (
              <div key={number} class={`raw-line${number === hits[hit] ? ' hit' : ''}`} style={{ transform: `translateY(${number * LINE}px)` }}>
                {needle ? marked(line, needle) : line}
              </div>
            );
          })}
        </pre>
      </div>
    </div>
  );
}

function marked(line: string, needle: string) {
  const low = line.toLowerCase();
  const wanted = needle.toLowerCase();
  const parts = [];
  let at = 0;
  for (let next = low.indexOf(wanted); next >= 0; next = low.indexOf(wanted, at)) {
    parts.push(line.slice(at, next), <mark key={next}>{line.slice(next, next + wanted.length)}</mark>);
    at = next + wanted.length;
  }
  return [...parts, line.slice(at)];
}
