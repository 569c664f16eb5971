// Amalgam with a scripted model, the example's server with its pages, and a browser that reports every error.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium, type Browser, type BrowserContext, type Locator, type Page } from 'playwright-core';
import { expect } from 'vitest';
import { ScriptedModel } from './upstream';

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');
const BINARY = process.env.AMALGAM_BIN ?? path.join(ROOT, 'target/debug/amalgam');
const CHROMIUM = process.env.CHROMIUM_BIN ?? '/usr/bin/chromium';
const SHOTS = process.env.WIDGET_SHOTS ?? path.join(ROOT, 'target/widget-shots');
const AXE = readFileSync(path.join(ROOT, 'widget/node_modules/axe-core/axe.min.js'), 'utf8');
const KEY = 'am_operator-of-the-stories-0123456789';

/** A course whose texts and address are not what they should be. */
const HOSTILE_COURSE = {
  id: 900,
  title: 'Zebra <img src=x onerror="window.hacked=1"> & "quotes"',
  description: '</p><script>window.hacked = 1</script> zebra '.repeat(8),
  modality: 'Learn',
  type: 'Course',
  tags: ['zebra', '<b>tag</b>'],
  assets: [],
  url: 'https://courses.example.com/900?"><script>window.hacked=1</script>',
  content_in_sequence: false,
  min_percentage_finish: 100,
  active: true,
};

/** The address that a program prints when it listens. */
function listening(child: ChildProcess, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      const found = pattern.exec(text);
      if (found?.[1]) resolve(found[1]);
    });
    child.on('exit', () => reject(new Error(`the program ended:\n${text}`)));
  });
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await exit;
}

export class World {
  private readonly products: ChildProcess[] = [];

  private constructor(
    readonly url: string,
    readonly model: ScriptedModel,
    private readonly server: ChildProcess,
    private readonly folder: string,
    private readonly browser: Browser,
  ) {}

  static async start(): Promise<World> {
    mkdirSync(SHOTS, { recursive: true });
    const model = await ScriptedModel.start();
    const folder = mkdtempSync(path.join(tmpdir(), 'amalgam-widget-'));
    const config = path.join(folder, 'amalgam.toml');
    const upstream = `[upstreams.scripted]\nkind = "chat"\nbase_url = "${model.url}"\napi_key = "sk-scripted"\nmodels = ["scripted"]\nretries = 0\n`;
    writeFileSync(config, `[server]\nlisten = "127.0.0.1:0"\n\n[upstreams.demo]\nkind = "demo"\npace = "2ms"\n\n${upstream}\n[assistant]\nmodel = "demo"\n`);
    const place = ['--config', config, '--data', path.join(folder, 'data')];
    const server = spawn(BINARY, ['serve', ...place], { env: { PATH: process.env.PATH, AMALGAM_BOOTSTRAP_KEY: KEY }, stdio: ['ignore', 'pipe', 'ignore'] });
    const url = await listening(server, /amalgam listening on (\S+)/);
    const courses = path.join(folder, 'courses.json');
    writeFileSync(courses, JSON.stringify([HOSTILE_COURSE]));
    const imported = spawnSync(BINARY, ['courses', 'import', courses, '--tenant', '1', ...place], { env: { PATH: process.env.PATH }, encoding: 'utf8' });
    if (imported.status !== 0) throw new Error(imported.stderr);
    const browser = await chromium.launch({
      executablePath: CHROMIUM,
      headless: true,
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    });
    const world = new World(url, model, server, folder, browser);
    await world.admin('PUT', '/admin/profiles/storyteller', { prompt: 'Tell stories.', model: 'scripted' });
    return world;
  }

