// Sends a turn and reports it while it runs.

import { ApiError, call, send } from '../api/client';
import { readEvents } from '../api/sse';
import { apply } from './events';
import { bodyOf, newTurn, ROUTES, type Attachment, type Conversation, type Results, type Settings, type Turn } from './model';

/** Runs a turn; `onChange` is called with a copy at most once per frame. */
export async function run(
  settings: Settings,
  input: string,
  conversation: Conversation,
  results: Results,
  files: Attachment[],
  signal: AbortSignal,
  onChange: (turn: Turn) => void,
): Promise<{ turn: Turn; conversation: Conversation }> {
  const turn = newTurn(input);
  const state = { ...conversation };
  const begun = performance.now();
  let pending = 0;
  const report = (): void => {
    pending ||= requestAnimationFrame(() => {
      pending = 0;
      onChange(copied(turn));
    });
  };
  onChange(copied(turn));
  try {
    if (settings.door === 'execute' && !state.session) {
      const created = await call('post', '/api/agent/sessions', {
        body: { ...(settings.model && { AgentContextId: settings.model }), ...(settings.mode && { Mode: settings.mode }) },
        signal,
      });
      state.session = (created as { SessionId: string }).SessionId;
    }
    const body = bodyOf(settings, input, state, results, files);
    const response = await send('post', ROUTES[settings.door], { body, signal, headers: { accept: 'text/event-stream' } });
    turn.requestId = response.headers.get('x-request-id');
    turn.responseId = response.headers.get('amalgam-response-id');
    for await (const events of readEvents(response)) {
      const at = performance.now() - begun;
      for (const event of events) apply(turn, event, at);
      report();
    }
    if (turn.status === 'running') {
      turn.status = 'failed';
      turn.error = 'The stream ended early.';
    }
  } catch (error) {
    if (signal.aborted) turn.status = 'stopped';
    else {
      turn.status = 'failed';
      turn.error = (error as Error).message;
      if (error instanceof ApiError) turn.requestId = error.requestId ?? turn.requestId;
    }
  }
  turn.durationMs = performance.now() - begun;
  if (pending) cancelAnimationFrame(pending);
  if (turn.responseId && turn.status !== 'failed') {
    state.previous = settings.door === 'responses' ? turn.responseId : state.previous;
    state.items = [];
  }
  if (settings.door === 'execute' && turn.status !== 'waiting') state.turnId = `turn-${Number(/\d+$/.exec(state.turnId)?.[0] ?? 0) + 1}`;
  onChange(copied(turn));
  return { turn, conversation: state };
}

function copied(turn: Turn): Turn {
  return { ...turn, calls: turn.calls.map((one) => ({ ...one })), events: turn.events.slice() };
}
