// What an administrator of one tenant is told about another one: nothing, on every route of the API that the console uses.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seeded } from './seed';
import { World } from './world';

describe('another tenant', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('reads none of the first one by any GET of the administration', async () => {
    const { body: document } = await world.api('GET', '/openapi.json');
    const { body: turn } = await world.api('GET', `/admin/turns/${seeded.toolTurn}`);
    const { body: keys } = await world.api('GET', '/admin/keys');
    const values: Record<string, string> = { response_id: seeded.toolTurn, session_id: seeded.sessionId, tenant_id: '1', id: '1', name: 'get_course_detail', slug: 'course-assistant', version: '1', number: '0', collection: 'docs', key_id: keys.data[0].id };
    const secrets = [seeded.toolTurn, seeded.hostileTurn, ...seeded.ids, seeded.viewKey, keys.data[0].id, turn.summary.request_id, '"ada"', '"budi"', '"dewi"', 'mallory'];
    const routes = Object.entries(document.paths as Record<string, Record<string, unknown>>).filter(([path, operations]) => path.startsWith('/admin/') && operations.get && !path.endsWith('/tail'));
    expect(routes.length).toBeGreaterThan(25);
    for (const [template] of routes) {
      const path = template.replace(/\{\*?(\w+)\}/g, (_, name: string) => values[name] ?? 'x');
      for (const query of ['', '?tenant_id=1', '?tenant=1', '?tenant=all']) {
        const { status, body } = await world.api('GET', path + query, undefined, seeded.secondKey);
        expect.soft(status, path + query).toBeLessThan(500);
        const text = JSON.stringify(body);
        // An error repeats the id that was asked for.
        const known = status < 400 ? secrets : secrets.filter((secret) => !path.includes(secret));
        for (const secret of known) expect.soft(text.includes(secret), `${path}${query} has ${secret}`).toBe(false);
      }
    }
  });

  test('does not find its turns by any id', async () => {
    const { body: turn } = await world.api('GET', `/admin/turns/${seeded.toolTurn}`);
    for (const id of [seeded.toolTurn, turn.summary.request_id, turn.response.output[0].id, turn.input[0].id, turn.tool_calls[0].call_id]) {
      expect((await world.api('GET', `/admin/turns/${id}`)).status, id).toBe(200);
      expect((await world.api('GET', `/admin/turns/${id}`, undefined, seeded.secondKey)).status, id).toBe(404);
    }
  });
});
