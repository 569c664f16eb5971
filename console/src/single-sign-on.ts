// Sign-in by the OpenID Connect provider: the link that begins it, and why the server refused it.

import { t, type Key } from './i18n';

/** The refusals of `GET /admin/console/oidc/callback`. */
const REFUSALS: Record<string, Key> = {
  denied: 'sso.denied',
  provider_error: 'sso.providerError',
  provider_unavailable: 'sso.providerUnavailable',
  unknown_sign_in: 'sso.unknownSignIn',
  expired: 'sso.expired',
  invalid_token: 'sso.invalidToken',
  no_user: 'sso.noUser',
  no_tenant: 'sso.noTenant',
  no_role: 'sso.noRole',
  email_not_allowed: 'sso.emailNotAllowed',
  too_many_attempts: 'sso.tooManyAttempts',
  unavailable: 'sso.unavailable',
};

export interface SignInRefusal {
  code: string;
  requestId: string | null;
}

/** The refusal in the fragment of an address. */
export function signInRefusal(hash: string): SignInRefusal | null {
  const fields = new URLSearchParams(hash.replace(/^#/, ''));
  const code = fields.get('sign-in-error');
  return code === null ? null : { code, requestId: fields.get('request') };
}

/** What a refusal means, and what the user can do. */
export function refusalText(code: string): string {
  return t((Object.hasOwn(REFUSALS, code) ? REFUSALS[code] : undefined) ?? 'sso.unavailable');
}

/** The address that begins a sign-in which leads back to this page. */
export function startAddress(path: string, page: { pathname: string; search: string }): string {
  return `${path}?${new URLSearchParams({ return_to: page.pathname + page.search })}`;
}
