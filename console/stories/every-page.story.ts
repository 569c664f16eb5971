// What holds for every page: few requests, none while nothing changes, no violation of accessibility rules, both languages, narrow screens.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { everyPlace } from './pages';
import { OPERATOR_KEY, World, type Visitor } from './world';

/** Live lists: one stream each. */
const STREAMS = ['GET /admin/turns/tail'];

describe('every page', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  /** Opens a page by its address and waits until it has loaded, in any language. */
  const open = async (visitor: Visitor, path: string): Promise<void> => {
    await visitor.open(path);
    await visitor.page.getByRole('heading', { level: 1 }).waitFor();
    await visitor.page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
  };

  test('asks the API at most three times, and not at all while nothing changes', async () => {
    const visitor = await world.signedIn();
    await visitor.settled('Overview');
    for (const [path, title] of everyPlace()) {
      const before = visitor.requests.length;
      await visitor.open(path);
      await visitor.settled(title);
      await visitor.page.waitForTimeout(300);
      const first = visitor.requests.slice(before).filter((request) => !STREAMS.includes(request));
      expect.soft(first.length, `${path}: ${first.join(', ')}`).toBeLessThanOrEqual(3);
      const then = visitor.requests.length;
      await visitor.page.waitForTimeout(1200);
      expect.soft(visitor.requests.slice(then), path).toEqual([]);
    }
    visitor.expectQuiet();
    await visitor.close();
  }, 180_000);

  test('has no violation of accessibility rules, in both languages, and shows no text in the wrong one', async () => {
    for (const options of [{}, { locale: 'id-ID', dark: true }]) {
      const visitor = await world.signedIn(OPERATOR_KEY, options);
      for (const [path] of everyPlace()) {
        await open(visitor, path);
        expect.soft(await visitor.violations(), `${path} ${options.locale ?? 'en'}`).toEqual([]);
        // The reference is the document of the API, which is in English.
        if (!options.locale || path === '/api') continue;
        const text = await visitor.page.locator('.shell').innerText();
        expect.soft(/\b(Load more|Try again|Search|Filters|in progress|completed|Refresh|Turns|Tools|Settings|model call|created|New|Delete)\b/.exec(text)?.[0], path).toBeUndefined();
      }
      visitor.expectQuiet();
      await visitor.close();
    }
  });

  test('fits into 360 pixels', async () => {
    const visitor = await world.signedIn(OPERATOR_KEY, { width: 360, height: 740 });
    for (const [path] of everyPlace()) {
      await open(visitor, path);
      const over = await visitor.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect.soft(over, path).toBe(0);
    }
    visitor.expectQuiet();
    await visitor.close();
  });

  test('is reached past the menus by keyboard, and a form that was not sent is still there after a reload and a new sign-in', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.settled('Overview');
    await page.getByRole('link', { name: 'Turns', exact: true }).click();
    await visitor.settled('Turns');
    await page.waitForFunction(() => document.activeElement?.id === 'content');
    await page.reload();
    await visitor.settled('Turns');
    await page.keyboard.press('Tab');
    await page.getByRole('link', { name: 'Skip to the content' }).waitFor();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.activeElement?.id === 'content');
    await visitor.open('/keys');
    await visitor.settled('Keys and tenants');
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByLabel('Label').fill('typed before');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.reload();
    // The session ends meanwhile.
    await visitor.context.clearCookies();
    await page.reload();
    await page.getByLabel('API key').fill(OPERATOR_KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await visitor.settled('Keys and tenants');
    await page.getByRole('button', { name: 'New key' }).click();
    expect(await page.getByLabel('Label').inputValue()).toBe('typed before');
    await visitor.close();
  });

  test('the API page asks before it sends what changes something, and shows the id of the request', async () => {
    const visitor = await world.signedIn();
    visitor.expected.push(/404 \(Not Found\)/);
    const { page } = visitor;
    await visitor.open('/api');
    await visitor.settled('API reference');
    await page.getByLabel('Find an operation').fill('delete /admin/tools');
    await page.getByText('/admin/tools/{name}').click();
    await page.getByLabel('name *').fill('no_such_tool');
    const before = visitor.requests.length;
    await page.getByRole('button', { name: 'Send request' }).click();
    await page.getByText('Send this deletion?').waitFor();
    await visitor.look('api-question');
    await page.getByRole('button', { name: 'Cancel' }).click();
    expect(visitor.requests.slice(before)).toEqual([]);
    await page.getByRole('button', { name: 'Send request' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Send request' }).click();
    await page.getByText('Answer: HTTP 404').waitFor();
    await page.getByText(/^req_/).waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });
});
