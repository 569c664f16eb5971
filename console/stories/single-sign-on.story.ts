// Sign-in by an OpenID Connect provider: a scripted one with real HTTP and RS256 signatures.

import { createHash, createSign, generateKeyPairSync } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World, type Visitor } from './world';

interface Issued {
  nonce: string;
  challenge: string;
}

class Provider {
  private readonly keys = generateKeyPairSync('rsa', { modulusLength: 2048 });
  private readonly codes = new Map<string, Issued>();
  /** The roles of the user. */
  groups = ['engineers'];

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(): Promise<Provider> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const provider = new Provider(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on('request', (request, response) => {
      void provider.answer(request).then(({ status, type, body }) => {
        response.writeHead(status, { 'content-type': type });
        response.end(body);
      });
    });
    return provider;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }

  private async answer(request: IncomingMessage): Promise<{ status: number; type: string; body: string }> {
    const json = (body: unknown) => ({ status: 200, type: 'application/json', body: JSON.stringify(body) });
    const { pathname, searchParams } = new URL(request.url ?? '/', this.url);
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return json({ issuer: this.url, authorization_endpoint: `${this.url}/authorize`, token_endpoint: `${this.url}/token`, jwks_uri: `${this.url}/keys` });
      case '/keys':
        return json({ keys: [{ ...this.keys.publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig', alg: 'RS256' }] });
      case '/authorize':
        return { status: 200, type: 'text/html', body: this.page(searchParams) };
      case '/token':
        return json({ id_token: this.token(new URLSearchParams(await text(request))) });
      default:
        return { status: 204, type: 'text/plain', body: '' };
    }
  }

  /** The provider's page: the user agrees or cancels. */
  private page(query: URLSearchParams): string {
    const code = `code-${this.codes.size + 1}`;
    this.codes.set(code, { nonce: query.get('nonce') ?? '', challenge: query.get('code_challenge') ?? '' });
    const back = (fields: Record<string, string>) => {
      const parameters = new URLSearchParams({ ...fields, state: query.get('state') ?? '' });
      return `${query.get('redirect_uri') ?? ''}?${parameters}`.replaceAll('&', '&amp;');
    };
    return `<!doctype html><title>Provider</title><link rel="icon" href="data:,"><h1>Example ID</h1>
      <a href="${back({ code })}">Continue as Ada</a> <a href="${back({ error: 'access_denied' })}">Cancel</a>`;
  }

  private token(form: URLSearchParams): string {
    const issued = this.codes.get(form.get('code') ?? '');
    this.codes.delete(form.get('code') ?? '');
    const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (issued?.challenge !== challenge) throw new Error('the code or its verifier is wrong');
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: 'console', sub: 'ada-1', email: 'ada@example.com', iat: now, exp: now + 300, nonce: issued.nonce, groups: this.groups };
    const message = [{ alg: 'RS256', kid: 'one' }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    return `${message}.${createSign('RSA-SHA256').update(message).sign(this.keys.privateKey, 'base64url')}`;
  }
}

async function text(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request) body += String(chunk);
  return body;
}

describe('single sign-on', () => {
  let provider: Provider;
  let world: World;
  beforeAll(async () => {
    provider = await Provider.start();
    world = await World.start(
      `[console.oidc]\nname = "Example ID"\nissuer = "${provider.url}"\nclient_id = "console"\ntenant = 1\nroles_claim = "groups"\nroles = { engineers = ["use", "admin"] }\n`,
    );
  });
  afterAll(async () => {
    await world.stop();
    provider.stop();
  });

  /** A browser that is expected to visit the provider. */
  async function visitor(options: Parameters<World['visitor']>[0] = {}): Promise<Visitor> {
    const one = await world.visitor(options);
    one.expected.push(new RegExp(`^foreign request: ${provider.url}/authorize`));
    return one;
  }

  test('a user of the provider signs in and gets the page that was asked for', async () => {
    const one = await visitor();
    const { page } = one;
    await one.open('/turns?status=completed');
    await page.getByRole('link', { name: 'Sign in with Example ID' }).waitFor();
    await one.look('sign-in-provider');
    await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
    await page.getByRole('link', { name: 'Continue as Ada' }).click();
    await one.settled('Turns');
    expect(page.url()).toBe(`${world.url}/console/turns?status=completed`);
    const cookies = await one.context.cookies();
    expect(cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }))).toEqual([{ name: 'amalgam_console', httpOnly: true, sameSite: 'Lax' }]);
    await one.open('/keys?tab=sessions');
    await page.getByText('ada@example.com').first().waitFor();
    // A later session has another CSRF token than the one that the browser remembers.
    await one.context.clearCookies();
    await page.reload();
    await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
    await page.getByRole('link', { name: 'Continue as Ada' }).click();
    await page.getByText('ada@example.com').first().waitFor();
    one.expectQuiet();
    await one.close();
  });

  test('a refusal is explained on the sign-in page, in the language of the user, and the page is kept', async () => {
    const one = await visitor();
    const { page } = one;
    await one.open('/usage');
    await page.getByRole('link', { name: 'Sign in with Example ID' }).click();
    await page.getByRole('link', { name: 'Cancel' }).click();
    await page.getByText('The sign-in was cancelled').waitFor();
    await page.getByText(/req_/).waitFor();
    expect(page.url()).toBe(`${world.url}/console/usage`);
    await one.look('sign-in-cancelled');
    one.expectQuiet();
    await one.close();

    provider.groups = ['others'];
    const two = await visitor({ locale: 'id-ID' });
    await two.open('/');
    await two.page.getByRole('link', { name: 'Masuk dengan Example ID' }).click();
    await two.page.getByRole('link', { name: 'Continue as Ada' }).click();
    await two.page.getByText('tidak ada peran Anda').waitFor();
    two.expectQuiet();
    await two.close();
    provider.groups = ['engineers'];
  });
});
