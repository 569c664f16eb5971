// The widget on pages of a product: answers, courses, failures, reloads, hostile surroundings.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World, type Visitor } from './world';

describe('the widget', () => {
  let world: World;
  let product: string;
  beforeAll(async () => {
    world = await World.start();
    product = await world.product('ana');
  });
  afterAll(() => world.stop());

  /** A page whose widget talks to the scripted model. */
  async function storyteller(visitor: Visitor): Promise<void> {
    await visitor.open('/');
    await visitor.page.locator('amalgam-assistant').evaluate((element) => {
      element.setAttribute('agent', 'storyteller');
      element.setAttribute('open', '');
    });
  }

  async function end(visitor: Visitor): Promise<void> {
    await visitor.expectQuiet();
    await visitor.close();
  }

  test('recommended courses are cards below one sentence, page by page, and the same after a reload', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await visitor.open('/');
    await page.getByRole('button', { name: 'Open the assistant' }).click();
    expect(await visitor.input.evaluate((input) => (input.getRootNode() as ShadowRoot).activeElement === input)).toBe(true);
    await visitor.look('greeting');
    await page.evaluate(() => {
      const seen: unknown[] = [];
      Object.assign(window, { seen });
      document.addEventListener('amalgam:message', (event) => seen.push((event as CustomEvent).detail));
    });
    await visitor.say('I need a course recommendation about "data"');
    await visitor.answered();
    await page.getByText('10 courses').waitFor();
    const cards = visitor.log.locator('.card');
    expect(await cards.count()).toBe(5);
    expect(await cards.first().getByRole('link').getAttribute('href')).toBe('https://courses.example.com/44');
    const seen = await page.evaluate(() => (window as unknown as { seen: { role: string; tool_results?: { name: string }[] }[] }).seen);
    expect(seen.map(({ role, tool_results: results }) => [role, results?.[0]?.name])).toEqual([['user', undefined], ['assistant', 'get_course_recommendation']]);
    await visitor.look('recommendations');
    await cards.first().scrollIntoViewIfNeeded();
    await visitor.look('cards');
    await page.getByRole('button', { name: 'Show more courses' }).click();
    await expect.poll(() => cards.count()).toBe(10);
    expect(await page.getByRole('button', { name: 'Show more courses' }).count()).toBe(0);
    const before = await visitor.messages();
    await page.reload();
    // It is open again, with the first page of the same cards.
    await page.getByText('10 courses').waitFor();
    expect(await cards.count()).toBe(5);
    expect((await visitor.messages())[0]).toBe(before[0]);
    await page.keyboard.press('Escape');
    await visitor.input.focus();
    await page.keyboard.press('Escape');
    await visitor.input.waitFor({ state: 'hidden' });
    expect(await page.getByRole('button', { name: 'Open the assistant' }).evaluate((button) => (button.getRootNode() as ShadowRoot).activeElement === button)).toBe(true);
    await end(visitor);
  });

  test('a course is a panel, inline, in Indonesian', async () => {
    const visitor = await world.visitor(product, { locale: 'id-ID' });
    const { page } = visitor;
    await visitor.open('/course.html');
    await page.getByText('Halo! Ada yang bisa saya bantu?').waitFor();
    await visitor.say('Rangkumin course 28 dong');
    await visitor.answered();
    const panel = page.getByRole('region', { name: 'Kursus', exact: true });
    expect(await panel.locator('.name').innerText()).toBe('Leadership Foundations');
    expect(await panel.locator('.badge').allInnerTexts()).toEqual(['Learn', 'Started', 'Selesaikan 100% untuk menuntaskan', 'leadership', 'communication']);
    await visitor.look('course-id');
    await end(visitor);
  });

  test('Markdown is shown, and nothing in it or in the catalogue runs or loads', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await storyteller(visitor);
    await visitor.say('Markdown please');
    await visitor.answered();
    await page.getByRole('strong').getByText('Bold').waitFor();
    expect(await visitor.log.locator('a').evaluateAll((links) => links.map((link) => (link as HTMLAnchorElement).href))).toEqual(['https://example.com/good', 'https://tracker.example/p.png']);
    expect(await visitor.log.locator('img, script').count()).toBe(0);
    await visitor.look('markdown');
    await page.locator('amalgam-assistant').evaluate((element) => element.setAttribute('agent', 'home-assistant'));
    await visitor.say('I need a course recommendation about "zebra"');
    await visitor.answered();
    expect(await visitor.log.locator('.card .name').innerText()).toContain('Zebra <img src=x onerror="window.hacked=1"> & "quotes"');
    expect(await visitor.log.locator('.card img, .card script').count()).toBe(0);
    await visitor.look('hostile-course');
    await end(visitor);
  });

  test('the stop button ends the answer here and on the server, and the next message is answered', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await storyteller(visitor);
    await visitor.say('a slow story');
    await visitor.log.getByText('Once upon a time').waitFor();
    await visitor.look('answering');
    const cancelled = page.waitForResponse((response) => response.url().includes('/cancel/') && response.request().method() === 'POST');
    await page.getByRole('button', { name: 'Stop' }).click();
    expect(await (await cancelled).json()).toMatchObject({ cancelled: true });
    await visitor.log.getByText('Stopped').waitFor();
    await visitor.say('and now?');
    await visitor.log.getByText('You said and now?.').waitFor();
    await end(visitor);
  });

  test('a reload in the middle of an answer goes on where it was', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await storyteller(visitor);
    await page.getByRole('button', { name: 'New conversation' }).click();
    await visitor.say('another slow story');
    await visitor.log.getByText('Once upon a time').waitFor();
    const asked = world.model.requests;
    // The page sets the attributes from the beginning this time.
    await page.addInitScript(() =>
      document.addEventListener('DOMContentLoaded', () => {
        const element = document.querySelector('amalgam-assistant');
        element?.setAttribute('agent', 'storyteller');
        element?.setAttribute('open', '');
      }),
    );
    await page.reload();
    await visitor.log.getByText('Once upon a time').waitFor();
    world.model.release();
    await visitor.log.getByText('Once upon a time the end.').waitFor();
    expect(await visitor.messages()).toHaveLength(2);
    await page.reload();
    await visitor.log.getByText('Once upon a time the end.').waitFor();
    expect(await visitor.messages()).toHaveLength(2);
    expect(world.model.requests).toBe(asked);
    await end(visitor);
  });

  test('what another user of the same tab said is not shown', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    visitor.expected.push(/404 \(Not Found\)/);
    await page.addInitScript(([server]) => {
      const pending = { key: 'k', message: 'a secret of another user', newSession: false, responseId: 'resp_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa', at: Date.now() };
      sessionStorage.setItem(`amalgam-assistant ${server} storyteller`, JSON.stringify({ sessionId: 999, pending, open: true, fresh: false }));
    }, [world.url]);
    const asked = page.waitForResponse(/messages/);
    await storyteller(visitor);
    expect((await asked).status()).toBe(404);
    await page.getByText('Hello! How can I help?').waitFor();
    expect(await page.getByText('a secret of another user').count()).toBe(0);
    await visitor.say('hello');
    await visitor.log.getByText('You said hello.').waitFor();
    await end(visitor);
  });

  test('a new conversation begins a new session', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await storyteller(visitor);
    const sessions: unknown[] = [];
    await page.exposeFunction('told', (id: unknown) => sessions.push(id));
    await page.evaluate(() => document.addEventListener('amalgam:message', (event) => {
      const { role, session_id: id } = (event as CustomEvent).detail;
      if (role === 'assistant') (window as unknown as { told: (id: unknown) => void }).told(id);
    }));
    await visitor.say('one');
    await visitor.log.getByText('You said one.').waitFor();
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.getByText('Hello! How can I help?').waitFor();
    await visitor.say('two');
    await visitor.log.getByText('You said two.').waitFor();
    await expect.poll(() => sessions.length).toBe(2);
    expect(sessions[0]).not.toBe(sessions[1]);
    expect(await visitor.messages()).toHaveLength(2);
    await end(visitor);
  });

  test('a failed answer can be asked for again, and a broken connection is retried with the same key', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    visitor.expected.push(/503|ERR_FAILED/);
    await storyteller(visitor);
    world.model.failures = 10;
    await visitor.say('will it work?');
    await visitor.log.getByText('The assistant is not available right now.').waitFor();
    await visitor.look('failure');
    world.model.failures = 0;
    await page.getByRole('button', { name: 'Try again' }).click();
    await visitor.log.getByText('You said will it work?.').waitFor();
    const keys: (string | undefined)[] = [];
    let broken = 2;
    await page.route('**/ai-agent/respond/', async (route) => {
      if (route.request().method() !== 'POST') return route.continue();
      keys.push(route.request().headers()['idempotency-key']);
      return broken-- > 0 ? route.abort() : route.continue();
    });
    await visitor.say('over a bad network');
    await visitor.log.getByText('You said over a bad network.').waitFor();
    expect(keys).toHaveLength(3);
    expect(new Set(keys).size).toBe(1);
    await end(visitor);
  });

  test('an expired token is replaced by a new one, and the user notices nothing', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    visitor.expected.push(/401 \(Unauthorized\)/);
    await storyteller(visitor);
    let asked = 0;
    await page.route('**/client-secret', (route) => {
      asked += 1;
      return route.continue();
    });
    await page.route('**/ai-agent/respond/', async (route) => {
      const headers = { 'access-control-allow-origin': product, 'content-type': 'application/json' };
      return asked === 1 && route.request().method() === 'POST' ? route.fulfill({ status: 401, headers, body: '{"detail": "The token has expired.", "code": "token_expired"}' }) : route.continue();
    });
    await visitor.say('hello');
    await visitor.log.getByText('You said hello.').waitFor();
    expect(asked).toBe(2);
    await end(visitor);
  });

  test('a spent budget and a page without tokens are said in plain words', async () => {
    const frugal = await world.product('ben', '--messages-per-day', '1');
    const visitor = await world.visitor(frugal);
    visitor.expected.push(/429 \(Too Many Requests\)|502 \(Bad Gateway\)/);
    await storyteller(visitor);
    await visitor.say('one');
    await visitor.log.getByText('You said one.').waitFor();
    await visitor.say('two');
    await visitor.log.getByText('You have used all your messages for today.').waitFor();
    await visitor.look('budget');
    await visitor.page.route('**/client-secret', (route) => route.fulfill({ status: 502 }));
    await storyteller(visitor);
    await visitor.say('three');
    await visitor.log.getByText('Please sign in again.').waitFor();
    await end(visitor);
  });

  test('styles of a hostile page do not reach the widget', async () => {
    const visitor = await world.visitor(product);
    const { page } = visitor;
    await visitor.open('/hostile.html');
    const bubble = page.getByRole('button', { name: 'Open the assistant' });
    expect(await bubble.boundingBox()).toMatchObject({ width: 56, height: 56 });
    await bubble.click();
    await visitor.say('Hello');
    await visitor.answered();
    const style = await visitor.log.locator('.user').evaluate((element) => {
      const { fontSize, color, visibility } = getComputedStyle(element);
      return { fontSize, color, visibility };
    });
    expect(style).toEqual({ fontSize: '15px', color: 'rgb(255, 255, 255)', visibility: 'visible' });
    await visitor.look('hostile-page');
    await end(visitor);
  });

  test('it fits on a telephone and takes the colours of its page', async () => {
    const visitor = await world.visitor(product, { width: 360, height: 740 });
    const { page } = visitor;
    await visitor.open('/');
    await page.getByRole('button', { name: 'Open the assistant' }).click();
    await visitor.say('I need a course recommendation about "leadership"');
    await visitor.answered();
    await visitor.log.locator('.card').first().waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
    await visitor.look('telephone');
    const colour = await page.locator('amalgam-assistant').evaluate((element) => {
      const { style } = element as HTMLElement;
      style.setProperty('--amalgam-accent', 'rgb(0, 90, 60)');
      style.setProperty('--amalgam-accent-text', 'white');
      const user = element.shadowRoot?.querySelector('.user');
      return user ? getComputedStyle(user).backgroundColor : '';
    });
    expect(colour).toBe('rgb(0, 90, 60)');
    await visitor.look('telephone-themed');
    await end(visitor);
  });
});
