import { describe, expect, test } from 'vitest';
import { refusalText, signInRefusal, startAddress } from './single-sign-on';

describe('single sign-on', () => {
  test('a refusal is read from the fragment, and nothing else is one', () => {
    expect(signInRefusal('#sign-in-error=no_role&request=req_1')).toEqual({ code: 'no_role', requestId: 'req_1' });
    expect(signInRefusal('#sign-in-error=x')).toEqual({ code: 'x', requestId: null });
    for (const other of ['', '#', '#link=acl_1', '#section']) expect(signInRefusal(other)).toBeNull();
  });

  test('every code has a text, also one that this version does not know', () => {
    expect(refusalText('no_role')).toContain('roles');
    for (const unknown of ['', 'x', 'constructor', '__proto__']) expect(refusalText(unknown)).toBe(refusalText('unavailable'));
  });

  test('a sign-in leads back to the page with its query', () => {
    const page = { pathname: '/console/turns', search: '?q=a b&status=failed' };
    const address = new URL(startAddress('/admin/console/oidc/start', page), 'http://h');
    expect(address.pathname).toBe('/admin/console/oidc/start');
    expect(address.searchParams.get('return_to')).toBe('/console/turns?q=a b&status=failed');
  });
});
