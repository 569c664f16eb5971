// What was typed into a form and not sent yet. It stays in the tab: after the form was closed, a reload, and a new sign-in.

import { useCallback, useState } from 'preact/hooks';

const PREFIX = 'amalgam.draft.';

/** The state of a form, its setter, and what forgets it once the form was sent. Not for secrets. */
export function useDraft<T>(form: string, initial: T): [T, (value: T) => void, () => void] {
  const [state, setState] = useState<{ form: string; value: T }>(() => ({ form, value: read(form, initial) }));
  // A form may become that of another object.
  const value = state.form === form ? state.value : read(form, initial);
  const set = useCallback(
    (next: T) => {
      setState({ form, value: next });
      write(form, JSON.stringify(next));
    },
    [form],
  );
  const clear = useCallback(() => {
    setState({ form, value: initial });
    write(form, null);
  }, [form]);
  return [value, set, clear];
}

/** Forgets all drafts: the next user of the tab is another one. */
export function clearDrafts(): void {
  try {
    for (const name of Object.keys(sessionStorage)) if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
  } catch {
    // Storage may be disabled; then there are none.
  }
}

function read<T>(form: string, initial: T): T {
  try {
    const stored = sessionStorage.getItem(PREFIX + form);
    return stored === null ? initial : (JSON.parse(stored) as T);
  } catch {
    return initial;
  }
}

function write(form: string, text: string | null): void {
  try {
    if (text === null) sessionStorage.removeItem(PREFIX + form);
    else sessionStorage.setItem(PREFIX + form, text);
  } catch {
    // It lasts for as long as the form.
  }
}
