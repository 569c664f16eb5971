// The path and the query of the page. Pages are at `/console/…`; links are plain anchors.

import { signal } from '@preact/signals';

export const BASE = '/console';

export interface Location {
  path: string;
  query: URLSearchParams;
}

function read(): Location {
  const path = window.location.pathname.slice(BASE.length).replace(/\/+$/, '') || '/';
  return { path, query: new URLSearchParams(window.location.search) };
}

export const location = signal<Location>(read());

let navigated = false;

/** Whether another page than the first one was opened. */
export function hasNavigated(): boolean {
  return navigated;
}

/** The address of a page for a link. */
export function href(path: string, query?: Record<string, string | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) if (value) search.set(name, value);
  const text = search.toString();
  return `${BASE}${path === '/' ? '/' : path}${text ? `?${text}` : ''}`;
}

/** Opens a page. */
export function go(path: string, query?: Record<string, string | null | undefined>, replace = false): void {
  const target = href(path, query);
  if (target === window.location.pathname + window.location.search) return;
  window.history[replace ? 'replaceState' : 'pushState'](null, '', target);
  const before = location.value.path;
  location.value = read();
  if (location.value.path !== before) {
    navigated = true;
    window.scrollTo(0, 0);
  }
}

/** Follows links inside the console without loading the page again. */
export function followLinks(): void {
  window.addEventListener('popstate', () => (location.value = read()));
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = event.target instanceof Element ? event.target.closest('a') : null;
    if (!anchor || anchor.target || anchor.hasAttribute('download') || anchor.origin !== window.location.origin) return;
    if (!anchor.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    if (anchor.hash && anchor.pathname === window.location.pathname && anchor.search === window.location.search) {
      document.getElementById(anchor.hash.slice(1))?.scrollIntoView();
      return;
    }
    go(anchor.pathname.slice(BASE.length) || '/', Object.fromEntries(new URLSearchParams(anchor.search)));
  });
}
