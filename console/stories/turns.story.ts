// The list of turns and one turn.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOSTILE, seeded } from './seed';
import { World } from './world';

describe('turns', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('the overview shows the last day with one request', async () => {
    const visitor = await world.signedIn();
    await visitor.settled('Overview');
    const before = visitor.requests.length;
    await visitor.page.reload();
    await visitor.settled('Overview');
    await visitor.page.getByText('Turns by hour').first().waitFor();
    expect(visitor.requests.slice(before).filter((request) => request !== 'GET /admin/console')).toEqual(['GET /admin/overview']);
    await visitor.page.getByRole('link', { name: /: 1$/ }).waitFor();
    await visitor.look('home', { fullPage: true });
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the list is live, is filtered and searched, and is used by keyboard', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/turns');
    await visitor.settled('Turns');
    const rows = page.locator('.v-row');
    await rows.first().waitFor();
    await visitor.look('turns');
    await world.api('POST', '/v1/responses', { model: 'demo', input: 'live' }, undefined, { 'x-amalgam-user': 'live-user' });
    await page.getByText('live-user').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('needle-in-the-hay');
    await page.waitForURL(/q=needle/);
    await page.waitForFunction(() => document.querySelectorAll('.v-row').length === 1);
    await page.getByLabel('Search in the text of turns').fill('');
    await page.waitForURL((url) => !url.search.includes('q='));
    await page.getByRole('button', { name: 'Filters' }).click();
    await page.getByLabel('User', { exact: true }).fill('dewi');
    await page.waitForURL(/user=dewi/);
    await page.waitForFunction(() => document.querySelectorAll('.v-row').length === 2);
    await visitor.look('turns-filters');
    await page.getByRole('grid').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await visitor.settled('Turn');
    expect(page.url()).toContain('/console/turns/resp_');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the columns are chosen and kept', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/turns');
    await page.getByRole('button', { name: 'Columns' }).click();
    await page.getByLabel('Request id').check();
    await page.getByRole('columnheader', { name: 'Request id' }).waitFor();
    await visitor.look('turns-columns');
    await page.reload();
    await page.getByRole('columnheader', { name: 'Request id' }).waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('one turn has messages, times, calls with their raw text, and tool calls', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${seeded.toolTurn}`);
    await visitor.settled('Turn');
    await page.getByText('get_course_detail').first().waitFor();
    await visitor.look('turn', { fullPage: true });
    for (const [tab, name] of [
      ['Time line', 'turn-time'],
      ['Tool calls', 'turn-tools'],
    ] as const) {
      await page.getByRole('tab', { name: tab }).click();
      await visitor.look(name);
    }
    await page.getByRole('tab', { name: 'Model calls' }).click();
    await page.getByRole('button', { name: 'Show exact text' }).first().click();
    await page.getByLabel('Find in Request to the upstream').first().fill('course_id');
    await page.getByText('1 / ').first().waitFor();
    await visitor.look('turn-raw');
    expect(page.url()).toContain('tab=calls');
    await page.reload();
    await page.getByText('Model call 1').waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a turn is found by the id of its request', async () => {
    const visitor = await world.signedIn();
    const { body } = await world.api('GET', '/admin/turns?limit=1');
    await visitor.open(`/turns/${body.data[0].request_id}`);
    await visitor.page.getByText(body.data[0].id).first().waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('hostile content is shown as text, and long content draws at once', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${seeded.hostileTurn}`);
    await visitor.settled('Turn');
    await page.locator('.said.user').getByText('<script>window.hacked=1</script>').waitFor();
    expect(await page.locator('.said.user').innerText()).toContain(HOSTILE.slice(0, 40));
    await visitor.look('turn-hostile');
    await visitor.open(`/turns/${seeded.longTurn}`);
    await visitor.settled('Turn');
    await page.getByRole('button', { name: /Show all/ }).first().waitFor();
    expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('an unknown turn says so with the id of the request', async () => {
    const visitor = await world.signedIn();
    visitor.expected.push(/404 \(Not Found\)/);
    await visitor.open('/turns/resp_AM-0000000000000-nothing');
    await visitor.page.getByRole('alert').waitFor();
    await visitor.page.getByText(/req_/).waitFor();
    await visitor.look('turn-unknown');
    visitor.expectQuiet();
    await visitor.close();
  });
});
