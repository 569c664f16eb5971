// A server with data, a browser that reports every error, and what a story checks on each page.

import { spawn, type ChildProcess } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { seed } from './seed';
import { Upstream } from './upstream';

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const BINARY = process.env.AMALGAM_BIN ?? path.join(ROOT, 'target/debug/amalgam');
const CHROMIUM = process.env.CHROMIUM_BIN ?? '/usr/bin/chromium';
const SHOTS = process.env.CONSOLE_SHOTS ?? path.join(ROOT, 'target/console-shots');
const AXE = readFileSync(path.join(ROOT, 'console/node_modules/axe-core/axe.min.js'), 'utf8');
/** Serves the pages of this folder instead of those in the binary, to work on them without building it. */
const DIST = process.env.CONSOLE_DIST;

export const OPERATOR_KEY = 'am_operator-of-the-stories-0123456789';

export interface Answer {
  status: number;
  body: any;
}

export class World {
  private constructor(
    readonly url: string,
    private readonly server: ChildProcess,
    private readonly folder: string,
    private readonly browser: Browser,
    readonly upstream: Upstream,
  ) {}

  /** `more` is added to the configuration. */
  static async start(more = ''): Promise<World> {
    mkdirSync(SHOTS, { recursive: true });
    const upstream = await Upstream.start();
    const folder = mkdtempSync(path.join(tmpdir(), 'amalgam-console-'));
    writeFileSync(path.join(folder, 'amalgam.toml'), '[server]\nlisten = "127.0.0.1:0"\n\n[egress]\nallow_private = ["127.0.0.1:9"]\n\n[upstreams.demo]\nkind = "demo"\n\n[upstreams.story]\nkind = "chat"\nmodels = ["slow", "instant", "broken"]\nretries = 0\nbase_url = "' + upstream.url + '"\n\n[models.demo]\nupstream = "demo"\nmodel = "demo"\n\n[models.priced]\nupstream = "story"\nmodel = "instant"\nprice.input = 2500.0\nprice.output = 10000.0\n' + more);
    const server = spawn(BINARY, ['serve', '--config', path.join(folder, 'amalgam.toml'), '--data', path.join(folder, 'data')], {
      // Stories add a table of limits to the file.
      env: { PATH: process.env.PATH, AMALGAM_BOOTSTRAP_KEY: OPERATOR_KEY, AMALGAM_LIMITS_BODY_BYTES: '16MiB' },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const url = await new Promise<string>((resolve, reject) => {
      let text = '';
      server.stdout?.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        const found = /amalgam listening on (\S+)/.exec(text);
        if (found?.[1]) resolve(found[1]);
      });
      server.on('exit', () => reject(new Error(`the server ended:\n${text}`)));
    });
    const browser = await chromium.launch({
      executablePath: CHROMIUM,
      headless: true,
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    const world = new World(url, server, folder, browser, upstream);
    await seed(world);
    return world;
  }

  async stop(): Promise<void> {
    await this.browser.close();
    const ended = new Promise((resolve) => this.server.once('exit', resolve));
    this.server.kill('SIGTERM');
    await ended;
    await this.upstream.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Adds to the configuration file of the server, which reads it when it is asked to. */
  configure(text: string): void {
    appendFileSync(path.join(this.folder, 'amalgam.toml'), `\n${text}`);
  }

  /** Calls the API as a program. */
  async api(method: string, route: string, body?: unknown, key = OPERATOR_KEY, headers: Record<string, string> = {}): Promise<Answer> {
    const response = await fetch(this.url + route, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    let parsed: unknown = text;
    try {
      parsed = JSON.parse(text);
    } catch {
      // Not every answer is JSON.
    }
    return { status: response.status, body: parsed };
  }

  /** A one-time link, as the command on the server's machine prints it. */
  async link(...more: string[]): Promise<string> {
    const child = spawn(BINARY, ['console', 'link', '--config', path.join(this.folder, 'amalgam.toml'), '--data', path.join(this.folder, 'data'), '--url', this.url, ...more], {
      env: { PATH: process.env.PATH },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await new Promise((resolve) => child.once('exit', resolve));
    return text.trim();
  }

  /** A browser without a session. */
  async visitor(options: { width?: number; height?: number; dark?: boolean; locale?: string } = {}): Promise<Visitor> {
    const context = await this.browser.newContext({
      viewport: { width: options.width ?? 1360, height: options.height ?? 860 },
      colorScheme: options.dark ? 'dark' : 'light',
      locale: options.locale ?? 'en-GB',
      timezoneId: 'Asia/Jakarta',
    });
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    return Visitor.open(this, context);
  }

  /** A browser that is signed in with a key. */
  async signedIn(key = OPERATOR_KEY, options: Parameters<World['visitor']>[0] = {}): Promise<Visitor> {
    const visitor = await this.visitor(options);
    await visitor.open('/');
    await visitor.page.getByLabel('API key').or(visitor.page.getByLabel('Kunci API')).fill(key);
    await visitor.page.locator('button[type=submit]').click();
    await visitor.page.waitForSelector('.shell');
    return visitor;
  }
}

/** A page behind a redirect is the binary's own, which the browser does not show to `route`: its files have other hashes. */
function sameFile(dist: string, name: string): string {
  if (existsSync(path.join(dist, name))) return name;
  const [, start, end] = /^assets\/(.+)-[\w-]{8}(\.\w+)$/.exec(name) ?? [];
  const same = readdirSync(path.join(dist, 'assets')).find((file) => start && end && file.startsWith(`${start}-`) && file.endsWith(end));
  return same ? `assets/${same}` : name;
}

export class Visitor {
  /** Errors in the browser's console, failed requests and requests to other servers. */
  readonly complaints: string[] = [];
  /** Answers of the server that a story expects and that the browser reports as errors. */
  readonly expected: RegExp[] = [];
  /** Requests to the API. */
  readonly requests: string[] = [];

  private constructor(
    readonly world: World,
    readonly context: BrowserContext,
    readonly page: Page,
  ) {}

  static async open(world: World, context: BrowserContext): Promise<Visitor> {
    const page = await context.newPage();
    const visitor = new Visitor(world, context, page);
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') visitor.complain(`${message.type()}: ${message.text()} ${message.location().url}`);
    });
    page.on('pageerror', (error) => visitor.complain(`exception: ${error.stack ?? error.message}`));
    page.on('request', (request) => {
      const address = request.url();
      if (!address.startsWith(world.url) && !address.startsWith('data:') && !address.startsWith('blob:')) visitor.complain(`foreign request: ${address}`);
      const { pathname } = new URL(address);
      if (/^\/(admin|v1|api)\b/.test(pathname)) visitor.requests.push(`${request.method()} ${pathname}`);
    });
    if (DIST) await visitor.serveFromDisk(DIST);
    return visitor;
  }

  private complain(text: string): void {
    if (!this.expected.some((pattern) => pattern.test(text))) this.complaints.push(text);
  }

  private async serveFromDisk(dist: string): Promise<void> {
    await this.context.route(/^http:\/\/127\.0\.0\.1:\d+\/console(\/|$|\?)/, async (route) => {
      const name = new URL(route.request().url()).pathname.replace(/^\/console\/?/, '');
      const own = /^(assets\/|favicon)/.test(name) ? sameFile(dist, name) : 'index.html';
      const file = path.join(dist, own);
      const types: Record<string, string> = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html', '.svg': 'image/svg+xml' };
      const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; require-trusted-types-for 'script'";
      await route.fulfill({ body: own !== name && own.endsWith('.js') ? `import './${path.basename(own)}';` : readFileSync(file), headers: { 'content-type': types[path.extname(file)] ?? '', 'content-security-policy': policy } });
    });
  }

  async open(route: string): Promise<void> {
    await this.page.goto(`${this.world.url}/console${route}`);
  }

  /** Waits until a heading of the page is there and nothing loads any more. */
  async settled(title: string | RegExp): Promise<void> {
    await this.page.getByRole('heading', { level: 1, name: title }).waitFor();
    await this.page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
  }

  /** Takes a picture in light and in dark, and checks accessibility in both. */
  async look(name: string, options: { fullPage?: boolean } = {}): Promise<void> {
    for (const scheme of ['light', 'dark'] as const) {
      await this.page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      await this.page.waitForFunction((wanted) => document.documentElement.dataset.theme === wanted, scheme);
      const view = this.page.viewportSize();
      const height = options.fullPage ? await this.page.evaluate(() => document.documentElement.scrollHeight) : 0;
      if (view && height > view.height) await this.page.setViewportSize({ ...view, height });
      // Two frames: the first one may still have the colours of the other scheme.
      await this.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      await this.page.screenshot({ path: path.join(SHOTS, `${name}-${scheme}.png`) });
      if (view && height > view.height) await this.page.setViewportSize(view);
      expect.soft(await this.violations(), `${name} (${scheme})`).toEqual([]);
    }
    await this.page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  }

  /** What axe finds on the page. */
  async violations(): Promise<string[]> {
    await this.page.evaluate(AXE);
    return this.page.evaluate(async () => {
      const axe = (window as unknown as { axe: { run: (context: Document, options: object) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
      const result = await axe.run(document, { resultTypes: ['violations'] });
      return result.violations.flatMap((violation) => violation.nodes.slice(0, 3).map((node) => `${violation.id}: ${node.html.slice(0, 160)} ${node.failureSummary.replaceAll('\n', ' ').slice(0, 240)}`));
    });
  }

  /** Nothing went wrong in the browser, and no other server was asked. */
  expectQuiet(): void {
    expect(this.complaints).toEqual([]);
  }

  async close(): Promise<void> {
    await this.context.close();
  }
}
