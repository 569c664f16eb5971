// Chooses tools of the tool bank.

import { call } from '../api/client';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { Check, Failure } from './parts';

export function ToolPicker({ selected, onChange }: { selected: string[]; onChange: (names: string[]) => void }) {
  const tools = useLoad((signal) => call('get', '/admin/tools', { query: { limit: 100 }, signal }), []);
  const names = [...new Set([...(tools.data?.data.map((tool) => tool.name) ?? []), ...selected])].sort();
  return (
    <fieldset class="field">
      <legend>{t('turns.tools')}</legend>
      {tools.error && <Failure error={tools.error} />}
      <div class="tool-picker">
        {names.map((name) => (
          <Check key={name} label={<code>{name}</code>} checked={selected.includes(name)} onChange={(on) => onChange(on ? [...selected, name] : selected.filter((one) => one !== name))} />
        ))}
      </div>
      {!names.length && !tools.loading && <span class="small muted">{t('tools.none')}</span>}
    </fieldset>
  );
}
