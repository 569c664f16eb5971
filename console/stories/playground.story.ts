// The playground: all three APIs, streaming, tool calls, side by side, copying.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seeded } from './seed';
import { World } from './world';

describe('the playground', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('a message is streamed, events are timed, and the next message continues', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/playground');
    await visitor.settled('Playground');
    await page.getByLabel('Message').fill('My name is Ada.');
    await page.keyboard.press('Control+Enter');
    await page.getByText('You wrote: “My name is Ada.”').waitFor();
    await page.getByText('completed').waitFor();
    await page.getByText(/^Events \(/).click();
    await page.getByRole('gridcell', { name: 'response.created' }).waitFor();
    await visitor.look('playground', { fullPage: true });
    await page.getByLabel('Message').fill('And again.');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('You wrote: “And again.”').waitFor();
    await page.getByRole('link', { name: 'Open the turn' }).last().click();
    await visitor.settled('Turn');
    await page.getByText('Continues').waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a call of a tool of the client is answered by a form', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/playground');
    await page.getByRole('button', { name: 'Parameters' }).click();
    const tool = { type: 'function', name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } };
    await page.getByLabel('Tools (JSON)').fill(JSON.stringify([tool]));
    await page.getByLabel('Message').fill('How warm is it in Rome? Use get_weather.');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('The model waits for these results').waitFor();
    await visitor.look('playground-call', { fullPage: true });
    await page.getByLabel('Result of get_weather').fill('{"celsius": 31}');
    await page.getByRole('button', { name: 'Send results' }).click();
    await page.getByText(/The tool get_weather answered/).waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('two columns answer side by side, and a request is copied as code', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/playground');
    await page.getByRole('button', { name: '2', exact: true }).click();
    await page.getByLabel('Column 2').getByLabel('API').selectOption('assistant');
    await page.getByLabel('Column 2').getByLabel('Profile').selectOption('course-assistant');
    await page.getByLabel('Column 2').getByRole('button', { name: 'Parameters' }).click();
    await page.getByLabel('Metadata (JSON)').fill('{"course_id": 28}');
    await page.getByLabel('Message').fill('What is course 28 about?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByLabel('Column 1').getByText('completed').waitFor();
    await page.getByLabel('Column 2').getByText('completed').waitFor();
    await page.getByLabel('Column 2').getByText('get_course_detail').first().waitFor();
    await visitor.look('playground-two', { fullPage: true });
    await page.getByLabel('Column 1').getByRole('button', { name: 'Copy as code' }).click();
    await page.getByText('curl -sN').waitFor();
    await page.getByRole('tab', { name: 'Python' }).click();
    await page.getByText('from openai import OpenAI').waitFor();
    await visitor.look('playground-copy');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the execute API is played with its session, and its tool calls are answered', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/playground');
    await page.getByLabel('API').selectOption('execute');
    await page.getByLabel('Message').fill('What is a turn?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('completed').waitFor();
    await page.getByLabel('Message').fill('And a session?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('You wrote: “And a session?”').or(page.getByText(/And a session\?/)).first().waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a file is attached to a message', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open('/playground');
    await page.getByLabel('Attach files').setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('The code word is heron.') });
    await page.getByText('notes.txt').waitFor();
    await page.getByLabel('Message').fill('What is in the file?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('completed').waitFor();
    await page.getByRole('link', { name: 'Open the turn' }).click();
    await visitor.settled('Turn');
    await page.getByText(/input_file/).first().waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a stored turn is opened with everything filled in', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.open(`/turns/${seeded.toolTurn}`);
    await page.getByRole('link', { name: 'Open in playground' }).click();
    await visitor.settled('Playground');
    await page.getByText('Filled in from turn').waitFor();
    expect(await page.getByLabel('Message').inputValue()).toBe('Call get_course_detail for 28');
    await page.getByRole('button', { name: 'Parameters' }).click();
    expect(await page.getByLabel('Tools (JSON)').inputValue()).toContain('get_course_detail');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a turn is stopped, and an unknown model is reported with the id of the request', async () => {
    const visitor = await world.signedIn();
    visitor.expected.push(/404 \(Not Found\)/);
    const { page } = visitor;
    await page.evaluate(() => localStorage.setItem('amalgam.playground.columns', JSON.stringify([{ door: 'responses', model: 'no-such-model', mode: '', instructions: '', temperature: '', maxOutputTokens: '', reasoning: '', tools: '', schema: '', metadata: '' }])));
    await visitor.open('/playground');
    // An answer that does not come.
    await page.route('**/v1/responses', () => {});
    await page.getByLabel('Message').fill('Wait');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('button', { name: 'Stop' }).first().click();
    await page.getByText('cancelled').waitFor();
    await page.unroute('**/v1/responses');
    await page.getByLabel('Message').fill('Hi');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('alert').getByText(/no-such-model/).waitFor();
    await page.getByRole('alert').getByText(/req_/).waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });
});
