// The time line of a turn: spans if the server has them, else what the records of calls say.

import type { Schemas } from './api/client';

export interface Bar {
  name: string;
  /** The kind of step, which has a text in the user's language. */
  step?: string;
  kind: 'turn' | 'model' | 'tool' | 'queue' | 'store' | 'prompt' | 'other';
  startMs: number;
  durationMs: number;
  /** Milliseconds until the first token. */
  firstMs?: number;
  detail?: string;
  failed?: boolean;
  depth: number;
}

type Turn = Schemas['Turn'];

type Span = Schemas['TurnSpan'];

export function barsOf(turn: Turn): Bar[] {
  const begun = turn.summary?.created_at_ms ?? turn.calls[0]?.asked_at_ms ?? 0;
  if (turn.spans?.length) return barsOfSpans(turn.spans);
  const bars: Bar[] = [];
  const total = turn.summary?.duration_ms;
  if (total !== null && total !== undefined) bars.push({ name: '', step: 'turn', kind: 'turn', startMs: 0, durationMs: total, depth: 0 });
  const first = turn.calls[0];
  if (first && first.asked_at_ms > begun) bars.push({ name: '', step: 'prompt', kind: 'prompt', startMs: 0, durationMs: first.asked_at_ms - begun, depth: 1 });
  for (const call of turn.calls) {
    bars.push({
      name: `${call.upstream}/${call.model}`,
      step: 'model_call',
      kind: 'model',
      startMs: call.asked_at_ms - begun,
      durationMs: call.duration_ms,
      firstMs: call.first_token_ms ?? undefined,
      failed: Boolean(call.error),
      detail: call.error ?? undefined,
      depth: 1,
    });
  }
  return bars.sort((one, other) => one.depth - other.depth || one.startMs - other.startMs);
}

const KINDS: Record<Span['kind'], Bar['kind']> = { queue: 'queue', prompt: 'prompt', retrieval: 'prompt', model_call: 'model', tool_call: 'tool', store: 'store' };

/** One bar for each span, below one for all of them together. */
function barsOfSpans(spans: Span[]): Bar[] {
  const end = Math.max(...spans.map((span) => span.start_us + span.duration_us));
  const whole: Bar = { name: '', step: 'turn', kind: 'turn', startMs: 0, durationMs: end / 1000, depth: 0 };
  const bars = spans.map((span): Bar => {
    const first = (span.attributes as Record<string, unknown> | null | undefined)?.first_token_us;
    return {
      name: span.kind === span.name ? '' : span.name,
      step: span.kind,
      kind: KINDS[span.kind] ?? 'other',
      startMs: span.start_us / 1000,
      durationMs: span.duration_us / 1000,
      firstMs: typeof first === 'number' ? first / 1000 : undefined,
      failed: Boolean(span.error),
      detail: span.error ?? undefined,
      depth: 1,
    };
  });
  return [whole, ...bars];
}
