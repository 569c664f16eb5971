// Calls the server with a browser token: respond as a stream, cancellation, messages, further pages of courses.

import { readEvents, type ServerEvent } from '../../console/src/api/sse';

/** A token, or the answer of the route that issues it. */
export type ClientSecret = string | { client_secret: string; expires_at?: number };

/** Gives a token for this user and page; called again when one has expired. */
export type GetClientSecret = () => Promise<ClientSecret> | ClientSecret;

/** A failed call. `status` is 0 if the server was not reached, or gave no token. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly retryAfter: number | null = null,
  ) {
    super(detail);
  }

  /** Whether the same request may go well in a moment. */
  get isTemporary(): boolean {
    return (this.status === 0 && this.code === 'unreachable') || this.status === 409 || this.status === 408 || this.status >= 500;
  }
}

const ROOT = '/api/v2/ai-agent/';
const COURSES = '/api/v2/course-recommendations/';

/** The seconds before its end at which a token is not used any more. */
const MARGIN = 30;

export class Api {
  private secret: string | null = null;
  private expiresAt = Infinity;
  private pending: Promise<string> | null = null;

  constructor(
    private readonly server: string,
    private readonly getClientSecret: GetClientSecret,
  ) {}

  /** Sends a message; the answer is a stream of events. */
  async respond(body: Record<string, unknown>, key: string, signal: AbortSignal): Promise<Response> {
    return this.call('POST', `${ROOT}respond/`, { signal, body: JSON.stringify(body), headers: { accept: 'text/event-stream', 'content-type': 'application/json', 'idempotency-key': key } });
  }

  /** The stream of an answer from its beginning. */
  async resume(responseId: string, signal: AbortSignal): Promise<Response> {
    return this.call('GET', `${ROOT}respond/${encodeURIComponent(responseId)}/`, { signal });
  }

  async cancel(responseId: string): Promise<void> {
    await this.call('POST', `${ROOT}respond/${encodeURIComponent(responseId)}/cancel/`, {});
  }

  /** A page of the messages of a session, the newest first. */
  async messages(sessionId: number, after: number | null): Promise<Record<string, unknown>> {
    const response = await this.call('GET', `${ROOT}sessions/${sessionId}/messages/?limit=30${after === null ? '' : `&after=${after}`}`, {});
    return (await response.json()) as Record<string, unknown>;
  }

  /** A further page of courses. Only its query is used, so that the token goes to no other server. */
  async courses(address: string): Promise<Record<string, unknown>> {
    const url = new URL(address, this.server);
    if (!url.pathname.endsWith(COURSES)) throw new ApiError(0, 'wrong_address', 'The address is not of the course catalogue.');
    const response = await this.call('GET', `${COURSES}${url.search}`, {});
    return (await response.json()) as Record<string, unknown>;
  }

  private async call(method: string, path: string, init: RequestInit & { headers?: Record<string, string> }): Promise<Response> {
    for (let fresh = false; ; fresh = true) {
      const secret = await this.token();
      const headers = { ...init.headers, authorization: `Bearer ${secret}` };
      const response = await fetch(this.server + path, { ...init, method, headers, credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer' }).catch((error: unknown) => {
        if (init.signal?.aborted) throw error;
        // A token that the server does not know is refused without headers for the page, so another one is asked for.
        this.secret = null;
        throw new ApiError(0, 'unreachable', String(error));
      });
      if (response.ok) return response;
      const error = await failure(response);
      if (error.status !== 401 || fresh) throw error;
      if (this.secret === secret) this.secret = null;
    }
  }

  private async token(): Promise<string> {
    if (this.secret !== null && Date.now() / 1000 < this.expiresAt - MARGIN) return this.secret;
    // Calls at the same time share one question.
    this.pending ??= this.ask().finally(() => (this.pending = null));
    return this.pending;
  }

  private async ask(): Promise<string> {
    try {
      const given = await this.getClientSecret();
      const secret = typeof given === 'string' ? given : given.client_secret;
      if (typeof secret !== 'string' || !secret) throw new TypeError('getClientSecret gave no token');
      this.expiresAt = (typeof given === 'object' && given.expires_at) || Infinity;
      this.secret = secret;
      return secret;
    } catch (error) {
      throw new ApiError(0, 'no_token', String(error));
    }
  }
}

async function failure(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const fields = typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  const first = Object.values(fields)[0];
  const detail = typeof fields.detail === 'string' ? fields.detail : Array.isArray(first) ? String(first[0]) : response.statusText;
  const wait = Number(response.headers.get('retry-after'));
  return new ApiError(response.status, typeof fields.code === 'string' ? fields.code : '', detail, wait > 0 ? wait : null);
}

/** The events of an answer; an error if they end without `done` or `error`. */
export async function* answerEvents(response: Response): AsyncGenerator<ServerEvent> {
  let ended = false;
  try {
    for await (const events of readEvents(response)) {
      for (const event of events) {
        ended ||= event.event === 'done' || event.event === 'error';
        yield event;
      }
    }
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', String(error));
  }
  if (!ended) throw new ApiError(0, 'unreachable', 'the stream ended early');
}
