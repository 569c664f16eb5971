// Bars along a time axis.

import { duration } from '../format';
import { t, word } from '../i18n';
import type { Bar } from '../waterfall';

export function Waterfall({ bars }: { bars: Bar[] }) {
  const end = Math.max(1, ...bars.map((bar) => bar.startMs + bar.durationMs));
  const at = (ms: number): string => `${Math.max(0, Math.min(100, (ms / end) * 100))}%`;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return (
    <div class="waterfall" role="table" aria-label={t('turn.time')}>
      <div class="wf-axis" role="presentation">
        <span />
        <div>
          {ticks.map((tick) => (
            <span key={tick} class="small muted">
              {duration(tick * end)}
            </span>
          ))}
        </div>
        <span />
      </div>
      {bars.map((bar, index) => (
        <div class="wf-row" role="row" key={index}>
          <span role="rowheader" class={`wf-name depth-${bar.depth}`} title={bar.detail ?? bar.name}>
            {bar.step ? [word('span', bar.step), bar.name].filter(Boolean).join(' ') : bar.name}
          </span>
          <span role="cell" class="wf-track">
            <span class={`wf-bar ${bar.kind}${bar.failed ? ' failed' : ''}`} style={{ left: at(bar.startMs), width: at(bar.durationMs) }}>
              {bar.firstMs !== undefined && bar.durationMs > 0 && (
                <span class="wf-first" style={{ left: `${Math.min(100, (bar.firstMs / bar.durationMs) * 100)}%` }} title={`${t('turns.first')} ${duration(bar.firstMs)}`} />
              )}
            </span>
          </span>
          <span role="cell" class="num small">
            {duration(bar.durationMs)}
          </span>
        </div>
      ))}
    </div>
  );
}
