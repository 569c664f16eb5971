// A list of rows of one height that draws only what is visible, and is used with the arrow keys.

import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface VirtualListProps {
  count: number;
  rowHeight: number;
  label: string;
  header?: ComponentChildren;
  /** The width that the columns need. */
  minWidth?: number;
  selected: number;
  onSelect: (index: number) => void;
  onOpen: (index: number) => void;
  /** Called when the last rows become visible. */
  onEnd?: () => void;
  row: (index: number) => ComponentChildren;
  /** Rows that were added at the top since the last drawing: the view stays where it is. */
  added?: number;
}

/** Rows above and below the visible ones that are drawn too. */
const MARGIN = 8;

/** Elements are used again for other rows, which is quicker than making new ones. */
const SLOTS = 128;

/** The rows to draw for a scroll position. */
export function visibleRows(top: number, height: number, rowHeight: number, count: number): { first: number; last: number } {
  const first = Math.max(0, Math.min(count, Math.floor(top / rowHeight) - MARGIN));
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + MARGIN);
  return { first, last: Math.max(first, last) };
}

export function VirtualList(props: VirtualListProps) {
  const view = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const element = view.current;
    if (!element) return;
    const measure = (): void => setScroll({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener('scroll', measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', measure);
    };
  }, []);
  useLayoutEffect(() => {
    const element = view.current;
    if (element && props.added && element.scrollTop > 0) element.scrollTop += props.added * props.rowHeight;
  }, [props.count, props.added]);
  const { first, last } = visibleRows(scroll.top, scroll.height, props.rowHeight, props.count);
  useEffect(() => {
    if (props.onEnd && last >= props.count - MARGIN) props.onEnd();
  }, [last, props.count, props.onEnd]);
  const show = (index: number): void => {
    const element = view.current;
    if (!element) return;
    const top = index * props.rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    if (top + props.rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + props.rowHeight - element.clientHeight;
  };
  const keys = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(scroll.height / props.rowHeight) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -props.count, End: props.count };
    const step = steps[event.key];
    if (step !== undefined && props.count) {
      event.preventDefault();
      const next = Math.max(0, Math.min(props.count - 1, props.selected + step));
      props.onSelect(next);
      show(next);
    } else if (event.key === 'Enter' && props.selected >= 0) {
      event.preventDefault();
      props.onOpen(props.selected);
    }
  };
  const width = { minWidth: props.minWidth ? `${props.minWidth}px` : undefined };
  const rows: ComponentChildren[] = [];
  for (let index = first; index < last; index += 1) {
    rows.push(
      <div
        key={index % SLOTS}
        id={`row-${index}`}
        role="row"
        aria-rowindex={index + 2}
        aria-selected={index === props.selected}
        class="v-row"
        style={{ transform: `translateY(${index * props.rowHeight}px)`, height: `${props.rowHeight}px` }}
        onClick={(event) => {
          props.onSelect(index);
          if (!(event.target as Element).closest('a, button')) props.onOpen(index);
        }}
      >
        {props.row(index)}
      </div>,
    );
  }
  return (
    <div
      class="v-view"
      ref={view}
      tabIndex={0}
      role="grid"
      aria-label={props.label}
      aria-rowcount={props.count + 1}
      aria-activedescendant={props.selected >= 0 ? `row-${props.selected}` : undefined}
      onKeyDown={keys}
    >
      {props.header && (
        <div role="row" aria-rowindex={1} class="v-head" style={width}>
          {props.header}
        </div>
      )}
      <div class="v-space" role="rowgroup" style={{ height: `${props.count * props.rowHeight}px`, ...width }}>
        {rows}
      </div>
    </div>
  );
}
