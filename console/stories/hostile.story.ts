// Hostile texts in every kind of field are shown as text, and one of 5 MB in one line does not stop the page.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOSTILE, seeded } from './seed';
import { World } from './world';

const SIZE = 5_000_000;

describe('hostile content', () => {
  let world: World;
  let approvalTurn = '';
  let longTurn = '';
  let sessionId = '';
  beforeAll(async () => {
    world = await World.start();
    const put = async (route: string, body: object): Promise<void> => {
      const { status, body: answer } = await world.api('PUT', route, body);
      if (status >= 300) throw new Error(`${route}: ${status} ${JSON.stringify(answer)}`);
    };
    await put('/admin/profiles/hostile', { prompt: HOSTILE, tools: [], active: true });
    await put('/admin/modes/hostile', { display_name: 'hostile <b>mode</b>', system_prompt: HOSTILE });
    await put('/admin/tools/hostile_tool', {
      kind: 'builtin',
      settings: { function: 'get_course_detail' },
      requires_approval: 'admin',
      description: HOSTILE,
      guidance: HOSTILE,
      parameters: { type: 'object', properties: { course_id: { type: 'integer', description: HOSTILE } }, required: ['course_id'] },
    });
    await world.api('POST', '/admin/tenants', { name: HOSTILE.replaceAll('\u202e', '').replaceAll('\u202c', '') });
    await world.api('POST', '/admin/keys', { scopes: ['use'], label: '<script>window.hacked=1</script>', user: 'mallory"><b>x</b>' });
    const asked = await world.api('POST', '/v1/responses', { model: 'demo', input: `${HOSTILE} Call hostile_tool for 28`, tools: [{ type: 'function', name: 'hostile_tool' }] });
    approvalTurn = asked.body.id as string;
    const answered = await world.api('POST', '/api/v2/ai-agent/respond/', { agent: 'hostile', message: HOSTILE }, undefined, { 'x-amalgam-user': 'mallory"><b>x</b>' });
    sessionId = String(answered.body.session_id);
    const long = await world.api('POST', '/v1/responses', { model: 'story/instant', input: `${'x'.repeat(SIZE)}${HOSTILE}` });
    longTurn = long.body.id as string;
  });
  afterAll(() => world.stop());

  test('is shown as text on every page that has it', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    const places = [
      `/turns/${seeded.hostileTurn}`,
      `/turns/${seeded.hostileTurn}?tab=json`,
      `/turns/${approvalTurn}`,
      `/turns/${approvalTurn}?tab=tools`,
      '/turns',
      '/profiles',
      '/profiles/hostile',
      '/profiles?tab=modes',
      '/modes/hostile',
      '/tools',
      '/tools/hostile_tool',
      '/sessions',
      `/sessions/${sessionId}`,
      '/approvals',
      '/keys',
      '/keys?tab=tenants',
      '/usage?by=user',
      '/system?tab=audit',
      `/compare?a=${seeded.hostileTurn}&b=${approvalTurn}`,
      `/playground?from=${seeded.hostileTurn}`,
    ];
    for (const path of places) {
      await visitor.open(path);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
      const state = await page.evaluate(() => ({ hacked: 'hacked' in window, elements: document.querySelectorAll('main img, main script, main b').length }));
      expect.soft(state, path).toEqual({ hacked: false, elements: 0 });
    }
    await visitor.open('/approvals');
    await page.getByText('hostile_tool').first().waitFor();
    await visitor.look('approvals-hostile');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a line of five megabytes is shown, searched and compared', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${longTurn}`);
    await visitor.settled('Turn');
    await page.getByRole('button', { name: /Show all/ }).first().waitFor();
    await visitor.open(`/turns/${longTurn}?tab=calls`);
    await page.getByRole('button', { name: 'Show exact text' }).click();
    await page.getByText('4.8 MiB').first().waitFor();
    await page.getByLabel('Find in Request to the upstream').fill('window.hacked=1</script>');
    await page.getByText('1 / 1', { exact: true }).waitFor();
    expect(await page.locator('.raw-line').count()).toBeLessThan(120);
    await visitor.open(`/turns/${longTurn}?tab=context`);
    await page.getByText(/Prompt: about/).waitFor();
    expect(await page.evaluate(() => 'hacked' in window)).toBe(false);
    visitor.expectQuiet();
    await visitor.close();
  });
});
