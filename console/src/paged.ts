// Lists that are loaded page by page.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

interface ListPage<T> {
  data: T[];
  has_more: boolean;
  last_id?: string | number | null;
}

export interface Paged<T> {
  rows: T[];
  error: Error | undefined;
  loading: boolean;
  more: boolean;
  next: () => void;
  reload: () => void;
}

export function usePaged<T>(load: (after: string | undefined, signal: AbortSignal) => Promise<ListPage<T>>, inputs: unknown[]): Paged<T> {
  const [state, setState] = useState<{ rows: T[]; after?: string; more: boolean; loading: boolean; error?: Error }>({ rows: [], more: false, loading: true });
  const [turn, setTurn] = useState(0);
  const stop = useRef(new AbortController());
  const fetchPage = useCallback(
    (after: string | undefined) => {
      const { signal } = stop.current;
      setState((before) => ({ ...before, loading: true, error: undefined }));
      load(after, signal).then(
        (page) => {
          if (signal.aborted) return;
          const last = page.last_id === null || page.last_id === undefined ? undefined : String(page.last_id);
          setState((before) => ({ rows: after ? [...before.rows, ...page.data] : page.data, after: last, more: page.has_more, loading: false }));
        },
        (error: unknown) => {
          if (!signal.aborted) setState((before) => ({ ...before, loading: false, error: error as Error }));
        },
      );
    },
    [...inputs],
  );
  useEffect(() => {
    stop.current = new AbortController();
    fetchPage(undefined);
    const current = stop.current;
    return () => current.abort();
  }, [fetchPage, turn]);
  return {
    rows: state.rows,
    error: state.error,
    loading: state.loading,
    more: state.more,
    next: () => fetchPage(state.after),
    reload: useCallback(() => setTurn((before) => before + 1), []),
  };
}
