// A long text exactly as the server has it, searched in place. Only the visible lines are drawn.

import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { bytes } from '../format';
import { useDelayed } from '../hooks';
import { t } from '../i18n';
import { found, lineAt, linesOf, type TextLine } from '../text-search';
import { CopyButton, IconButton } from './parts';
import { visibleRows } from './virtual-list';

const LINE = 18;
/** About the width of a character of the text. */
const CHARACTER = 7.3;

export function RawText({ text, label }: { text: string; label: string }) {
  const [wanted, setWanted] = useState('');
  const needle = useDelayed(wanted, 150);
  const [hit, setHit] = useState(0);
  const view = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 420 });
  const size = useMemo(() => new Blob([text]).size, [text]);
  const lines = useMemo(() => linesOf(text), [text]);
  const hits = useMemo(() => found(text, needle), [text, needle]);
  useEffect(() => setHit(0), [needle, text]);
  useEffect(() => {
    const place = hits[hit];
    const element = view.current;
    if (place === undefined || !element) return;
    const line = lineAt(lines, place);
    element.scrollTop = Math.max(0, line * LINE - 120);
    // To the side too, in characters of one width.
    const column = place - (lines[line]?.start ?? 0);
    element.scrollLeft = Math.max(0, column * CHARACTER - element.clientWidth / 2);
  }, [hits, hit]);
  const { first, last } = visibleRows(scroll.top, scroll.height, LINE, lines.length);
  const move = (step: number): void => setHit(hits.length ? (hit + step + hits.length) % hits.length : 0);
  return (
    <div class="raw">
      <div class="row raw-head">
        <strong>{label}</strong>
        <span class="small muted">{bytes(size)}</span>
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
          {lines.slice(first, last).map((line, index) => (
            <div key={first + index} class="raw-line" style={{ transform: `translateY(${(first + index) * LINE}px)` }}>
              {needle ? marked(line, hits, needle.length, hits[hit]) : line.text}
            </div>
          ))}
        </pre>
      </div>
    </div>
  );
}

/** The line with its matches marked; a match may begin in the line before, or end in the one behind. */
function marked(line: TextLine, hits: number[], length: number, current: number | undefined): ComponentChildren {
  const parts: ComponentChildren[] = [];
  const end = line.start + line.text.length;
  let at = line.start;
  for (let index = firstAfter(hits, line.start - length); index < hits.length; index += 1) {
    const place = hits[index] ?? 0;
    if (place >= end) break;
    const from = Math.max(place, at);
    const to = Math.min(place + length, end);
    if (to <= from) continue;
    parts.push(line.text.slice(at - line.start, from - line.start));
    parts.push(
      <mark key={place} class={place === current ? 'current' : ''}>
        {line.text.slice(from - line.start, to - line.start)}
      </mark>,
    );
    at = to;
  }
  return [...parts, line.text.slice(at - line.start)];
}

/** The index of the first of the sorted places behind another one. */
function firstAfter(places: number[], place: number): number {
  let low = 0;
  let high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((places[middle] ?? 0) > place) high = middle;
    else low = middle + 1;
  }
  return low;
}
