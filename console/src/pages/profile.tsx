// The editor of a profile: prompt, model and tools, with versions and a diff before saving.

import { useEffect, useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { diffLines } from '../diff';
import { dateTime } from '../format';
import { useAction, useLoad, useStored } from '../hooks';
import { t } from '../i18n';
import { go, href } from '../router';
import { mayChange, mayUse } from '../session';
import { Confirm, Dialog, toast } from '../ui/dialog';
import { Diff } from '../ui/diff';
import { ToolPicker } from '../ui/tool-picker';
import { Card, Check, Failure, Loading, Notice, Page, TextArea, TextField } from '../ui/parts';

type Profile = Schemas['Profile'];

interface Draft {
  slug: string;
  prompt: string;
  model: string;
  tools: string[];
  active: boolean;
}

const NEW: Draft = { slug: '', prompt: '', model: '', tools: [], active: true };

export default function ProfilePage({ parameters }: { parameters: Record<string, string> }) {
  const slug = parameters.slug ?? '';
  const isNew = slug === 'new';
  const loaded = useLoad(
    async (signal) => {
      if (isNew) return { profile: null, versions: [] as Profile[] };
      const path = { slug };
      const [profile, versions] = await Promise.all([
        call('get', '/admin/profiles/{slug}', { path, signal }),
        call('get', '/admin/profiles/{slug}/versions', { path, query: { limit: 50 }, signal }),
      ]);
      return { profile, versions: versions.data };
    },
    [slug],
  );
  if (loaded.error) {
    return (
      <Page title={slug}>
        <Failure error={loaded.error} retry={loaded.reload} />
      </Page>
    );
  }
  if (!loaded.data) {
    return (
      <Page title={slug}>
        <Card>
          <Loading />
        </Card>
      </Page>
    );
  }
  return <Editor key={slug} profile={loaded.data.profile} versions={loaded.data.versions} reload={loaded.reload} />;
}

function Editor({ profile, versions, reload }: { profile: Profile | null; versions: Profile[]; reload: () => void }) {
  const saved: Draft = profile ? { slug: profile.slug, prompt: profile.prompt, model: profile.model ?? '', tools: profile.tools, active: profile.active } : NEW;
  // A draft survives a reload of the page; it ends when it is saved.
  const [draft, setDraft] = useStored<Draft | null>(`profile.${profile?.slug ?? 'new'}`, null);
  const value = draft ?? saved;
  const [reviewing, setReviewing] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const [compared, setCompared] = useState<number | null>(null);
  const dirty = JSON.stringify(value) !== JSON.stringify(saved);
  const set = (change: Partial<Draft>): void => setDraft({ ...value, ...change });
  useEffect(() => {
    const warn = (event: BeforeUnloadEvent): void => event.preventDefault();
    if (!dirty) return;
    window.addEventListener('beforeunload', warn);
    return () => window.removeEventListener('beforeunload', warn);
  }, [dirty]);
  const save = useAction(async () => {
    const name = profile?.slug ?? value.slug.trim();
    await send('put', '/admin/profiles/{slug}', { path: { slug: name }, body: { ...profile, prompt: value.prompt, model: value.model.trim() || null, tools: value.tools, active: value.active } });
    setDraft(null);
    setReviewing(false);
    toast(t('state.saved'));
    if (profile) reload();
    else go(`/profiles/${encodeURIComponent(name)}`, {}, true);
  });
  const writable = mayChange.value;
  return (
    <Page
      title={profile ? profile.slug : t('profiles.new')}
      about={profile && t('profiles.versionOf', { version: profile.version, time: dateTime(profile.updated_at * 1000) })}
      actions={
        <>
          {profile && mayUse.value && (
            <a class="button" href={href('/playground')}>
              {t('profiles.try')}
            </a>
          )}
          {profile && writable && (
            <button type="button" class="button danger" onClick={() => setDeleting(true)}>
              {t('action.delete')}
            </button>
          )}
          {writable && (
            <button type="button" class="button primary" disabled={!dirty || (!profile && !value.slug.trim())} onClick={() => setReviewing(true)}>
              {t('action.review')}
            </button>
          )}
        </>
      }
    >
      {dirty && (
        <Notice
          actions={
            <button type="button" class="button small" onClick={() => setDraft(null)}>
              {t('action.discard')}
            </button>
          }
        >
          {t('state.unsaved')}
        </Notice>
      )}
      <div class="editor">
        <Card>
          <fieldset class="stack" disabled={!writable}>
            {!profile && <TextField label={t('profiles.slug')} value={value.slug} onInput={(slug) => set({ slug })} placeholder="course-assistant" help={t('profiles.slugHelp')} />}
            <TextArea label={t('profiles.prompt')} rows={18} value={value.prompt} onInput={(prompt) => set({ prompt })} help={t('profiles.promptHelp', { count: value.prompt.length.toLocaleString() })} />
            <TextField label={t('turns.model')} value={value.model} onInput={(model) => set({ model })} placeholder={t('play.default')} />
            <ToolPicker selected={value.tools} onChange={(tools) => set({ tools })} />
            <Check label={t('profiles.active')} checked={value.active} onChange={(active) => set({ active })} />
          </fieldset>
        </Card>
        {profile && <Versions versions={versions} current={profile} compared={compared} onCompare={setCompared} onRestore={(version) => set({ prompt: version.prompt, model: version.model ?? '', tools: version.tools, active: version.active })} writable={writable} />}
      </div>
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
          <Diff label={t('profiles.prompt')} lines={diffLines(saved.prompt, value.prompt)} />
          <Changes before={saved} after={value} />
          {save.error && <Failure error={save.error} />}
        </Dialog>
      )}
      {deleting && profile && (
        <Confirm
          title={t('profiles.deleteTitle', { slug: profile.slug })}
          action={t('action.delete')}
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await send('delete', '/admin/profiles/{slug}', { path: { slug: profile.slug } });
            setDraft(null);
            toast(t('state.deleted'));
            go('/profiles');
          }}
        >
          <p>{t('profiles.deleteText', { count: versions.length })}</p>
        </Confirm>
      )}
    </Page>
  );
}

