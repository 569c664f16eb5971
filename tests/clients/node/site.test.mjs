// A real browser on the server's own pages: what they look like in light and dark, and that they load nothing else.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const BINARY = process.env.AMALGAM_BIN ?? path.join(ROOT, 'target/debug/amalgam');
const CHROMIUM = process.env.CHROMIUM_BIN ?? '/usr/bin/chromium';

describe("the server's own pages in Chromium", () => {
  let folder;
  let child;
  let url;
  let browser;

  before(async () => {
    folder = mkdtempSync(path.join(tmpdir(), 'amalgam-site-'));
    child = spawn(BINARY, ['serve', '--data', path.join(folder, 'data'), '--listen', '127.0.0.1:0'], {
      env: { PATH: process.env.PATH },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const prefix = 'amalgam listening on ';
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith(prefix)) {
        url = line.slice(prefix.length).trim();
        break;
      }
    }
    child.stdout.resume();
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      headless: true,
      args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync'],
    });
  });

  after(async () => {
    await browser?.close();
    if (child) {
      child.kill();
      await once(child, 'exit');
    }
    rmSync(folder, { recursive: true, force: true });
  });

  /** Opens a page; resolves with it, the addresses that it asked for, and what the browser complained about. */
  async function open(address, colorScheme) {
    const page = await browser.newPage({ colorScheme, viewport: { width: 360, height: 800 } });
    const [asked, complaints] = [[], []];
    page.on('request', (request) => asked.push(request.url()));
    page.on('console', (message) => complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    const response = await page.goto(address);
    assert.equal(response.status(), 200);
    return { page, asked, complaints };
  }

  for (const [colorScheme, isDark] of [['light', false], ['dark', true]]) {
    for (const place of ['/', '/docs', '/docs/']) {
      test(`${place} in ${colorScheme} asks for nothing else and fits a narrow screen`, async () => {
        const { page, asked, complaints } = await open(`${url}${place}`, colorScheme);
        const seen = await page.evaluate(() => {
          const [red] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
          return { red, overflow: document.documentElement.scrollWidth > innerWidth, title: document.title };
        });
        assert.deepEqual({ asked, complaints }, { asked: [`${url}${place}`], complaints: [] });
        assert.equal(seen.red < 128, isDark, 'the stylesheet is applied');
        assert.equal(seen.overflow, false, 'nothing is wider than the screen');
        assert.match(seen.title, /^Amalgam/);
        if (process.env.AMALGAM_SCREENSHOTS) {
          const name = `site${place.replaceAll('/', '-')}-${colorScheme}.png`;
          await page.screenshot({ path: path.join(process.env.AMALGAM_SCREENSHOTS, name) });
        }
        await page.close();
      });
    }
  }

  test('every link of the pages opens a document of the server', async () => {
    const found = new Set();
    for (const place of ['/', '/docs', '/docs/']) {
      const { page } = await open(`${url}${place}`, 'light');
      const links = await page.evaluate(() => [...document.links].map((link) => link.href));
      links.forEach((link) => found.add(link));
      await page.close();
    }
    assert.ok(found.size > 40, String(found.size));
    for (const link of found) {
      assert.ok(link.startsWith(url), link);
      const answer = await fetch(link);
      assert.equal(answer.status, 200, link);
      await answer.arrayBuffer();
    }
  });

  test('a page of the documentation is shown, not downloaded', async () => {
    const { page } = await open(`${url}/docs/`, 'light');
    await page.click('a[href="clients.md"]');
    await page.waitForURL(`${url}/docs/clients.md`);
    assert.match(await page.evaluate(() => document.body.innerText), /^# The Responses API/);
    await page.close();
  });
});
