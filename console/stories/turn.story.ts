// One turn in depth: context, events, exact texts, live, links of operators, filling the playground.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seeded } from './seed';
import { World } from './world';

describe('one turn', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  const respond = async (body: object): Promise<any> => (await world.api('POST', '/v1/responses', body)).body;

  test('the context names the parts of the prompt, the cache, and where the prompt differs from the one before', async () => {
    const first = await respond({ model: 'story/instant', input: 'Hi', instructions: 'It is nine o’clock.' });
    const second = await respond({ model: 'story/instant', input: 'And now?', instructions: 'It is ten o’clock.', previous_response_id: first.id });
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${second.id}?tab=context`);
    await visitor.settled('Turn');
    await page.getByText('Prompt: about').waitFor();
    for (const part of ['Instructions', 'History', 'Input of the user']) await page.getByRole('cell', { name: part }).waitFor();
    await page.getByText(/Then the prompts differ, in: Instructions/).waitFor();
    await page.getByText('It is nine').first().waitFor();
    await page.getByText('Prompt, read from the cache: 16').waitFor();
    await visitor.look('turn-context', { fullPage: true });
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a page loads the turn without bodies, and the exact text of a call when it is opened', async () => {
    const { id } = await respond({ model: 'story/instant', input: Array.from({ length: 70_000 }, (_, index) => index).join(' ') });
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.settled('Overview');
    const before = visitor.requests.length;
    await visitor.open(`/turns/${id}?tab=calls`);
    await visitor.settled('Turn');
    await page.getByText('Model call 1').waitFor();
    expect(visitor.requests.slice(before)).toEqual(['GET /admin/console', `GET /admin/turns/${id}`]);
    await page.getByRole('button', { name: 'Show exact text' }).click();
    const { body } = await world.api('GET', `/admin/turns/${id}/calls/0`);
    // The copy is what the server has, byte for byte; nothing was cut.
    await page.locator('.raw').first().getByRole('button', { name: 'Copy' }).click();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(body.request);
    expect(body.request.length).toBeGreaterThan(400_000);
    // A text that is broken over two drawn lines is found.
    const broken = body.request.slice(160 * 2000 - 12, 160 * 2000 + 12);
    await page.getByLabel('Find in Request to the upstream').fill(broken);
    await page.getByText('1 / 1', { exact: true }).waitFor();
    await page.locator('mark.current').nth(1).waitFor();
    await visitor.look('turn-raw-search');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('events are listed and shown whole', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const answer = await world.api('POST', '/v1/responses', { model: 'demo', input: 'Stream this.', stream: true });
    const id = /resp_AM-[\w-]+/.exec(String(answer.body))?.[0] ?? '';
    await visitor.open(`/turns/${id}?tab=events`);
    await visitor.settled('Turn');
    await page.getByRole('gridcell', { name: 'response.created' }).click();
    await page.getByRole('heading', { name: 'response.created' }).waitFor();
    await page.getByText(/^\d+ events$/).waitFor();
    await visitor.look('turn-events');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a turn that runs is followed until its end', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const answered = world.api('POST', '/v1/responses', { model: 'story/slow', input: 'Tell me a story.', stream: true });
    await visitor.open('/turns?status=in_progress');
    await page.locator('.v-row').first().waitFor();
    await page.getByRole('grid').focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await visitor.settled('Turn');
    await page.getByText('Once upon a time').waitFor();
    await page.getByText('The turn runs.').waitFor();
    await visitor.look('turn-running');
    world.upstream.release();
    await page.getByText('Once upon a time there was an end.').waitFor();
    await page.getByText('The turn runs.').waitFor({ state: 'detached' });
    await page.locator('.turn-facts').getByText('completed').waitFor();
    expect((await answered).status).toBe(200);
    // Nothing is asked any more.
    const asked = visitor.requests.length;
    await page.waitForTimeout(2500);
    expect(visitor.requests.slice(asked)).toEqual([]);
    visitor.expectQuiet();
    await visitor.close();
  });

  test('⌘K finds a turn by the id of an item, and a profile by its name', async () => {
    const { body } = await world.api('GET', `/admin/turns/${seeded.toolTurn}`);
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.settled('Overview');
    for (const id of [body.response.output[0].id, body.tool_calls[0].call_id]) {
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox').fill(id);
      await page.keyboard.press('Enter');
      await visitor.settled('Turn');
      await page.getByText(seeded.toolTurn).first().waitFor();
      await visitor.open('/');
      await visitor.settled('Overview');
    }
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill('course-assis');
    await page.getByRole('option', { name: /course-assistant/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.waitForURL(/profiles\/course-assistant/);
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a search looks further back than one page of the server, and can be stopped', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const row = (await world.api('GET', '/admin/turns?limit=1')).body.data[0];
    const asked: (string | null)[] = [];
    await page.route(/\/admin\/turns\?.*q=far-away/, async (route) => {
      const after = new URL(route.request().url()).searchParams.get('after');
      asked.push(after);
      const number = asked.length;
      await new Promise((resolve) => setTimeout(resolve, 100));
      await route.fulfill({ json: { object: 'list', data: number === 4 ? [row] : [], first_id: null, last_id: `resp_AM-17900000000${10 - number}-looked`, has_more: number < 60 } });
    });
    await visitor.open('/turns?q=far-away');
    await page.getByText(/were looked at/).waitFor();
    await page.locator('.v-row').first().waitFor();
    expect(asked.slice(0, 3)).toEqual([null, 'resp_AM-179000000009-looked', 'resp_AM-179000000008-looked']);
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.').waitFor();
    const before = asked.length;
    await page.waitForTimeout(600);
    expect(asked.length).toBe(before);
    visitor.expectQuiet();
    await visitor.close();
  });

  test('an operator keeps the tenant in all links of a turn', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const tenant = seeded.secondTenant;
    await visitor.open(`/turns/${seeded.secondTurn}?tenant=${tenant}`);
    await visitor.settled('Turn');
    await page.getByRole('link', { name: 'Compare' }).click();
    await visitor.settled('Compare turns');
    expect(page.url()).toContain(`tenant=${tenant}`);
    await page.getByLabel('Second turn').fill(seeded.secondTurn);
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.getByRole('heading', { name: 'Differences of the prompts' }).waitFor();
    await page.goBack();
    await page.goBack();
    await visitor.settled('Turn');
    await page.getByRole('link', { name: 'Open in playground' }).click();
    await visitor.settled('Playground');
    await page.getByText('Filled in from turn').waitFor();
    expect(await page.getByLabel('Message').inputValue()).toContain('secret');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the playground is filled with everything, and continues from a turn', async () => {
    const first = await respond({ model: 'demo', input: 'My name is Ada.' });
    const tools = [{ type: 'function', name: 'get_course_detail' }];
    const second = await respond({ model: 'demo', input: 'Who am I?', instructions: 'Be brief.', temperature: 0.25, top_p: 0.75, max_output_tokens: 321, tools, previous_response_id: first.id });
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${second.id}`);
    await page.getByRole('link', { name: 'Open in playground' }).click();
    await visitor.settled('Playground');
    await page.getByText(`The next turn continues ${first.id}.`).waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('Who am I?');
    await page.getByRole('button', { name: 'Parameters' }).click();
    const fields: [string, string][] = [['Instructions', 'Be brief.'], ['Temperature', '0.25'], ['Top p', '0.75'], ['Max. output tokens', '321']];
    for (const [label, value] of fields) expect(await page.getByLabel(label).inputValue(), label).toBe(value);
    expect(await page.getByLabel('Tools (JSON)').inputValue()).toContain('get_course_detail');
    await page.getByText('Choose tools of the tool bank').click();
    expect(await page.getByRole('checkbox', { name: 'get_course_detail' }).isChecked()).toBe(true);
    await visitor.look('playground-filled', { fullPage: true });
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText(/You wrote: “Who am I\?”/).waitFor();
    await page.getByRole('button', { name: 'Clear' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByText(/You wrote: “Who am I\?”/).waitFor();
    await visitor.open(`/turns/${second.id}`);
    await page.getByRole('link', { name: 'Continue from here' }).click();
    await page.getByText(`The next turn continues ${second.id}.`).waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a session that may read and call sees all pages', async () => {
    const { body } = await world.api('POST', '/admin/keys', { scopes: ['view', 'use'], label: 'reader and caller' });
    const visitor = await world.signedIn(body.key);
    await visitor.settled('Overview');
    for (const name of ['Turns', 'Sessions', 'Usage', 'Playground', 'Profiles and modes', 'Tools', 'Knowledge', 'Approvals']) {
      await visitor.page.getByRole('link', { name, exact: true }).waitFor();
    }
    await visitor.open('/turns');
    await visitor.settled('Turns');
    await visitor.page.locator('.v-row').first().waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });
});
