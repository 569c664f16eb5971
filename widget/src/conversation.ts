// One conversation: sends messages, follows their answers through broken connections and reloads, and stops them.

import { answerEvents, Api, ApiError } from './api';
import type { Memory, Pending } from './memory';
import { readResults, type ToolResult } from './results';
import type { Texts } from './texts';
import type { AnswerView, View } from './view';

/** How often a request is sent again by itself, and how long it waits before, in milliseconds. */
const WAITS = [500, 1500, 4000];

/** How old a pending message may be to be continued after a reload, in milliseconds. */
const MAX_AGE = 600_000;

/** What the page hears. */
export interface Report {
  message: (detail: Record<string, unknown>) => void;
  error: (detail: { status: number; code: string; detail: string }) => void;
}

/** An answer that is being followed. */
interface Turn {
  readonly pending: Pending;
  readonly controller: AbortController;
  /** Whether the user has stopped it. */
  stopped: boolean;
  text: string;
  results: ToolResult[];
}

export class Conversation {
  private turn: Turn | null = null;
  private earliest: number | null = null;

  constructor(
    private readonly api: Api,
    private readonly view: View,
    private readonly memory: Memory,
    private readonly about: () => { agent: string; courseId: string | null; texts: Texts },
    private readonly report: Report,
  ) {}

  /** Ends without cancelling the answer: the page goes away, and a reload resumes it. */
  disconnect(): void {
    this.turn?.controller.abort();
    this.turn = null;
  }

  /** Shows what was said before a reload, and resumes an answer that was pending. */
  async resume(): Promise<void> {
    if (Date.now() - (this.memory.value.pending?.at ?? 0) > MAX_AGE) this.memory.set({ pending: null });
    const { sessionId, pending } = this.memory.value;
    let newest: Record<string, unknown> | null = null;
    if (sessionId !== null) {
      const messages = await this.load(sessionId, null).catch((error: unknown) => {
        // The thread of another user of this browser tab, or one that was deleted.
        if (error instanceof ApiError && [403, 404].includes(error.status)) this.memory.set({ sessionId: null, pending: null });
        else this.failed(error, () => void this.resume());
        return null;
      });
      if (!messages) return;
      newest = messages[0] ?? null;
    }
    if (!pending || !this.memory.value.pending) return;
    const asked = newest?.role !== 'user' || newest.message !== pending.message ? this.view.user(pending.message) : null;
    await this.follow(pending, asked);
  }

  /** Shows an earlier page of the thread. */
  async earlier(): Promise<void> {
    const { sessionId } = this.memory.value;
    if (sessionId === null || this.earliest === null) return;
    await this.load(sessionId, this.earliest).catch((error: unknown) => this.failed(error, null));
  }

  private async load(sessionId: number, after: number | null): Promise<Record<string, unknown>[]> {
    const page = await this.api.messages(sessionId, after);
    const messages = (Array.isArray(page.results) ? page.results : []) as Record<string, unknown>[];
    this.earliest = typeof page.next === 'number' ? page.next : null;
    // The answer that is about to be resumed is drawn from its stream.
    const pending = this.memory.value.pending;
    const shown = after === null && pending && messages[0]?.role === 'assistant' && messages[1]?.message === pending.message ? messages.slice(2) : messages;
    for (const message of shown) {
      const text = typeof message.message === 'string' ? message.message : '';
      if (message.role === 'user') this.view.user(text, 'start');
      else if (message.role === 'assistant') this.view.answer('start').finish(text, readResults(message.tool_results));
    }
    this.view.setEarlier(this.earliest !== null);
    return shown;
  }

  /** Sends a message of the user. */
  async send(message: string): Promise<void> {
    if (this.turn) return;
    this.view.forgetProblems();
    this.view.user(message);
    this.report.message({ role: 'user', message });
    const pending: Pending = { key: newKey(), message, newSession: this.memory.value.fresh, responseId: null, at: Date.now() };
    this.memory.set({ pending });
    await this.follow(pending);
  }

  /** Stops the answer: the connection, and the turn on the server, which does not depend on it. */
  stop(): void {
    const { turn } = this;
    if (!turn) return;
    turn.stopped = true;
    // Without its id the answer cannot be cancelled yet; the head of the stream brings it within a second.
    if (turn.pending.responseId) turn.controller.abort();
  }

  /** Begins a new conversation with the next message. */
  restart(): void {
    this.stop();
    this.turn = null;
    this.earliest = null;
    this.memory.set({ sessionId: null, pending: null, fresh: true });
    this.view.setBusy(false);
    this.view.clear();
  }

  private async follow(pending: Pending, asked: HTMLElement | null = null): Promise<void> {
    const turn: Turn = { pending, controller: new AbortController(), stopped: false, text: '', results: [] };
    this.turn = turn;
    const { texts } = this.about();
    const answer = this.view.answer();
    this.view.setBusy(true);
    answer.status(texts.answering);
    this.view.announce(texts.answering);
    try {
      await this.finish(turn, await this.ask(turn, answer), answer);
    } catch (error) {
      if (turn.stopped) await this.cancelled(turn, answer);
      else if (this.turn !== turn) answer.remove();
      else if (error instanceof ApiError && error.status === 404 && pending.responseId) {
        // It is of another user of this browser tab, or not stored any more.
        answer.remove();
        asked?.remove();
        this.view.greet();
        this.memory.set({ pending: null });
      }
      else this.notAnswered(turn, error, answer);
    } finally {
      if (this.turn === turn) {
        this.turn = null;
        this.view.setBusy(false);
      }
    }
  }

