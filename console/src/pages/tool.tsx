// A tool of the bank: its definition, a trial call, statistics, and why it may not be offered.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { count, dateTime, duration } from '../format';
import { useAction, useLoad, useStored } from '../hooks';
import { t } from '../i18n';
import { go, location } from '../router';
import { argumentsOf, fieldsOf } from '../schema-form';
import { mayChange } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { Card, Check, Code, Empty, Failure, Field, Loading, Notice, Page, Select, TextArea, TextField } from '../ui/parts';

type BankTool = Schemas['BankTool'];

interface Draft {
  name: string;
  kind: string;
  description: string;
  parameters: string;
  settings: string;
  guidance: string;
  after: string;
  on_error: string;
  timeout: string;
  requires_approval: string;
  idempotent: boolean;
  active: boolean;
}

const HTTP = { method: 'GET', url: 'https://example.com/weather?city={city}' };
const PARAMETERS = { type: 'object', properties: { city: { type: 'string', description: 'The city.' } }, required: ['city'], additionalProperties: false };

function draftOf(tool: BankTool | null): Draft {
  return {
    name: tool?.name ?? '',
    kind: tool?.kind ?? 'http',
    description: tool?.description ?? '',
    parameters: JSON.stringify(tool?.parameters ?? PARAMETERS, null, 2),
    settings: JSON.stringify(tool?.settings ?? HTTP, null, 2),
    guidance: tool?.guidance ?? '',
    after: tool?.after_call_instruction ?? '',
    on_error: tool?.on_error ?? 'continue',
    timeout: String(tool?.timeout ?? 30),
    requires_approval: String(tool?.requires_approval ?? false),
    idempotent: tool?.idempotent ?? false,
    active: tool?.active ?? true,
  };
}

export default function ToolPage({ parameters }: { parameters: Record<string, string> }) {
  const name = parameters.name ?? '';
  const common = location.value.query.get('common');
  const loaded = useLoad(
    async (signal) => {
      if (name === 'new') return { tool: null, statistics: null };
      const options = { path: { name }, query: { common }, signal };
      const [tool, statistics] = await Promise.all([
        call('get', '/admin/tools/{name}', options),
        call('get', '/admin/tools/{name}/statistics', options).catch(() => null),
      ]);
      return { tool: tool as BankTool, statistics };
    },
    [name, common],
  );
  const title = name === 'new' ? t('tools.new') : name;
  if (loaded.error) {
    return (
      <Page title={title}>
        <Failure error={loaded.error} retry={loaded.reload} />
      </Page>
    );
  }
  if (!loaded.data) {
    return (
      <Page title={title}>
        <Card>
          <Loading />
        </Card>
      </Page>
    );
  }
  return <Editor key={`${name}/${common}`} tool={loaded.data.tool} statistics={loaded.data.statistics} common={common} reload={loaded.reload} />;
}

