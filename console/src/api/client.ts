// Requests to the documented API, typed by its OpenAPI document.

import type { components, paths } from './openapi';

export type Schemas = components['schemas'];

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
type Json<T> = T extends { content: { 'application/json': infer J } } ? J : never;
type Success<R> = R extends { 200: infer A } ? Json<A> : R extends { 201: infer B } ? Json<B> : never;
export type Answer<P extends keyof paths, M extends Method> = paths[P] extends { [K in M]: { responses: infer R } }
  ? Success<R>
  : never;

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface CallOptions {
  path?: Record<string, string | number>;
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** A refused or failed request. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null,
    readonly param: string | null,
    readonly requestId: string | null,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

const CSRF_KEY = 'amalgam.csrf';
let csrf: string | null = null;

/** The token that proves that a request comes from this page. It is of no use without the cookie. */
export function setCsrf(token: string | null): void {
  csrf = token;
  try {
    if (token) localStorage.setItem(CSRF_KEY, token);
    else localStorage.removeItem(CSRF_KEY);
  } catch {
    // Storage may be disabled; the token then lasts for as long as the page.
  }
}

/** The token of the last session of this browser. */
export function csrfToken(): string | null {
  try {
    csrf ??= localStorage.getItem(CSRF_KEY);
  } catch {
    // As above.
  }
  return csrf;
}

let onSignedOut: () => void = () => {};

/** What happens when the server no longer accepts the session. */
export function whenSignedOut(action: () => void): void {
  onSignedOut = action;
}

export function address(template: string, options: Pick<CallOptions, 'path' | 'query'> = {}): string {
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(options.path?.[name] ?? '')));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined && value !== null && value !== '') query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** Sends a request and returns the response, or throws an `ApiError`. */
export async function send(method: Method, template: string, options: CallOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: 'application/json', ...options.headers };
  const token = csrfToken();
  if (token) headers['x-amalgam-csrf'] = token;
  const isForm = options.body instanceof FormData;
  if (options.body !== undefined && !isForm) headers['content-type'] = 'application/json';
  const body = options.body === undefined ? undefined : isForm ? (options.body as FormData) : JSON.stringify(options.body);
  let response: Response;
  try {
    response = await fetch(address(template, options), {
      method: method.toUpperCase(),
      headers,
      body,
      signal: options.signal,
      credentials: 'same-origin',
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server cannot be reached.', 'unreachable', null, null);
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response: Response): Promise<ApiError> {
  const id = response.headers.get('x-request-id');
  const text = await response.text().catch(() => '');
  let message = text.slice(0, 500) || response.statusText;
  let code: string | null = null;
  let param: string | null = null;
  try {
    const body: unknown = JSON.parse(text);
    const error = (body as { error?: { message?: string; code?: string; param?: string } }).error;
    const refusal = body as { detail?: unknown; Message?: string; Refusal?: { Message?: string; Code?: string } };
    if (error?.message) ({ message, code = null, param = null } = { code: null, param: null, ...error, message: error.message });
    else if (typeof refusal.detail === 'string') message = refusal.detail;
    else if (refusal.Refusal?.Message) message = refusal.Refusal.Message;
    else if (refusal.Message) message = refusal.Message;
  } catch {
    // Not JSON: the text itself is shown.
  }
  if (response.status === 401) onSignedOut();
  return new ApiError(response.status, message, code, param, id);
}

/** Calls an operation of the API and returns its JSON. */
export async function call<M extends Method, P extends keyof paths>(
  method: M,
  path: P,
  options: CallOptions = {},
): Promise<Answer<P, M>> {
  const response = await send(method, path as string, options);
  return (await response.json()) as Answer<P, M>;
}

/** Sends a form and reports how much of it was sent, from 0 to 1: `fetch` cannot tell. */
export function upload(template: string, options: Pick<CallOptions, 'path' | 'query' | 'signal'>, form: FormData, onProgress: (share: number) => void): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open('POST', address(template, options));
    request.setRequestHeader('accept', 'application/json');
    const token = csrfToken();
    if (token) request.setRequestHeader('x-amalgam-csrf', token);
    request.upload.addEventListener('progress', (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    });
    request.addEventListener('load', () => {
      const response = new Response(request.responseText, { status: request.status, headers: { 'x-request-id': request.getResponseHeader('x-request-id') ?? '' } });
      if (response.ok) response.json().then(resolve, reject);
      else void failure(response).then(reject);
    });
    request.addEventListener('error', () => reject(new ApiError(0, 'The server cannot be reached.', 'unreachable', null, null)));
    request.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
    options.signal?.addEventListener('abort', () => request.abort());
    request.send(form);
  });
}
