// Long lists and long streams, made up by the test: what the browser needs for them.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Page } from 'playwright-core';
import { World } from './world';

/** CPU time of the page for one step of scrolling, in milliseconds: the machine of the tests is busy with other work too. */
const STEP = 50;
const ROWS = 100_000;
/** The longest task of a page while a stream arrives, and the first paint on a cold start, in milliseconds. */
const LONG_TASK = 100;
const PAINT = 1000;

function row(index: number): object {
  const at = 1_795_000_000_000 - index * 1000;
  return {
    id: `resp_AM-${at}-row${index}`, object: 'turn.row', tenant_id: 1, request_id: `req_${index}`, key_id: null, user: `user-${index}`, door: 'responses', session_id: null,
    profile: null, requested_model: 'm', upstream: 'u', model: 'm', status: 'completed', error: null, created_at: Math.floor(at / 1000), created_at_ms: at, duration_ms: 12,
    first_token_ms: 3, input_tokens: 10, cached_input_tokens: 0, cache_write_tokens: 0, output_tokens: 20, reasoning_tokens: 0, cost_usd: null, calls: 1, retries: 0, losses: 0,
    tools: [], stored: true,
  };
}

const WATCH = `
  window.longTasks = [];
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.longTasks.push(Math.round(entry.duration)))).observe({ entryTypes: ['longtask'] });
`;

/** Reads the CPU time of the page's main thread since now, in milliseconds. */
async function cpuTime(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const read = async (): Promise<number> => {
    const { metrics } = await session.send('Performance.getMetrics');
    return (metrics.find((metric) => metric.name === 'TaskDuration')?.value ?? 0) * 1000;
  };
  const before = await read();
  return async () => (await read()) - before;
}

describe('speed', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('a hundred thousand turns scroll without a long task', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await page.route('**/admin/turns/tail**', (route) => route.fulfill({ status: 200, contentType: 'text/event-stream', body: '' }));
    await page.route(/\/admin\/turns\?/, (route) => {
      const after = new URL(route.request().url()).searchParams.get('after');
      const from = after ? Number(/row(\d+)$/.exec(after)?.[1]) + 1 : 0;
      // Larger pages than the server's, so that the test ends soon.
      const data = Array.from({ length: Math.min(10_000, ROWS - from) }, (_, index) => row(from + index));
      return route.fulfill({ json: { object: 'list', data, first_id: null, last_id: `resp_AM-1-row${from + data.length - 1}`, has_more: from + data.length < ROWS } });
    });
    await visitor.open('/turns');
    await page.locator('.v-row').first().waitFor();
    const view = page.locator('.v-view');
    for (let loaded = 10_000; loaded < ROWS; loaded += 10_000) {
      await view.evaluate((element) => (element.scrollTop = element.scrollHeight));
      await page.waitForFunction((count) => Number(document.querySelector('.v-view')?.getAttribute('aria-rowcount')) > count, loaded + 1);
    }
    const cpu = await cpuTime(page);
    const drawn = await view.evaluate(async (element) => {
      let most = 0;
      for (let step = 0; step <= 100; step += 1) {
        element.scrollTop = (element.scrollHeight * step) / 100;
        await new Promise((resolve) => requestAnimationFrame(resolve));
        most = Math.max(most, element.querySelectorAll('.v-row').length);
      }
      return most;
    });
    expect(drawn).toBeLessThan(80);
    const step = (await cpu()) / 101;
    console.log(`scrolling through ${ROWS} rows: ${drawn} rows drawn at most, ${step.toFixed(1)} ms of CPU for each of 101 steps`);
    expect(step).toBeGreaterThan(0);
    expect(step).toBeLessThan(STEP);
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a stream of two thousand events is drawn while it arrives', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const events = Array.from({ length: 2000 }, (_, index) => `event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"word${index} "}\n\n`);
    const end = 'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1","status":"completed"}}\n\n';
    await page.route('**/v1/responses', (route) => route.fulfill({ status: 200, contentType: 'text/event-stream', body: events.join('') + end }));
    // The best of three: a task is long by the clock, and other processes of this machine take its time.
    let longest = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 3 && longest > LONG_TASK; attempt += 1) {
      await visitor.open('/playground');
      await visitor.settled('Playground');
      await page.evaluate(WATCH);
      await page.getByLabel('Message').fill('Go');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText('word1999').waitFor();
      const long = (await page.evaluate('window.longTasks')) as number[];
      console.log(`a stream of 2,001 events: long tasks ${JSON.stringify(long)}`);
      longest = Math.max(0, ...long);
    }
    expect(longest).toBeLessThanOrEqual(LONG_TASK);
    await page.getByText(/^Events \(2,001\)/).click();
    expect(await page.locator('.play-events .v-row').count()).toBeLessThan(60);
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the first page is painted soon on a cold start', async () => {
    let best = Number.POSITIVE_INFINITY;
    for (let attempt = 0; attempt < 3 && best > PAINT; attempt += 1) {
      const visitor = await world.visitor();
      await visitor.open('/');
      await visitor.page.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
      // The entry appears with the frame after the one that painted.
      const entry = await visitor.page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
      best = (await entry.jsonValue()) ?? Number.POSITIVE_INFINITY;
      console.log(`first contentful paint after ${Math.round(best)} ms`);
      visitor.expectQuiet();
      await visitor.close();
    }
    expect(best).toBeGreaterThan(0);
    expect(best).toBeLessThanOrEqual(PAINT);
  });
});