function Editor({ tool, statistics, common, reload }: { tool: BankTool | null; statistics: Schemas['ToolStatistics'] | null; common: string | null; reload: () => void }) {
  const saved = draftOf(tool);
  const [draft, setDraft] = useStored<Draft | null>(`tool.${common ?? 'own'}.${tool?.name ?? 'new'}`, null);
  // A draft of an earlier version may lack fields.
  const value = draft ? { ...saved, ...draft } : saved;
  const [deleting, setDeleting] = useState(false);
  const dirty = JSON.stringify(value) !== JSON.stringify(saved);
  const set = (change: Partial<Draft>): void => setDraft({ ...value, ...change });
  const json = (name: string, text: string): unknown => {
    try {
      return JSON.parse(text || '{}');
    } catch (error) {
      throw new Error(`${name}: ${(error as Error).message}`);
    }
  };
  const save = useAction(async () => {
    const name = tool?.name ?? value.name.trim();
    const approval = value.requires_approval;
    await send('put', '/admin/tools/{name}', {
      path: { name },
      query: { common },
      body: {
        ...tool,
        kind: value.kind,
        description: value.description,
        parameters: json(t('tools.parameters'), value.parameters),
        settings: json(t('tools.settings'), value.settings),
        guidance: value.guidance.trim() || null,
        after_call_instruction: value.after.trim() || null,
        on_error: value.on_error,
        timeout: Number(value.timeout) || null,
        requires_approval: approval === 'false' ? false : approval,
        idempotent: value.idempotent,
        active: value.active,
      },
    });
    setDraft(null);
    toast(t('state.saved'));
    if (tool) reload();
    else go(`/tools/${encodeURIComponent(name)}`, {}, true);
  });
  const writable = mayChange.value;
  return (
    <Page
      title={tool ? tool.name : t('tools.new')}
      about={tool?.common ? t('tools.commonText') : undefined}
      actions={
        writable && (
          <>
            {tool && (
              <button type="button" class="button danger" onClick={() => setDeleting(true)}>
                {t('action.delete')}
              </button>
            )}
            <button type="button" class="button primary" disabled={!dirty || save.busy || (!tool && !value.name.trim())} onClick={() => void save.run()}>
              {t('action.save')}
            </button>
          </>
        )
      }
    >
      {save.error && <Failure error={save.error} />}
      {dirty && <Notice actions={<button type="button" class="button small" onClick={() => setDraft(null)}>{t('action.discard')}</button>}>{t('state.unsaved')}</Notice>}
      <div class="editor">
        <Card>
          <fieldset class="stack" disabled={!writable}>
            {!tool && <TextField label={t('tools.name')} code value={value.name} onInput={(name) => set({ name })} placeholder="get_weather" />}
            <div class="play-choice">
              <Select label={t('tools.kind')} value={value.kind} onChange={(kind) => set({ kind })} options={['http', 'mcp', 'builtin', 'client'].map((kind) => ({ value: kind, label: kind }))} />
              <Select
                label={t('tools.approval')}
                value={value.requires_approval}
                onChange={(requires_approval) => set({ requires_approval })}
                options={[
                  { value: 'false', label: t('tools.approval.none') },
                  { value: 'caller', label: t('tools.approval.caller') },
                  { value: 'admin', label: t('tools.approval.admin') },
                ]}
              />
              <Select
                label={t('tools.onError')}
                value={value.on_error}
                onChange={(on_error) => set({ on_error })}
                options={[
                  { value: 'continue', label: t('tools.onError.continue') },
                  { value: 'fail_turn', label: t('tools.onError.fail') },
                ]}
              />
              <TextField label={t('tools.timeout')} value={value.timeout} onInput={(timeout) => set({ timeout })} />
            </div>
            <TextArea label={t('tools.description')} rows={2} value={value.description} onInput={(description) => set({ description })} />
            <TextArea label={t('tools.parameters')} code rows={10} value={value.parameters} onInput={(parameters) => set({ parameters })} error={wrong(value.parameters)} />
            <TextArea label={t('tools.settings')} code rows={6} value={value.settings} onInput={(settings) => set({ settings })} error={wrong(value.settings)} help={t('tools.settingsHelp')} />
            <TextArea label={t('tools.guidance')} rows={2} value={value.guidance} onInput={(guidance) => set({ guidance })} help={t('tools.guidanceHelp')} />
            <TextArea label={t('tools.after')} rows={2} value={value.after} onInput={(after) => set({ after })} help={t('tools.afterHelp')} />
            <div class="row">
              <Check label={t('tools.idempotent')} checked={value.idempotent} onChange={(idempotent) => set({ idempotent })} />
              <Check label={t('state.active')} checked={value.active} onChange={(active) => set({ active })} />
            </div>
          </fieldset>
        </Card>
        {tool && (
          <div class="stack">
            <Statistics statistics={statistics} />
            {writable && tool.kind !== 'client' && <Trial tool={tool} common={common} />}
            <Diagnosis name={tool.name} />
          </div>
        )}
      </div>
      {deleting && tool && (
        <Confirm
          title={t('tools.deleteTitle', { name: tool.name })}
          action={t('action.delete')}
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await send('delete', '/admin/tools/{name}', { path: { name: tool.name }, query: { common } });
            setDraft(null);
            toast(t('state.deleted'));
            go('/tools');
          }}
        >
          <p>{t('tools.deleteText')}</p>
        </Confirm>
      )}
    </Page>
  );
}

