// The editor of a mode.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { diffLines } from '../diff';
import { useAction, useLoad, useStored } from '../hooks';
import { t } from '../i18n';
import { go } from '../router';
import { mayChange } from '../session';
import { Confirm, Dialog, toast } from '../ui/dialog';
import { Diff } from '../ui/diff';
import { Card, Failure, Loading, Notice, Page, TextArea, TextField } from '../ui/parts';
import { ToolPicker } from '../ui/tool-picker';

interface Draft {
  name: string;
  display_name: string;
  system_prompt: string;
  tools: string[];
}

export default function ModePage({ parameters }: { parameters: Record<string, string> }) {
  const name = parameters.name ?? '';
  const loaded = useLoad(async (signal) => (name === 'new' ? null : await call('get', '/admin/modes/{name}', { path: { name }, signal })), [name]);
  const title = name === 'new' ? t('modes.new') : name;
  if (loaded.error) {
    return (
      <Page title={title}>
        <Failure error={loaded.error} retry={loaded.reload} />
      </Page>
    );
  }
  if (loaded.data === undefined) {
    return (
      <Page title={title}>
        <Card>
          <Loading />
        </Card>
      </Page>
    );
  }
  return <Editor key={name} mode={loaded.data} reload={loaded.reload} />;
}

function Editor({ mode, reload }: { mode: Schemas['Mode'] | null; reload: () => void }) {
  const saved: Draft = { name: mode?.name ?? '', display_name: mode?.display_name ?? '', system_prompt: mode?.system_prompt ?? '', tools: mode?.tools ?? [] };
  const [draft, setDraft] = useStored<Draft | null>(`mode.${mode?.name ?? 'new'}`, null);
  const value = draft ?? saved;
  const [reviewing, setReviewing] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const dirty = JSON.stringify(value) !== JSON.stringify(saved);
  const set = (change: Partial<Draft>): void => setDraft({ ...value, ...change });
  const save = useAction(async () => {
    const name = mode?.name ?? value.name.trim();
    await send('put', '/admin/modes/{name}', { path: { name }, body: { ...mode, display_name: value.display_name.trim() || null, system_prompt: value.system_prompt, tools: value.tools } });
    setDraft(null);
    setReviewing(false);
    toast(t('state.saved'));
    if (mode) reload();
    else go(`/modes/${encodeURIComponent(name)}`, {}, true);
  });
  const writable = mayChange.value;
  return (
    <Page
      title={mode ? mode.display_name || mode.name : t('modes.new')}
      actions={
        writable && (
          <>
            {mode && !mode.seeded && (
              <button type="button" class="button danger" onClick={() => setDeleting(true)}>
                {t('action.delete')}
              </button>
            )}
            <button type="button" class="button primary" disabled={!dirty || (!mode && !value.name.trim())} onClick={() => setReviewing(true)}>
              {t('action.review')}
            </button>
          </>
        )
      }
    >
      {dirty && <Notice actions={<button type="button" class="button small" onClick={() => setDraft(null)}>{t('action.discard')}</button>}>{t('state.unsaved')}</Notice>}
      <Card>
        <fieldset class="stack" disabled={!writable}>
          {!mode && <TextField label={t('modes.name')} value={value.name} onInput={(name) => set({ name })} placeholder="review" />}
          <TextField label={t('modes.display')} value={value.display_name} onInput={(display_name) => set({ display_name })} />
          <TextArea label={t('profiles.prompt')} rows={14} value={value.system_prompt} onInput={(system_prompt) => set({ system_prompt })} />
          <ToolPicker selected={value.tools} onChange={(tools) => set({ tools })} />
        </fieldset>
      </Card>
      {reviewing && (
        <Dialog
          title={t('profiles.reviewTitle')}
          wide
          onClose={() => setReviewing(false)}
          foot={
            <>
              <button type="button" class="button" onClick={() => setReviewing(false)}>
                {t('action.cancel')}
              </button>
              <button type="button" class="button primary" disabled={save.busy} onClick={() => void save.run()}>
                {t('action.save')}
              </button>
            </>
          }
        >
          <Diff label={t('profiles.prompt')} lines={diffLines(saved.system_prompt, value.system_prompt)} />
          {save.error && <Failure error={save.error} />}
        </Dialog>
      )}
      {deleting && mode && (
        <Confirm
          title={t('modes.deleteTitle', { name: mode.name })}
          action={t('action.delete')}
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await send('delete', '/admin/modes/{name}', { path: { name: mode.name } });
            setDraft(null);
            toast(t('state.deleted'));
            go('/profiles');
          }}
        >
          <p>{t('modes.deleteText')}</p>
        </Confirm>
      )}
    </Page>
  );
}
