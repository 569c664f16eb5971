// Loading data, shortcuts and small state.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  loading: boolean;
  reload: () => void;
  set: (data: T) => void;
}

/** Loads data when a value of `inputs` changes. A newer request stops an older one. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, inputs: unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data?: T; error?: Error; loading: boolean }>({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    setState((before) => ({ data: before.data, loading: true }));
    load(stop.signal).then(
      (data) => {
        if (!stop.signal.aborted) setState({ data, loading: false });
      },
      (error: unknown) => {
        if (!stop.signal.aborted) setState({ error: error as Error, loading: false });
      },
    );
    return () => stop.abort();
  }, [...inputs, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const set = useCallback((data: T) => setState({ data, loading: false }), []);
  return { data: state.data, error: state.error, loading: state.loading, reload, set };
}

/** A pending action: whether it runs, and why it failed. */
export function useAction<A extends unknown[]>(
  action: (...values: A) => Promise<void>,
): { run: (...values: A) => Promise<void>; busy: boolean; error: Error | undefined; clear: () => void } {
  const [state, setState] = useState<{ busy: boolean; error?: Error }>({ busy: false });
  const current = useRef(action);
  current.current = action;
  const run = useCallback(async (...values: A) => {
    setState({ busy: true });
    try {
      await current.current(...values);
      setState({ busy: false });
    } catch (error) {
      setState({ busy: false, error: error as Error });
    }
  }, []);
  const clear = useCallback(() => setState({ busy: false }), []);
  return { run, busy: state.busy, error: state.error, clear };
}

/** State that survives a reload of the page. Text that was typed is not lost. */
export function useStored<T>(name: string, initial: T): [T, (value: T) => void] {
  const key = `amalgam.${name}`;
  const [value, setValue] = useState<T>(() => {
    try {
      const stored = localStorage.getItem(key);
      return stored === null ? initial : (JSON.parse(stored) as T);
    } catch {
      return initial;
    }
  });
  const set = useCallback(
    (next: T) => {
      setValue(next);
      try {
        localStorage.setItem(key, JSON.stringify(next));
      } catch {
        // It lasts for as long as the page.
      }
    },
    [key],
  );
  return [value, set];
}

/** Runs an action for a key, unless the user is typing. */
export function useShortcut(keys: Record<string, (event: KeyboardEvent) => void>): void {
  const current = useRef(keys);
  current.current = keys;
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (event.metaKey || event.ctrlKey || event.altKey) return;
      const target = event.target as HTMLElement | null;
      if (target?.closest('input, textarea, select, [contenteditable], dialog')) return;
      const action = current.current[event.key];
      if (action) action(event);
    };
    document.addEventListener('keydown', listen);
    return () => document.removeEventListener('keydown', listen);
  }, []);
}

/** The current time, renewed every so many milliseconds. */
export function useNow(interval: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), interval);
    return () => clearInterval(timer);
  }, [interval]);
  return now;
}

/** Whether the page is visible: nothing is asked again for a page that is not seen. */
export function useVisible(): boolean {
  const [visible, setVisible] = useState(document.visibilityState !== 'hidden');
  useEffect(() => {
    const change = (): void => setVisible(document.visibilityState !== 'hidden');
    document.addEventListener('visibilitychange', change);
    return () => document.removeEventListener('visibilitychange', change);
  }, []);
  return visible;
}

/** A value that follows another one after a pause. */
export function useDelayed<T>(value: T, ms: number): T {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return delayed;
}
