// Pages that only show, readers without rights to change, and the wall between tenants.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PAGES } from './pages';
import { SECOND_TENANT_SECRET, seeded } from './seed';
import { World } from './world';

describe('pages that show', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('usage is shown by day and by model, and is downloaded as CSV', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/usage');
    await visitor.settled('Usage');
    await page.getByRole('cell', { name: 'demo' }).waitFor();
    await page.getByLabel('By', { exact: true }).selectOption('user');
    await page.getByRole('cell', { name: 'ada' }).waitFor();
    await visitor.look('usage', { fullPage: true });
    const download = page.waitForEvent('download');
    await page.getByRole('link', { name: 'Download CSV' }).click();
    const text = await (await download).createReadStream().then(async (stream) => {
      let all = '';
      for await (const chunk of stream) all += String(chunk);
      return all;
    });
    expect(text.split('\n')[0]).toContain('user');
    expect(text).toContain('ada');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a session is read as a conversation', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/sessions');
    await visitor.settled('Sessions');
    await page.getByRole('link', { name: seeded.sessionId, exact: true }).waitFor();
    await visitor.look('sessions');
    await page.getByRole('link', { name: seeded.sessionId, exact: true }).click();
    await page.getByText('What is course 28 about?').first().waitFor();
    await visitor.look('session', { fullPage: true });
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the reference lists every operation and sends a request', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/api');
    await visitor.settled('API reference');
    await page.getByLabel('Find an operation').fill('/admin/usage');
    await page.getByText('/admin/usage').click();
    await page.getByLabel('group_by').fill('model');
    await page.getByRole('button', { name: 'Send request' }).click();
    await page.getByText('Answer: HTTP 200').waitFor();
    await visitor.look('api');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('two turns are compared', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${seeded.ids[0]}`);
    await page.getByRole('link', { name: 'Compare' }).click();
    await visitor.settled('Compare turns');
    await page.getByLabel('Second turn').fill(seeded.ids[1] ?? '');
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.getByText('Differences of the answers').waitFor();
    await page.locator('.diff-line.added').first().waitFor();
    await visitor.look('compare', { fullPage: true });
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a reader sees everything of its tenant and no button that changes something', async () => {
    const visitor = await world.signedIn(seeded.viewKey);
    const { page } = visitor;
    for (const [path, title] of PAGES) {
      await visitor.open(path);
      await visitor.settled(title);
      const buttons = await page.getByRole('button', { name: /^(New|Delete|Revoke|Rotate|End|Save|Approve|Reload the|Send$)/ }).count();
      expect(buttons, path).toBe(0);
    }
    expect(await page.getByRole('link', { name: 'Playground' }).count()).toBe(0);
    await visitor.open('/playground');
    await visitor.settled('Page not found');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the administrator of another tenant sees nothing of the first', async () => {
    const visitor = await world.signedIn(seeded.secondKey);
    visitor.expected.push(/404 \(Not Found\)/, /403 \(Forbidden\)/);
    const { page } = visitor;
    const foreign = ['ada', 'budi', 'dewi', 'mallory', ...seeded.ids.slice(0, 3), seeded.toolTurn];
    for (const [path, title] of PAGES.filter(([one]) => one !== '/api')) {
      await visitor.open(path);
      await visitor.settled(title);
      const text = await page.locator('main').innerText();
      for (const name of foreign) expect(text, path).not.toMatch(new RegExp(`\\b${name}\\b`));
    }
    await visitor.open('/turns');
    await page.locator('.v-row').first().waitFor();
    expect(await page.locator('.v-row').count()).toBe(1);
    for (const path of [`/turns/${seeded.toolTurn}`, `/sessions/${seeded.sessionId}`, '/tenants/1', '/turns?tenant=1', '/turns?tenant=all', '/keys?tenant=1']) {
      await visitor.open(path);
      await page.getByRole('alert').first().waitFor();
    }
    visitor.expectQuiet();
    await visitor.close();
    const first = await world.signedIn();
    await first.open(`/turns/${seeded.secondTurn}`);
    first.expected.push(/404 \(Not Found\)/);
    expect(await first.page.locator('body').innerText()).not.toContain(SECOND_TENANT_SECRET);
    await first.close();
  });
});
