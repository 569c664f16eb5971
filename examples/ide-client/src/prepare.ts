// Sets up the agent of this example: its two tools in the tenant's bank, and a profile that has them. Needs a key that may
// administer, and may be run as often as one likes.

import { pathToFileURL } from 'node:url';

import { TOOLS } from './tools.js';

export const AGENT = 'ide-assistant';

export async function prepare(url: string, key: string): Promise<void> {
  const put = async (path: string, body: object): Promise<void> => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(new URL(path, url), { method: 'PUT', headers, body: JSON.stringify(body) });
    if (!answer.ok) {
      throw new Error(`PUT ${path}: ${answer.status} ${await answer.text()}`);
    }
  };
  for (const [name, { description, parameters }] of Object.entries(TOOLS)) {
    await put(`/admin/tools/${name}`, { kind: 'client', description, parameters });
  }
  const prompt = 'You help a programmer with the workspace that is open in the editor. Look before you answer.';
  await put(`/admin/profiles/${AGENT}`, { prompt, tools: Object.keys(TOOLS) });
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { AMALGAM_URL: url = 'http://127.0.0.1:8080', AMALGAM_KEY: key = '' } = process.env;
  await prepare(url, key);
  console.log(`agent ${AGENT} is ready`);
}
