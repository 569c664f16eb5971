// Who is signed in, and what the session may do.

import { computed, signal } from '@preact/signals';
import { ApiError, call, csrfToken, setCsrf, whenSignedOut, type Schemas } from './api/client';
import { clearDrafts } from './drafts';
import { refusalText, signInRefusal } from './single-sign-on';

export type Session = Schemas['CurrentConsoleSession'];

/** `undefined` until the server has answered, `null` without a session. */
export const session = signal<Session | null | undefined>(undefined);
export const version = signal('');
/** The OpenID Connect provider, `null` if none is configured. */
export const singleSignOn = signal<Schemas['SingleSignOn'] | null>(null);
/** Why the session could not be read. */
export const sessionError = signal<Error | null>(null);

const has = (right: string) => computed(() => session.value?.rights.some((one) => one === right) ?? false);

export const isOperator = has('operator');
export const isAdmin = has('admin');
export const mayUse = has('use');
/** Whether the session may see what its tenant has. */
export const maySee = computed(() => session.value?.rights.some((one) => one === 'view' || one === 'admin' || one === 'operator') ?? false);
/** Whether the session may change things of its tenant. */
export const mayChange = computed(() => isAdmin.value || isOperator.value);

const LINK = /^#link=([\w-]{1,128})$/;

/** Reads the session; a one-time link in the address opens one first. */
export async function start(): Promise<void> {
  whenSignedOut(() => {
    if (session.value) session.value = null;
  });
  try {
    const refusal = signInRefusal(window.location.hash);
    if (refusal) {
      window.history.replaceState(null, '', window.location.pathname + window.location.search);
      sessionError.value = new ApiError(303, refusalText(refusal.code), refusal.code, null, refusal.requestId);
    }
    const link = LINK.exec(window.location.hash);
    if (link?.[1]) {
      window.history.replaceState(null, '', window.location.pathname + window.location.search);
      try {
        await signInWithLink(link[1]);
        return;
      } catch (error) {
        sessionError.value = error as Error;
      }
    }
    await refresh();
  } catch (error) {
    sessionError.value = error as Error;
    session.value = null;
  }
}

async function refresh(): Promise<void> {
  let status = await call('get', '/admin/console');
  // The token of an earlier session does not fit the cookie of one that the provider has just opened.
  if (!status.session && csrfToken()) {
    setCsrf(null);
    status = await call('get', '/admin/console');
  }
  version.value = status.version;
  singleSignOn.value = status.single_sign_on;
  setCsrf(status.session?.csrf_token ?? null);
  session.value = status.session;
}

export async function signInWithKey(key: string): Promise<void> {
  const opened = await call('post', '/admin/console/sessions', { headers: { authorization: `Bearer ${key}` } });
  setCsrf(opened.csrf_token);
  await refresh();
}

async function signInWithLink(token: string): Promise<void> {
  const opened = await call('post', '/admin/console/link', { body: { token } });
  setCsrf(opened.csrf_token);
  await refresh();
}

export async function signOut(): Promise<void> {
  let elsewhere: string | null | undefined;
  try {
    elsewhere = (await call('delete', '/admin/console/session')).end_session_url;
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  setCsrf(null);
  clearDrafts();
  session.value = null;
  // The provider's sign-out comes back to this page.
  if (elsewhere) window.location.assign(elsewhere);
}
