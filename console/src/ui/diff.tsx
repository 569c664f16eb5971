// Lines that were removed and added.

import { t } from '../i18n';
import type { DiffLine } from '../diff';

const MARKS = { same: ' ', added: '+', removed: '−' } as const;

export function Diff({ lines, label }: { lines: DiffLine[]; label: string }) {
  const changed = lines.some((line) => line.change !== 'same');
  if (!changed) return <p class="muted">{t('diff.none')}</p>;
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {lines.map((line, index) => (
        <div key={index} class={`diff-line ${line.change}`}>
          <span aria-hidden="true">{MARKS[line.change]}</span>
          {line.change !== 'same' && <span class="hidden-text">{line.change === 'added' ? t('diff.added') : t('diff.removed')}</span>}
          <span class="text-block">{line.line || ' '}</span>
        </div>
      ))}
    </div>
  );
}
