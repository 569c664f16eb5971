// Dialogs, confirmations and short messages.

import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { t } from '../i18n';
import { Failure, IconButton } from './parts';

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; foot?: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={props.wide ? 'wide' : ''}
      aria-label={props.title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
    >
      <div class="dialog-head">
        <h2>{props.title}</h2>
        <IconButton icon="close" label={t('action.close')} onClick={props.onClose} />
      </div>
      <div class="dialog-body stack">{props.children}</div>
      {props.foot && <div class="dialog-foot">{props.foot}</div>}
    </dialog>
  );
}

/** Asks before something is gone: says what will be gone, and shows why it failed. */
export function Confirm(props: { title: string; children: ComponentChildren; action: string; onConfirm: () => Promise<void>; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const confirm = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await props.onConfirm();
      props.onClose();
    } catch (failure) {
      setError(failure as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={props.title}
      onClose={props.onClose}
      foot={
        <>
          <button type="button" class="button" onClick={props.onClose}>
            {t('action.cancel')}
          </button>
          <button type="button" class="button danger" disabled={busy} onClick={() => void confirm()}>
            {props.action}
          </button>
        </>
      }
    >
      {props.children}
      {error && <Failure error={error} />}
    </Dialog>
  );
}

const messages = signal<{ id: number; text: string }[]>([]);
let next = 0;

/** Shows a short message for a few seconds. */
export function toast(text: string): void {
  const id = (next += 1);
  messages.value = [...messages.value, { id, text }];
  setTimeout(() => (messages.value = messages.value.filter((message) => message.id !== id)), 4000);
}

export function Toasts() {
  return (
    <div class="toast-area" role="status" aria-live="polite">
      {messages.value.map((message) => (
        <div class="toast" key={message.id}>
          {message.text}
        </div>
      ))}
    </div>
  );
}