function Changes({ before, after }: { before: Draft; after: Draft }) {
  const list: string[] = [];
  if (before.model !== after.model) list.push(`${t('turns.model')}: ${before.model || t('play.default')} → ${after.model || t('play.default')}`);
  for (const tool of after.tools.filter((one) => !before.tools.includes(one))) list.push(`+ ${tool}`);
  for (const tool of before.tools.filter((one) => !after.tools.includes(one))) list.push(`− ${tool}`);
  if (before.active !== after.active) list.push(after.active ? t('state.active') : t('state.inactive'));
  if (!list.length) return null;
  return (
    <ul>
      {list.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}

function Versions(props: { versions: Profile[]; current: Profile; compared: number | null; onCompare: (version: number | null) => void; onRestore: (version: Profile) => void; writable: boolean }) {
  const shown = props.versions.find((version) => version.version === props.compared);
  return (
    <Card title={t('profiles.versions')} flush>
      <ul class="versions">
        {props.versions.map((version) => (
          <li key={version.version}>
            <div class="grow">
              <strong>{t('profiles.versionNumber', { version: version.version })}</strong>
              <div class="small muted">{dateTime(version.updated_at * 1000)}</div>
            </div>
            {version.version !== props.current.version && (
              <>
                <button type="button" class="button small" onClick={() => props.onCompare(version.version)}>
                  {t('profiles.compare')}
                </button>
                {props.writable && (
                  <button type="button" class="button small" onClick={() => props.onRestore(version)}>
                    {t('profiles.restore')}
                  </button>
                )}
              </>
            )}
          </li>
        ))}
      </ul>
      {shown && (
        <Dialog title={t('profiles.compareTitle', { from: shown.version, to: props.current.version })} wide onClose={() => props.onCompare(null)}>
          <Diff label={t('profiles.prompt')} lines={diffLines(shown.prompt, props.current.prompt)} />
        </Dialog>
      )}
    </Card>
  );
}