function wrong(text: string): string | undefined {
  try {
    JSON.parse(text || '{}');
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

function Statistics({ statistics }: { statistics: Schemas['ToolStatistics'] | null }) {
  return (
    <Card title={t('tools.statistics')}>
      {statistics && statistics.calls > 0 ? (
        <dl class="facts">
          <dt>{t('tools.calls')}</dt>
          <dd>{count(statistics.calls)}</dd>
          <dt>{t('home.failed')}</dt>
          <dd class={statistics.failed ? 'bad' : ''}>{count(statistics.failed)}</dd>
          <dt>{t('tools.average')}</dt>
          <dd>{duration(statistics.average_ms)}</dd>
          <dt>{t('tools.longest')}</dt>
          <dd>{duration(statistics.longest_ms)}</dd>
          <dt>{t('tools.last')}</dt>
          <dd>{statistics.last_called_at ? dateTime(statistics.last_called_at * 1000) : '–'}</dd>
        </dl>
      ) : (
        <Empty title={t('tools.noCalls')} />
      )}
    </Card>
  );
}

/** A call with arguments from a form that the schema makes. */
function Trial({ tool, common }: { tool: BankTool; common: string | null }) {
  const fields = fieldsOf(tool.parameters);
  const [values, setValues] = useDraft<Record<string, string>>(`tool.${tool.name}`, {});
  const [result, setResult] = useState<Schemas['Trial']>();
  const trial = useAction(async () => {
    setResult(await call('post', '/admin/tools/{name}/try', { path: { name: tool.name }, query: { common }, body: { arguments: argumentsOf(fields, values) } }));
  });
  const set = (name: string, value: string): void => setValues({ ...values, [name]: value });
  return (
    <Card title={t('tools.try')}>
      <form
        class="stack tight"
        onSubmit={(event) => {
          event.preventDefault();
          void trial.run();
        }}
      >
        {fields.map((field) => {
          const label = `${field.name}${field.required ? ' *' : ''}`;
          const value = values[field.name] ?? '';
          if (field.type === 'choice' || field.type === 'boolean') {
            const options = (field.type === 'boolean' ? ['true', 'false'] : field.options).map((option) => ({ value: option, label: option }));
            return <Select key={field.name} label={label} help={field.description} value={value} options={[{ value: '', label: '–' }, ...options]} onChange={(next) => set(field.name, next)} />;
          }
          if (field.type === 'json') return <TextArea key={field.name} label={label} help={field.description} code rows={2} value={value} onInput={(next) => set(field.name, next)} />;
          return <TextField key={field.name} label={label} help={field.description} value={value} onInput={(next) => set(field.name, next)} />;
        })}
        {!fields.length && <p class="muted">{t('tools.noArguments')}</p>}
        <div class="row">
          <button type="submit" class="button primary" disabled={trial.busy}>
            {t('tools.run')}
          </button>
          {result && <span class="small muted">{duration(result.duration_ms)}</span>}
        </div>
        {trial.error && <Failure error={trial.error} />}
        {result?.error && (
          <Notice tone="wrong">
            <strong>{result.error.code}</strong>
            <p class="text-block">{[result.error.message, result.error.detail].filter(Boolean).join('\n')}</p>
          </Notice>
        )}
        {result && !result.error && <Code text={typeof result.output === 'string' ? result.output : JSON.stringify(result.output, null, 2)} />}
      </form>
    </Card>
  );
}

/** Why the tool is or is not offered to a profile. */
function Diagnosis({ name }: { name: string }) {
  const [agent, setAgent] = useState('');
  // Profiles are suggested once a profile is to be entered.
  const [asked, setAsked] = useState(false);
  const profiles = useLoad(async (signal) => (asked ? (await call('get', '/admin/profiles', { query: { limit: 100 }, signal })).data : []), [asked]);
  const [result, setResult] = useState<Schemas['Diagnosis']>();
  const check = useAction(async () => {
    setResult(await call('get', '/admin/diagnose', { query: { tool: name, agent: agent.trim() || null } }));
  });
  return (
    <Card title={t('tools.diagnose')}>
      <form
        class="stack tight"
        onSubmit={(event) => {
          event.preventDefault();
          void check.run();
        }}
      >
        <Field label={t('turns.profile')}>
          {(id, described) => (
            <>
              <input id={id} class="input" list={`${id}-profiles`} value={agent} placeholder={t('tools.noProfile')} aria-describedby={described} onFocus={() => setAsked(true)} onInput={(event) => setAgent(event.currentTarget.value)} />
              <datalist id={`${id}-profiles`}>
                {profiles.data?.map((profile) => (
                  <option value={profile.slug} key={profile.slug} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <div class="row">
          <button type="submit" class="button" disabled={check.busy}>
            {t('tools.check')}
          </button>
        </div>
        {check.error && <Failure error={check.error} />}
        {result && (
          <ul class="bullets">
            {result.verdict.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        )}
      </form>
    </Card>
  );
}
