// A client of the strict turn contract. Whatever it sends it may send again: the server takes a turn once.

import { setTimeout as sleep } from 'node:timers/promises';

import type { Continuation, Envelope, Session, TurnEvent, UserTurn } from './contract.js';
import { frames } from './frames.js';

/** The server did not take a request. `envelope` says why, with every fault that it found. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly envelope: Envelope,
    /** Seconds after which another attempt makes sense, where the server knows it. */
    readonly retryAfter: number | undefined,
  ) {
    const faults = (envelope.Errors ?? []).map((fault) => `${fault.Field} ${fault.Message}`);
    super([`${status} ${envelope.ErrorCode}: ${envelope.ErrorMessage}`, ...faults].join('\n  '));
  }
}

/** The connection broke before the answer was complete. */
class Broken extends Error {}

export interface Options {
  url: string;
  key: string;
  /** On whose behalf a service key acts. */
  user?: string;
  /** How often a request is sent before a broken connection counts as a failure. */
  attempts?: number;
  /** For demonstrations: hangs up after this many events, once. */
  dropAfter?: number;
}

export class AgentClient {
  /** How often something was sent again. */
  retries = 0;
  private dropAfter: number | undefined;

  constructor(private readonly options: Options) {
    this.dropAfter = options.dropAfter;
  }

  /** Opens a session with an agent, in a mode. */
  async openSession(agent?: string, mode?: string): Promise<Session> {
    // Leaves an empty session behind if its answer is lost: nothing that needs cleaning up.
    return this.patiently(async () => {
      const answer = await this.send('POST', '/api/agent/sessions', { AgentContextId: agent, Mode: mode });
      return json<Session>(answer);
    });
  }

  /** A session as it stands. */
  async session(sessionId: string): Promise<Session> {
    return this.patiently(async () => json(await this.send('GET', `/api/agent/sessions/${encodeURIComponent(sessionId)}`)));
  }

  /** A turn as it stands, with its result once there is one. */
  async turn(sessionId: string, turnId: string): Promise<{ Status: string; Steps: number; Result: Envelope | null }> {
    const path = `/api/agent/sessions/${encodeURIComponent(sessionId)}/turns/${encodeURIComponent(turnId)}`;
    return this.patiently(async () => json(await this.send('GET', path)));
  }

  /** Executes a turn, or goes on with one, and waits for the whole answer. */
  async execute(request: UserTurn | Continuation): Promise<Envelope> {
    return this.patiently(async () => json(await this.send('POST', '/api/agent/execute', request)));
  }

  /**
   * The same, told event by event on the way. When the connection breaks, the same request is sent again: it finds the
   * turn where it is by now. Events that were told before are not told a second time.
   */
  async stream(request: UserTurn | Continuation, onEvent: (event: TurnEvent) => void): Promise<Envelope> {
    // How a user turn is delivered stands in the request; results carry nothing but results, so there the header says it.
    const body = 'ToolResults' in request ? request : { ...request, Streaming: true };
    let told = -1;
    return this.patiently(async () => {
      const answer = await this.send('POST', '/api/agent/execute', body, { accept: 'text/event-stream' });
      if (!answer.headers.get('content-type')?.startsWith('text/event-stream') || answer.body === null) {
        return json<Envelope>(answer);
      }
      for await (const frame of frames(answer.body)) {
        const data = JSON.parse(frame.data);
        if (frame.name === 'turn.result') {
          return data.Result as Envelope;
        }
        if (data.Index > told) {
          told = data.Index;
          onEvent(data);
        }
        if (this.dropAfter !== undefined && told + 1 >= this.dropAfter) {
          this.dropAfter = undefined;
          throw new Broken('hung up on purpose');
        }
      }
      throw new Broken('the stream ended without a result');
    });
  }

  /** Tries again while the connection breaks, or the server says that it will have time later. */
  private async patiently<T>(attempt: () => Promise<T>): Promise<T> {
    const attempts = this.options.attempts ?? 6;
    for (let number = 1; ; number += 1) {
      try {
        return await attempt();
      } catch (error) {
        const pause = retryPause(error, number);
        if (pause === undefined || number >= attempts) {
          throw error;
        }
        this.retries += 1;
        await sleep(pause);
      }
    }
  }

  private async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    const own: Record<string, string> = { authorization: `Bearer ${this.options.key}` };
    if (this.options.user !== undefined) {
      own['x-amalgam-user'] = this.options.user;
    }
    if (body !== undefined) {
      own['content-type'] = 'application/json';
    }
    const answer = await fetch(new URL(path, this.options.url), {
      method,
      headers: { ...own, ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!answer.ok) {
      const retryAfter = Number.parseFloat(answer.headers.get('retry-after') ?? '');
      throw new Refused(answer.status, await json(answer), Number.isNaN(retryAfter) ? undefined : retryAfter);
    }
    return answer;
  }
}

/** A body as JSON. One that is cut off in the middle is a broken connection. */
async function json<T>(answer: Response): Promise<T> {
  const text = await answer.text();
  try {
    return JSON.parse(text) as T;
  } catch {
    if (!answer.ok) {
      // Something in between has refused, such as a proxy.
      return { ErrorCode: String(answer.status), ErrorMessage: answer.statusText } as T;
    }
    throw new Broken('the answer broke off');
  }
}

/** Milliseconds until the next attempt; none where another attempt would get the same answer. */
function retryPause(error: unknown, attempt: number): number | undefined {
  if (error instanceof Refused) {
    const later = [408, 429, 503, 504].includes(error.status) || error.envelope.ErrorCode === 'session_busy';
    return later ? 1000 * (error.retryAfter ?? attempt) : undefined;
  }
  // `fetch` reports every trouble with a connection as a TypeError.
  return error instanceof Broken || error instanceof TypeError ? 50 * 2 ** attempt : undefined;
}
