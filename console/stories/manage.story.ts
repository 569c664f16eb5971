// Pages that change something: profiles, modes, tools, approvals, keys, tenants, settings, system.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { World, type Visitor } from './world';

describe('pages that change something', () => {
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

  test('a profile is created, changed after a look at the differences, compared and restored', async () => {
    const { page } = visitor;
    await visitor.open('/profiles');
    await visitor.settled('Profiles and modes');
    await page.getByRole('link', { name: 'course-assistant' }).waitFor();
    await visitor.look('profiles', { fullPage: true });
    await page.getByRole('link', { name: 'New profile' }).click();
    await page.getByLabel('Name').fill('poet');
    await page.getByLabel('Prompt').fill('You write poems.\nShort ones.');
    await page.getByRole('button', { name: 'Show all tools' }).click();
    await page.getByLabel('get_course_detail').check();
    await page.getByRole('button', { name: 'Review and save' }).click();
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await visitor.settled('poet');
    await page.getByText('Version 1').first().waitFor();
    await page.getByLabel('Prompt').fill('You write poems.\nLong ones.');
    await page.reload();
    await page.getByText('There are unsaved changes.').waitFor();
    expect(await page.getByLabel('Prompt').inputValue()).toContain('Long ones.');
    await page.getByRole('button', { name: 'Review and save' }).click();
    await page.getByText('Short ones.').waitFor();
    await visitor.look('profile-review');
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByText('Version 2').first().waitFor();
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.getByText('From version 1 to version 2').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Restore' }).click();
    expect(await page.getByLabel('Prompt').inputValue()).toContain('Short ones.');
    await visitor.look('profile', { fullPage: true });
    await page.getByRole('button', { name: 'Discard changes' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await visitor.settled('Profiles and modes');
    expect((await world.api('GET', '/admin/profiles/poet')).status).toBe(404);
    visitor.expectQuiet();
  });

  test('a mode is created and deleted', async () => {
    const { page } = visitor;
    await visitor.open('/modes/new');
    await page.getByLabel('Name', { exact: true }).fill('haiku');
    await page.getByLabel('Prompt').fill('Answer in a haiku.');
    await page.getByRole('button', { name: 'Review and save' }).click();
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByRole('button', { name: 'Delete' }).waitFor();
    expect((await world.api('GET', '/admin/modes/haiku')).body.system_prompt).toBe('Answer in a haiku.');
    await visitor.look('mode');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await visitor.settled('Profiles and modes');
    visitor.expectQuiet();
  });

  test('a tool is tried by a form of its schema, and its use is explained', async () => {
    const { page } = visitor;
    await visitor.open('/tools');
    await visitor.settled('Tools');
    await page.getByRole('link', { name: 'get_course_detail' }).waitFor();
    await visitor.look('tools');
    await page.getByRole('link', { name: 'get_course_detail' }).click();
    await visitor.settled('get_course_detail');
    await page.getByLabel('course_id *').fill('28');
    await page.getByRole('button', { name: 'Run' }).click();
    await page.getByText('Leadership Foundations').waitFor();
    await page.getByLabel('Profile').fill('course-assistant');
    await page.getByRole('button', { name: 'Check' }).click();
    await page.locator('.bullets li').first().waitFor();
    await visitor.look('tool', { fullPage: true });
    visitor.expectQuiet();
  });

  test('a call waits for an approval, which is given with a reason', async () => {
    const { page } = visitor;
    const tool = { kind: 'builtin', settings: { function: 'get_course_detail' }, requires_approval: 'admin' };
    const parameters = { type: 'object', properties: { course_id: { type: 'integer' } }, required: ['course_id'] };
    const put = await world.api('PUT', '/admin/tools/guarded_course', { ...tool, parameters, description: 'Gets a course.' });
    expect(put.status, JSON.stringify(put.body)).toBeLessThan(300);
    const asked = await world.api('POST', '/v1/responses', { model: 'demo', input: 'Call guarded_course for 28', tools: [{ type: 'function', name: 'guarded_course' }] });
    expect(JSON.stringify(asked.body.output)).toContain('mcp_approval_request');
    await visitor.open('/approvals');
    await visitor.settled('Approvals');
    await page.getByText('guarded_course').waitFor();
    await visitor.look('approvals');
    await page.getByLabel('Reason (optional)').fill('known course');
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('Nothing waits for a decision').waitFor();
    await page.getByRole('tab', { name: 'All' }).click();
    await page.getByText('known course').waitFor();
    visitor.expectQuiet();
  });

  test('a key is created, shown once, rotated and revoked', async () => {
    const { page } = visitor;
    await visitor.open('/keys');
    await visitor.settled('Keys and tenants');
    await page.getByRole('button', { name: 'New key' }).click();
    await page.getByLabel('Label').fill('nightly job');
    await visitor.look('key-new');
    await page.getByRole('button', { name: 'Create' }).click();
    const key = (await page.getByRole('dialog').locator('pre').innerText()).trim();
    expect((await world.api('GET', '/v1/models', undefined, key)).status).toBe(200);
    await page.getByRole('button', { name: 'Done' }).click();
    const row = page.getByRole('row', { name: /nightly job/ });
    await row.waitFor();
    await visitor.look('keys', { fullPage: true });
    await row.getByRole('button', { name: 'Revoke' }).click();
    await visitor.look('key-revoke');
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await row.getByText('revoked').waitFor();
    expect((await world.api('GET', '/v1/models', undefined, key)).status).toBe(401);
    visitor.expectQuiet();
  });

  test('browser sessions are listed and ended', async () => {
    const { page } = visitor;
    const other = await world.signedIn();
    other.expected.push(/401 \(Unauthorized\)/);
    await visitor.open('/keys?tab=sessions');
    await page.getByText('this one').waitFor();
    await visitor.look('console-sessions');
    await page.getByRole('button', { name: 'End' }).first().click();
    await page.getByRole('dialog').getByRole('button', { name: 'End' }).click();
    await page.getByText('The session was ended').waitFor();
    await other.open('/turns');
    await other.page.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    await other.close();
    visitor.expectQuiet();
  });

  test('a tenant is created and its settings are changed, with their origin', async () => {
    const { page } = visitor;
    await visitor.open('/keys?tab=tenants');
    await page.getByRole('button', { name: 'New tenant' }).click();
    await page.getByRole('dialog').getByLabel('Name').fill('third tenant');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('link', { name: 'third tenant' }).click();
    await visitor.settled('Settings of third tenant');
    const row = page.getByRole('row', { name: /^max_output_tokens/ });
    await row.getByRole('button', { name: 'Change' }).click();
    await row.getByLabel('max_output_tokens').fill('512');
    await row.getByRole('button', { name: 'Save' }).click();
    await row.getByText('512').waitFor();
    await row.getByText('config', { exact: true }).waitFor();
    await visitor.look('tenant', { fullPage: true });
    visitor.expectQuiet();
  });

  test('the system page shows health, reloads the configuration, and lists the audit and webhooks', async () => {
    const { page } = visitor;
    await visitor.open('/system');
    await visitor.settled('System');
    await page.getByText('ready').waitFor();
    await visitor.look('system');
    await page.getByRole('tab', { name: 'Configuration' }).click();
    await page.getByRole('button', { name: 'Look for changes' }).click();
    await page.getByText('The configuration has not changed.').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('tab', { name: 'Audit' }).click();
    await page.getByText('tenant.create').first().waitFor();
    await visitor.look('audit');
    await page.getByRole('button', { name: 'Details' }).first().click();
    await page.getByText('Hash of the entry:').waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('tab', { name: 'Webhooks' }).click();
    await page.getByText('No endpoints').waitFor();
    await page.getByRole('button', { name: 'New endpoint' }).click();
    await page.getByRole('dialog').getByLabel('URL').fill('http://127.0.0.1:9/hook');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByText('Copy the signing secret now.').waitFor();
    expect((await page.getByRole('dialog').locator('pre').innerText()).trim()).toMatch(/^whsec_/);
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByText('http://127.0.0.1:9/hook').waitFor();
    await visitor.look('webhooks');
    await page.getByRole('button', { name: 'Change' }).click();
    await page.getByRole('dialog').getByLabel('response.failed').check();
    await visitor.look('webhook-change');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByRole('row', { name: /response\.failed/ }).waitFor();
    await page.getByRole('button', { name: 'Rotate secret' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Rotate secret' }).click();
    await page.getByText('The secret was replaced').waitFor();
    expect((await page.getByRole('dialog').locator('pre').innerText()).trim()).toMatch(/^whsec_/);
    await page.getByRole('button', { name: 'Done' }).click();
    visitor.expectQuiet();
  });
});
