// Chooses tools of the tool bank. The bank is read when all tools are to be shown.

import { useState } from 'preact/hooks';
import { call } from '../api/client';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { Check, Failure } from './parts';

export function ToolPicker({ selected, onChange, whole }: { selected: string[]; onChange: (names: string[]) => void; whole?: boolean }) {
  const [all, setAll] = useState(whole ?? false);
  const [removed, setRemoved] = useState<string[]>([]);
  const tools = useLoad(async (signal) => (all ? (await call('get', '/admin/tools', { query: { limit: 100 }, signal })).data : []), [all]);
  const names = [...new Set([...(tools.data?.map((tool) => tool.name) ?? []), ...selected, ...removed])].sort();
  const choose = (name: string, on: boolean): void => {
    if (!on) setRemoved([...removed, name]);
    onChange(on ? [...selected, name] : selected.filter((one) => one !== name));
  };
  return (
    <fieldset class="field">
      <legend>{t('turns.tools')}</legend>
      {tools.error && <Failure error={tools.error} retry={tools.reload} />}
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
