// Sign-in, navigation, search, and what the shell promises on every page.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seeded } from './seed';
import { OPERATOR_KEY, World } from './world';

describe('the shell', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(() => world.stop());

  test('a key opens a session, a wrong one is refused with the id of the request, and signing out ends it', async () => {
    const visitor = await world.visitor();
    visitor.expected.push(/401 \(Unauthorized\)/);
    const { page } = visitor;
    await visitor.open('/turns?status=completed');
    await page.getByLabel('API key').fill('am_not-a-key-00000000000000000000');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Incorrect API key provided.').waitFor();
    await page.getByText(/req_/).waitFor();
    await visitor.look('sign-in');
    await page.getByLabel('API key').fill(OPERATOR_KEY);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await visitor.settled('Turns');
    expect(page.url()).toContain('/console/turns?status=completed');
    const cookies = await visitor.context.cookies();
    expect(cookies.map(({ name, httpOnly, sameSite }) => ({ name, httpOnly, sameSite }))).toEqual([{ name: 'amalgam_console', httpOnly: true, sameSite: 'Lax' }]);
    await page.getByRole('button', { name: 'demo' }).click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    visitor.expectQuiet();
    await visitor.close();
  });

  test('a one-time link signs in once', async () => {
    const link = await world.link();
    const visitor = await world.visitor();
    await visitor.page.goto(link);
    await visitor.settled('Overview');
    expect(visitor.page.url()).toBe(`${world.url}/console/`);
    visitor.expectQuiet();
    const second = await world.visitor();
    second.expected.push(/401 \(Unauthorized\)/);
    await second.page.goto(link);
    await second.page.getByRole('alert').waitFor();
    second.expectQuiet();
    await visitor.close();
    await second.close();
  });

  test('⌘K jumps to an id and to a page, and the language changes everywhere', async () => {
    const visitor = await world.signedIn();
    const { page } = visitor;
    await visitor.settled('Overview');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill(seeded.toolTurn);
    await visitor.look('palette');
    await page.keyboard.press('Enter');
    await visitor.settled('Turn');
    expect(page.url()).toContain(`/console/turns/${seeded.toolTurn}`);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill('Bahasa');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Ringkasan' }).waitFor();
    await page.getByRole('link', { name: 'Giliran', exact: true }).click();
    await visitor.settled('Giliran');
    await visitor.look('turns-id');
    visitor.expectQuiet();
    await visitor.close();
  });

  test('the pages work at 360 pixels', async () => {
    const visitor = await world.signedIn(OPERATOR_KEY, { width: 360, height: 740 });
    const { page } = visitor;
    await visitor.settled('Overview');
    await visitor.look('home-360');
    await page.getByRole('button', { name: 'Open the navigation' }).click();
    await visitor.look('navigation-360');
    await page.getByRole('link', { name: 'Turns', exact: true }).click();
    await visitor.settled('Turns');
    await page.getByRole('row').first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    expect(wide).toBe(0);
    await visitor.look('turns-360');
    visitor.expectQuiet();
    await visitor.close();
  });
});
