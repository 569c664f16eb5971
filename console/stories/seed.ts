// Data for the stories: turns of all three APIs, failures, hostile texts, a second tenant.

import type { World } from './world';

export const HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> "\'&amp; \u202eevil\u202c {{7*7}}';

export const SECOND_TENANT_SECRET = 'the second tenant has a secret';

export const seeded: { ids: string[]; toolTurn: string; hostileTurn: string; longTurn: string; secondKey: string; viewKey: string; secondTurn: string; secondTenant: number; sessionId: string } = {
  ids: [],
  toolTurn: '',
  hostileTurn: '',
  longTurn: '',
  secondKey: '',
  viewKey: '',
  secondTurn: '',
  secondTenant: 0,
  sessionId: '',
};

export async function seed(world: World): Promise<void> {
  const respond = async (body: object, user: string, key?: string): Promise<string> => {
    const { status, body: answer } = await world.api('POST', '/v1/responses', { model: 'demo', ...body }, key, { 'x-amalgam-user': user });
    if (status !== 200) throw new Error(`seeding: ${status} ${JSON.stringify(answer)}`);
    return answer.id as string;
  };
  const questions = ['What is a turn?', 'Summarise the release notes.', 'Translate “selamat pagi”.', 'Why is the sky blue?'];
  for (let index = 0; index < 24; index += 1) {
    seeded.ids.push(await respond({ input: questions[index % questions.length], instructions: 'Answer in one sentence.' }, ['ada', 'budi', 'citra'][index % 3] ?? 'ada'));
  }
  seeded.toolTurn = await respond({ input: 'Call get_course_detail for 28', tools: [{ type: 'function', name: 'get_course_detail' }] }, 'ada');
  seeded.hostileTurn = await respond({ input: HOSTILE, instructions: HOSTILE }, 'mallory"><b>x</b>');
  seeded.longTurn = await respond({ input: `begin ${'x'.repeat(400_000)} needle-in-the-hay end` }, 'budi');
  for (const course of [28, 12]) {
    const { body } = await world.api('POST', '/api/v2/ai-agent/respond/', { agent: 'course-assistant', message: `What is course ${course} about?`, metadata: { course_id: course } }, undefined, { 'x-amalgam-user': 'dewi' });
    seeded.sessionId ||= String(body.session_id);
  }
  const session = await world.api('POST', '/api/agent/sessions', { Mode: 'QA' });
  await world.api('POST', '/api/agent/execute', { SessionId: session.body.SessionId, TurnId: 'turn-1', Instruction: 'What is a turn?' });
  await world.api('POST', '/v1/responses', { model: 'no-such-model', input: 'This fails.' });
  await world.api('POST', '/v1/responses', { model: 'story/broken', input: 'This fails at the upstream.' });
  for (let index = 0; index < 3; index += 1) await respond({ model: 'priced', input: 'What does this cost?' }, 'ada');

  const tenant = await world.api('POST', '/admin/tenants', { name: 'second tenant' });
  const key = await world.api('POST', '/admin/keys', { tenant_id: tenant.body.id, scopes: ['use', 'admin'], label: 'second' });
  seeded.secondTenant = tenant.body.id as number;
  seeded.secondKey = key.body.key as string;
  seeded.secondTurn = await respond({ input: SECOND_TENANT_SECRET }, 'eko', seeded.secondKey);
  const view = await world.api('POST', '/admin/keys', { scopes: ['view'], label: 'reader' });
  seeded.viewKey = view.body.key as string;
}
