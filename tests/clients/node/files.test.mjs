// The official Node client and uploaded files: the same ground as the Python one, in shorter form.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import OpenAI, { toFile } from 'openai';

import { KINDS, newTag, start, STORES } from './harness.mjs';

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

for (const store of STORES) {
  describe(`files on ${store}`, () => {
    let servers;
    let client;

    before(async () => {
      servers = await start(store);
      client = new OpenAI({ baseURL: servers.baseURL, apiKey: servers.apiKey, maxRetries: 0, timeout: 30_000 });
    });

    after(() => servers?.stop());

    test('a file is uploaded, shown, listed, given back and deleted', async () => {
      const purpose = newTag();
      const content = Buffer.from('one\r\ntwo\0ü');
      const made = await client.files.create({ file: await toFile(content, 'käse "1".txt'), purpose });
      assert.deepEqual(
        [made.object, made.filename, made.bytes, made.purpose, made.status],
        ['file', 'käse "1".txt', content.length, purpose, 'processed'],
      );
      assert.deepEqual(await client.files.retrieve(made.id), made);
      const given = await client.files.content(made.id);
      assert.deepEqual(Buffer.from(await given.arrayBuffer()), content);

      const second = await client.files.create({ file: await toFile(content, 'b.txt'), purpose });
      const listed = [];
      for await (const file of client.files.list({ purpose, limit: 1, order: 'asc' })) {
        listed.push(file.id);
      }
      assert.deepEqual(listed, [made.id, second.id].sort());

      const deleted = await client.files.delete(made.id);
      assert.deepEqual([deleted.id, deleted.object, deleted.deleted], [made.id, 'file', true]);
      await assert.rejects(client.files.retrieve(made.id), OpenAI.NotFoundError);
    });

    for (const kind of KINDS) {
      test(`an uploaded image reaches the model (${kind})`, async () => {
        const image = Buffer.from(PIXEL, 'base64');
        const file = await client.files.create({ file: await toFile(image, 'a.png'), purpose: 'vision' });
        const response = await client.responses.create({
          model: `m-${kind}`,
          input: [
            {
              role: 'user',
              content: [
                { type: 'input_text', text: `what is this? ${newTag()}` },
                { type: 'input_image', file_id: file.id, detail: 'auto' },
              ],
            },
          ],
        });
        assert.equal(response.output_text, `I see image/png of ${image.length} bytes.`);
      });
    }

    test('a file that is not there is named', async () => {
      const content = [{ type: 'input_file', file_id: 'file_AM-aaaaaaaaaaaaaaaaaaaaaaaa' }];
      await assert.rejects(
        client.responses.create({ model: `m-${KINDS[0]}`, input: [{ role: 'user', content }] }),
        (error) => {
          assert.ok(error instanceof OpenAI.BadRequestError);
          assert.deepEqual([error.code, error.param], ['file_not_found', 'input[0].content[0].file_id']);
          return true;
        },
      );
    });
  });
}
