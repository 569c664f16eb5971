// Chooses tools of the tool bank. The bank is read when all tools are to be shown.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { Check, Failure } from './parts';

/** With fewer tools than this, searching is no help. */
const MANY = 30;

/** The names of all tools, however many pages they have. */
async function allNames(signal: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  let after: string | null | undefined;
  do {
    const page: Schemas['ToolList'] = await call('get', '/admin/tools', { query: { limit: 100, after }, signal });
    names.push(...page.data.map((tool) => tool.name));
    after = page.has_more ? page.last_id : null;
  } while (after);
  return names;
}

export function ToolPicker({ selected, onChange, whole }: { selected: string[]; onChange: (names: string[]) => void; whole?: boolean }) {
  const [all, setAll] = useState(whole ?? false);
  const [removed, setRemoved] = useState<string[]>([]);
  const [query, setQuery] = useState('');
  const tools = useLoad(async (signal) => (all ? allNames(signal) : []), [all]);
  const known = [...new Set([...(tools.data ?? []), ...selected, ...removed])].sort();
  const wanted = query.trim().toLowerCase();
  const names = known.filter((name) => !wanted || name.toLowerCase().includes(wanted));
  const choose = (name: string, on: boolean): void => {
    if (!on) setRemoved([...removed, name]);
    onChange(on ? [...selected, name] : selected.filter((one) => one !== name));
  };
  return (
    <fieldset class="field">
      <legend>{t('turns.tools')}</legend>
      {tools.error && <Failure error={tools.error} retry={tools.reload} />}
      {known.length > MANY && <input class="input" type="search" aria-label={t('tools.find')} placeholder={t('tools.find')} value={query} onInput={(event) => setQuery(event.currentTarget.value)} />}
      <div class="tool-picker">
        {names.map((name) => (
          <Check key={name} label={<code>{name}</code>} checked={selected.includes(name)} onChange={(on) => choose(name, on)} />
        ))}
      </div>
      {!all && (
        <div>
          <button type="button" class="button small" onClick={() => setAll(true)}>
            {t('tools.all')}
          </button>
        </div>
      )}
      {all && !names.length && !tools.loading && <span class="small muted">{t('tools.none')}</span>}
    </fieldset>
  );
}