  async stop(): Promise<void> {
    await this.browser.close();
    for (const child of [...this.products, this.server]) await ended(child);
    await this.model.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async admin(method: string, route: string, body: unknown): Promise<void> {
    const response = await fetch(this.url + route, { method, headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' }, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${route}: ${response.status} ${await response.text()}`);
  }

  /** The example's server for one user; its address. */
  async product(user: string, ...more: string[]): Promise<string> {
    const agents = ['home-assistant', 'course-assistant', 'storyteller'].flatMap((agent) => ['--agent', agent]);
    const script = path.join(ROOT, 'examples/widget/server.py');
    const child = spawn('python3', [script, '--amalgam', this.url, '--port', '0', '--user', user, ...agents, ...more], {
      env: { PATH: process.env.PATH, AMALGAM_KEY: KEY, PYTHONDONTWRITEBYTECODE: '1' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.products.push(child);
    return listening(child, /example listening on (\S+)/);
  }

  async visitor(origin: string, options: { width?: number; height?: number; locale?: string } = {}): Promise<Visitor> {
    const context = await this.browser.newContext({ viewport: { width: options.width ?? 1100, height: options.height ?? 800 }, locale: options.locale ?? 'en-GB' });
    return Visitor.open(this, origin, context);
  }
}

export class Visitor {
  /** Errors in the browser's console, and requests to other servers. */
  readonly complaints: string[] = [];
  /** Errors that a story expects. */
  readonly expected: RegExp[] = [];

  private constructor(
    readonly world: World,
    readonly origin: string,
    readonly context: BrowserContext,
    readonly page: Page,
  ) {}

  static async open(world: World, origin: string, context: BrowserContext): Promise<Visitor> {
    const page = await context.newPage();
    const visitor = new Visitor(world, origin, context, page);
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') visitor.complain(`${message.type()}: ${message.text()} ${message.location().url}`);
    });
    page.on('pageerror', (error) => visitor.complain(`exception: ${error.stack ?? error.message}`));
    page.on('request', (request) => {
      const own = [world.url, origin].some((server) => request.url().startsWith(server));
      if (!own) visitor.complain(`foreign request: ${request.url()}`);
    });
    return visitor;
  }

  private complain(text: string): void {
    if (!this.expected.some((pattern) => pattern.test(text))) this.complaints.push(text);
  }

  async open(route: string): Promise<void> {
    await this.page.goto(this.origin + route);
    await this.page.waitForFunction(() => customElements.get('amalgam-assistant'));
  }

  get input(): Locator {
    return this.page.locator('amalgam-assistant textarea');
  }

  get log(): Locator {
    return this.page.locator('amalgam-assistant [role=log]');
  }

  async say(message: string): Promise<void> {
    await this.log.and(this.page.locator('[aria-busy=false]')).waitFor();
    await this.input.fill(message);
    await this.input.press('Enter');
  }

  /** Waits until no answer is pending. */
  async answered(): Promise<void> {
    await this.page.locator('amalgam-assistant [role=log][aria-busy=false] .assistant:not([hidden])').last().waitFor();
  }

  /** The texts of all messages. */
  async messages(): Promise<string[]> {
    return this.log.locator('.message:not([hidden])').allInnerTexts();
  }

  /** Takes a picture in light and in dark, and checks accessibility in both. */
  async look(name: string): Promise<void> {
    for (const scheme of ['light', 'dark'] as const) {
      await this.page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
      // Two frames: the first one may still have the colours of the other scheme.
      await this.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      await this.page.screenshot({ path: path.join(SHOTS, `${name}-${scheme}.png`) });
      expect.soft(await this.violations(), `${name} (${scheme})`).toEqual([]);
    }
    await this.page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
  }

  private async violations(): Promise<string[]> {
    await this.page.evaluate(AXE);
    return this.page.evaluate(async () => {
      const axe = (window as unknown as { axe: { run: (context: string, options: object) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
      const result = await axe.run('amalgam-assistant', { resultTypes: ['violations'] });
      return result.violations.flatMap((violation) => violation.nodes.slice(0, 3).map((node) => `${violation.id}: ${node.html.slice(0, 160)} ${node.failureSummary.replaceAll('\n', ' ').slice(0, 240)}`));
    });
  }

  /** Nothing went wrong in the browser, no other server was asked, and no script of a text ran. */
  async expectQuiet(): Promise<void> {
    expect(this.complaints).toEqual([]);
    expect(await this.page.evaluate(() => 'hacked' in window)).toBe(false);
  }

  async close(): Promise<void> {
    await this.context.close();
  }
}
