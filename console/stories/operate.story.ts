// Pages that operate the server: limits, knowledge, courses, sessions, the system.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Download } from 'playwright-core';
import { OPERATOR_KEY, World, type Visitor } from './world';

describe('pages that operate the server', () => {
  let world: World;
  let visitor: Visitor;
  beforeAll(async () => {
    world = await World.start();
    visitor = await world.signedIn();
  });
  afterAll(async () => {
    await visitor.close();
    await world.stop();
  });

  /** Opens a page and counts what it asks of the API at first. */
  async function open(route: string, title: string | RegExp, most = 3): Promise<void> {
    visitor.requests.length = 0;
    await visitor.open(route);
    await visitor.settled(title);
    // The session is read by the shell on each load.
    const asked = visitor.requests.filter((request) => request !== 'GET /admin/console');
    expect(asked.length, asked.join(', ')).toBeLessThanOrEqual(most);
  }

  /** The page at 360 pixels, without scrolling sideways. */
  async function narrow(name: string): Promise<void> {
    await visitor.page.setViewportSize({ width: 360, height: 740 });
    await visitor.look(`${name}-360`);
    const wide = await visitor.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(wide).toBe(0);
    await visitor.page.setViewportSize({ width: 1360, height: 860 });
  }

  test('a limit is created, shown with what is used of it, changed and deleted', async () => {
    const { page } = visitor;
    await open('/limits', 'Limits');
    await page.getByText('No limits').waitFor();
    await visitor.look('limits-empty');
    await page.getByRole('button', { name: 'New limit' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name of the user').fill('ada');
    await dialog.getByLabel('Requests a minute').fill('many');
    await dialog.getByText('Must be a number.').waitFor();
    await dialog.getByLabel('Requests a minute').fill('4');
    await dialog.getByLabel('Budget').fill('50000');
    await dialog.getByLabel('Unit').selectOption('tokens');
    await dialog.getByLabel('Only these models').fill('demo\nother/model');
    await visitor.look('limit-form');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByText('0 / 4').waitFor();
    await world.api('POST', '/v1/responses', { model: 'demo', input: 'Hello.' }, undefined, { 'x-amalgam-user': 'ada' });
    await world.api('PUT', '/admin/limits/models/other%2Fmodel', { budget: { amount: 25, unit: 'usd', period: 'month' } });
    await page.reload();
    await page.getByText('1 / 4').waitFor();
    await page.getByText('other/model').first().waitFor();
    await visitor.look('limits');
    await narrow('limits');
    const row = page.getByRole('row', { name: /ada/ });
    await row.getByRole('button', { name: 'Change' }).click();
    await page.getByRole('dialog').getByLabel('Requests a minute').fill('');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByText('1 / 4').waitFor({ state: 'detached' });
    const { body } = await world.api('GET', '/admin/limits/users/ada');
    expect([body.requests_per_minute, body.budget.amount, body.models]).toEqual([null, 50_000, ['demo', 'other/model']]);
    await row.getByRole('button', { name: 'Delete' }).click();
    await visitor.look('limit-delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await row.waitFor({ state: 'detached' });
    expect((await world.api('GET', '/admin/limits/users/ada')).status).toBe(404);
    visitor.expectQuiet();
  });

  test('documents are uploaded by drag and drop, found as an agent finds them, and deleted', async () => {
    const { page } = visitor;
    await open('/knowledge', 'Knowledge');
    await page.getByText('No knowledge yet').waitFor();
    await page.getByRole('button', { name: 'New collection' }).first().click();
    await page.getByRole('dialog').getByLabel('Label').fill('birds');
    // The collection does not exist before its first document.
    visitor.expected.push(/404 \(Not Found\).*knowledge\/birds/);
    await page.getByRole('button', { name: 'Continue' }).click();
    await visitor.settled('birds');
    await page.getByText('The collection has no documents').waitFor();
    await visitor.look('knowledge-empty');
    const dropped = await page.evaluateHandle(() => {
      const files = new DataTransfer();
      files.items.add(new File(['# The ibis\n\nIt evaluates the mud with its beak.\n'], 'ibis.md', { type: 'text/markdown' }));
      files.items.add(new File(['fn heron() { stand(); }\n'], 'heron.rs', { type: 'text/plain' }));
      files.items.add(new File([new Uint8Array([0, 1, 2])], 'song.bin'));
      return files;
    });
    visitor.expected.push(/400 \(Bad Request\)/);
    await page.locator('.drop').dispatchEvent('dragover', { dataTransfer: dropped });
    await page.locator('.drop').dispatchEvent('drop', { dataTransfer: dropped });
    await page.getByText('The file is not text in UTF-8.').waitFor();
    await page.getByRole('row', { name: /ibis\.md/ }).waitFor();
    await page.getByRole('row', { name: /heron\.rs/ }).waitFor();
    await visitor.look('knowledge-upload', { fullPage: true });
    await page.getByLabel('What an agent would search for').fill('which ibis is evaluating?');
    await page.getByRole('button', { name: 'Search', exact: true }).click();
    await page.getByText('words: ibis, evalu').waitFor();
    await visitor.look('knowledge-search', { fullPage: true });
    await narrow('knowledge');
    await page.getByRole('button', { name: 'Delete heron.rs?' }).click();
    await visitor.look('knowledge-delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('row', { name: /heron\.rs/ }).waitFor({ state: 'detached' });
    expect((await world.api('GET', '/admin/knowledge/birds/documents')).body.data.map((one: { id: string }) => one.id)).toEqual(['upload:ibis.md']);
    await open('/knowledge', 'Knowledge');
    await page.getByRole('link', { name: 'birds' }).waitFor();
    await visitor.look('knowledge', { fullPage: true });
    visitor.expectQuiet();
  });

  test('a course is created and found, and a learner has values of its own', async () => {
    const { page } = visitor;
    await open('/courses', 'Courses');
    await page.getByRole('row').nth(3).waitFor();
    await page.getByRole('button', { name: 'New course' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Course', { exact: true }).fill('9001');
    await dialog.getByLabel('Title').fill('Bird watching');
    await dialog.getByLabel('Tags').fill('nature\noutdoors');
    await visitor.look('course-form');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
    await page.getByLabel('Search the offered courses').fill('bird watching');
    const row = page.getByRole('row', { name: /Bird watching/ });
    await row.waitFor();
    await page.getByLabel('Search the offered courses').fill('');
    await page.getByRole('row').nth(3).waitFor();
    await visitor.look('courses', { fullPage: true });
    await narrow('courses');
    await page.getByRole('tab', { name: 'Learners' }).click();
    await page.getByText('No learner has values of its own').waitFor();
    await visitor.look('learners-empty');
    await page.getByRole('button', { name: 'New value' }).click();
    await dialog.getByLabel('User').fill('dewi');
    await dialog.getByLabel('Course', { exact: true }).fill('9001');
    await dialog.getByLabel('Progress (%)').fill('40');
    await dialog.getByLabel('On the list').selectOption('true');
    await visitor.look('learner-form');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByText('40 %').waitFor();
    await visitor.look('learners');
    const found = await world.api('GET', '/api/v2/course-recommendations/?q=bird', undefined, undefined, { 'x-amalgam-user': 'dewi' });
    expect([found.body.results[0].progress, found.body.results[0].in_playlist]).toEqual([40, true]);
    await page.getByLabel('User').first().fill('dewi');
    await page.getByRole('button', { name: 'Delete all of this learner' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No learner has values of its own').waitFor();
    await page.getByRole('tab', { name: 'Catalogue' }).click();
    await page.getByLabel('Search the offered courses').fill('bird watching');
    await row.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No course matches').waitFor();
    expect((await world.api('GET', '/admin/courses/9001')).status).toBe(404);
    visitor.expectQuiet();
  });

  test('sessions of all three kinds are read page by page, closed and deleted', async () => {
    const { page } = visitor;
    const ada = { 'x-amalgam-user': 'ada' };
    const items = Array.from({ length: 20 }, (_, index) => ({ role: 'user', content: `Line ${index + 1}.` }));
    const conversation = await world.api('POST', '/v1/conversations', { items, metadata: { topic: 'lines' } }, undefined, ada);
    const id = conversation.body.id as string;
    for (let part = 0; part < 3; part += 1) await world.api('POST', `/v1/conversations/${id}/items`, { items: items.map((one, index) => ({ ...one, content: `Part ${part}, line ${index + 1}.` })) }, undefined, ada);
    let session = '';
    for (let index = 0; index < 30; index += 1) {
      const { body } = await world.api('POST', '/api/v2/ai-agent/respond/', { agent: 'home-assistant', message: `Message ${index + 1} of a long thread.` }, undefined, { 'x-amalgam-user': 'fitri' });
      session = String(body.session_id);
    }
    await open('/sessions', 'Sessions');
    await page.getByRole('link', { name: session, exact: true }).waitFor();
    await visitor.look('sessions', { fullPage: true });
    await narrow('sessions');
    await page.getByRole('link', { name: session, exact: true }).click();
    await visitor.settled(`Session ${session}`);
    await page.getByText('50 of 60 messages shown').waitFor();
    await page.getByRole('button', { name: 'Load older messages' }).click();
    await page.getByText('Message 1 of a long thread.', { exact: true }).waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()]);
    expect(JSON.parse(await text(file)).messages.length).toBe(60);
    await page.evaluate(() => window.scrollTo(0, 0));
    await visitor.look('session');
    await page.getByRole('button', { name: 'Close', exact: true }).click();
    await visitor.look('session-close');
    await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click();
    await page.getByText('The session was closed').waitFor();
    await page.getByText('closed', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Delete' }).click();
    await visitor.look('session-delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await visitor.settled('Sessions');
    expect((await world.api('GET', `/admin/sessions/${session}`)).status).toBe(404);

    await page.getByRole('tab', { name: 'Execute' }).click();
    await page.getByRole('row').nth(1).getByRole('link').click();
    await visitor.settled('Execute session');
    await page.getByRole('button', { name: 'Read' }).first().click();
    await page.getByText('What is a turn?').first().waitFor();
    await visitor.look('execute-session');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No execute sessions').waitFor();

    await page.getByRole('tab', { name: 'Conversations' }).click();
    await page.getByRole('link', { name: id }).click();
    await visitor.settled('Conversation');
    await page.getByText('Line 1.', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Load more' }).click();
    await page.getByText('Part 2, line 20.').waitFor();
    await page.evaluate(() => window.scrollTo(0, 0));
    await visitor.look('conversation');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No conversations').waitFor();
    visitor.expectQuiet();
  });

  test('the system shows processes, the store, upstreams and the origin of every value, and a change before it is made', async () => {
    const { page } = visitor;
    await open('/system?tab=state', 'System');
    await page.getByText('answers you').waitFor();
    await page.getByRole('button', { name: 'Check demo' }).click();
    await page.getByText(/answered in/).waitFor();
    await visitor.look('system-state', { fullPage: true });
    await narrow('system-state');
    await open('/system?tab=configuration', 'System');
    await page.getByLabel('only what is set').check();
    await page.getByRole('row', { name: /server\.listen/ }).getByText(/amalgam\.toml:2/).waitFor();
    await visitor.look('configuration', { fullPage: true });
    await narrow('configuration');
    world.configure('[limits]\ntools = 5\n');
    await page.getByRole('button', { name: 'Look for changes' }).click();
    await page.getByRole('dialog').getByRole('row', { name: /limits\.tools/ }).waitFor();
    await visitor.look('configuration-preview');
    await page.getByRole('dialog').getByRole('button', { name: 'Reload the configuration' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const settings = (await world.api('GET', '/admin/configuration')).body.settings as { key: string; value: unknown }[];
    expect(settings.find((one) => one.key === 'limits.tools')?.value).toBe(5);
    visitor.expectQuiet();
  });

  test('the pages speak Indonesian', async () => {
    const own = await world.signedIn(OPERATOR_KEY, { locale: 'id-ID' });
    for (const [route, title] of [['/limits', 'Batas'], ['/knowledge', 'Pengetahuan'], ['/courses', 'Kursus'], ['/sessions', 'Sesi'], ['/system?tab=configuration', 'Sistem']] as const) {
      await own.open(route);
      await own.settled(title);
      await own.look(`${title.toLowerCase()}-id`);
    }
    own.expectQuiet();
    await own.close();
  });
});

/** The content of a file that the browser has saved. */
async function text(file: Download): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of await file.createReadStream()) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}
