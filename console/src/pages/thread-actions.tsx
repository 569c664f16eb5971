// What can be done with a thread, a session or a conversation: export and delete.

import { useState } from 'preact/hooks';
import { send } from '../api/client';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { go } from '../router';
import { mayChange } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';

/** Saves everything as a JSON file, however many pages it has. */
export function ExportButton({ name, load, onError }: { name: string; load: () => Promise<unknown>; onError: (error: Error | undefined) => void }) {
  const save = useAction(async () => {
    onError(undefined);
    try {
      const url = URL.createObjectURL(new Blob([JSON.stringify(await load(), null, 2)], { type: 'application/json' }));
      const anchor = document.createElement('a');
      anchor.href = url;
      anchor.download = `${name}.json`;
      anchor.click();
      URL.revokeObjectURL(url);
    } catch (error) {
      onError(error as Error);
    }
  });
  return (
    <button type="button" class="button" disabled={save.busy} onClick={() => void save.run()}>
      <Icon name="download" />
      {t('sessions.export')}
    </button>
  );
}

export function DeleteButton({ title, text, path, back }: { title: string; text: string; path: string; back: string }) {
  const [asking, setAsking] = useState(false);
  if (!mayChange.value) return null;
  return (
    <>
      <button type="button" class="button danger" onClick={() => setAsking(true)}>
        {t('action.delete')}
      </button>
      {asking && (
        <Confirm
          title={title}
          action={t('action.delete')}
          onClose={() => setAsking(false)}
          onConfirm={async () => {
            await send('delete', path);
            toast(t('state.deleted'));
            go('/sessions', { tab: back || null });
          }}
        >
          <p>{text}</p>
        </Confirm>
      )}
    </>
  );
}