  /** Asks until there is an answer, or no hope for one. */
  private async ask(turn: Turn, answer: AnswerView): Promise<Record<string, unknown>> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.attempt(turn, answer);
      } catch (error) {
        const wait = WAITS[attempt];
        const { signal } = turn.controller;
        const again = error instanceof ApiError && error.isTemporary && error.code !== 'failed';
        if (turn.stopped || signal.aborted || !again || wait === undefined) throw error;
        await pause(Math.min((error.retryAfter ?? 0) * 1000, 10_000) || wait, signal);
      }
    }
  }

  /** Asks once, or picks up the answer that was asked for; the body of the whole answer. */
  private async attempt(turn: Turn, answer: AnswerView): Promise<Record<string, unknown>> {
    const { pending, controller: { signal } } = turn;
    const { agent, courseId, texts } = this.about();
    let response: Response;
    if (pending.responseId) {
      response = await this.api.resume(pending.responseId, signal);
    } else {
      const metadata = courseId && /^[1-9]\d{0,15}$/.test(courseId) ? { course_id: Number(courseId) } : {};
      const body = { agent, message: pending.message, metadata, ...(pending.newSession ? { new_session: true } : {}) };
      response = await this.api.respond(body, pending.key, signal);
      pending.responseId = response.headers.get('amalgam-response-id');
      if (this.turn === turn) this.memory.set({ pending: { ...pending }, fresh: false });
    }
    if (turn.stopped) throw new ApiError(0, 'stopped', 'the user stopped the answer');
    turn.text = '';
    turn.results = [];
    let index: unknown = null;
    for await (const event of answerEvents(response)) {
      const data = JSON.parse(event.data) as Record<string, unknown>;
      if (event.event === 'message.delta') {
        // A new message: the text before preceded a tool call and is not part of the answer.
        if (data.output_index !== index) turn.text = '';
        index = data.output_index;
        turn.text += typeof data.delta === 'string' ? data.delta : '';
        answer.status('');
        answer.text(turn.text);
      } else if (event.event === 'tool_call') {
        answer.status(texts.usingTool);
      } else if (event.event === 'tool_result') {
        turn.results.push(...readResults([data]));
        answer.status(texts.answering);
      } else if (event.event === 'done') {
        return data;
      } else if (event.event === 'error') {
        // A failure is not stored: the same key asks again.
        pending.responseId = null;
        this.memory.set({ pending: { ...pending } });
        throw new ApiError(503, 'failed', typeof data.detail === 'string' ? data.detail : '');
      }
    }
    throw new ApiError(0, 'unreachable', 'the stream ended early');
  }

  private async finish(turn: Turn, done: Record<string, unknown>, answer: AnswerView): Promise<void> {
    // A new conversation has begun meanwhile.
    if (this.turn !== turn) return answer.remove();
    const text = typeof done.message === 'string' ? done.message : '';
    const results = readResults(done.tool_results);
    answer.finish(text, results);
    this.view.announce(text);
    this.memory.set({ sessionId: typeof done.session_id === 'number' ? done.session_id : null, pending: null });
    this.report.message({ role: 'assistant', message: text, session_id: done.session_id, message_id: done.assistant_message_id, response_id: done.response_id, tool_results: results });
  }

  private async cancelled(turn: Turn, answer: AnswerView): Promise<void> {
    const { texts } = this.about();
    if (this.turn === turn) {
      answer.finish(turn.text, turn.results, texts.stopped);
      this.view.announce(texts.stopped);
      this.memory.set({ pending: null });
    }
    if (turn.pending.responseId) await this.api.cancel(turn.pending.responseId).catch((error: unknown) => this.tell(error));
  }

  private notAnswered(turn: Turn, error: unknown, answer: AnswerView): void {
    answer.remove();
    const known = error instanceof ApiError ? error : null;
    const again = !known || known.isTemporary || known.status === 401 || known.status === 429 || known.code === 'no_token';
    if (!again) this.memory.set({ pending: null });
    this.failed(error, again ? () => void this.follow({ ...turn.pending }) : null);
  }

  private failed(error: unknown, retry: (() => void) | null): void {
    const { texts } = this.about();
    const { status, code, message } = this.tell(error);
    const text =
      code === 'message_budget_spent' ? texts.budget
      : code === 'no_token' || status === 401 ? texts.signIn
      : status === 403 ? texts.notAllowed
      : code === 'unreachable' ? texts.offline
      : status === 400 ? message
      : texts.unavailable;
    this.view.problem(text, code === 'message_budget_spent' ? null : retry);
  }

  private tell(error: unknown): { status: number; code: string; message: string } {
    const known = error instanceof ApiError ? error : new ApiError(0, 'internal', String(error));
    this.report.error({ status: known.status, code: known.code, detail: known.message });
    return known;
  }
}

function newKey(): string {
  // `randomUUID` exists in secure contexts only.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `widget-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener('abort', done);
  });
}
