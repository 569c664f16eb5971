// Uploads files into a collection, one after the other, by drag and drop or by choice.

import { useEffect, useRef, useState } from 'preact/hooks';
import { upload, type ApiError } from '../api/client';
import { bytes } from '../format';
import { t } from '../i18n';
import { Icon } from '../ui/icons';
import { Card, Failure, Status } from '../ui/parts';

/** What the server takes at most; a larger file is not sent. */
const LARGEST = 2 * 1024 * 1024;

interface Upload {
  id: number;
  file: File;
  state: 'queued' | 'in_progress' | 'completed' | 'failed';
  share: number;
  error?: Error;
}

let next = 0;

export function KnowledgeUpload({ collection, onDone }: { collection: string; onDone: () => void }) {
  const [uploads, setUploads] = useState<Upload[]>([]);
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const waiting = useRef<Upload[]>([]);
  const busy = useRef(false);
  const change = (id: number, part: Partial<Upload>): void => setUploads((before) => before.map((one) => (one.id === id ? { ...one, ...part } : one)));

  const work = async (): Promise<void> => {
    if (busy.current) return;
    busy.current = true;
    for (let one = waiting.current.shift(); one && !stop.current.signal.aborted; one = waiting.current.shift()) {
      const { id, file } = one;
      const form = new FormData();
      form.set('file', file, file.name);
      // A folder that is dropped keeps the paths in it.
      if (file.webkitRelativePath) form.set('path', file.webkitRelativePath);
      change(id, { state: 'in_progress' });
      try {
        if (file.size > LARGEST) throw new Error(t('knowledge.tooLarge', { size: bytes(LARGEST) }));
        await upload('/admin/knowledge/{collection}/documents', { path: { collection }, signal: stop.current.signal }, form, (share) => change(id, { share }));
        change(id, { state: 'completed', share: 1 });
      } catch (error) {
        change(id, { state: 'failed', error: error as ApiError });
      }
    }
    busy.current = false;
    if (!stop.current.signal.aborted) onDone();
  };
  const add = (files: FileList | null | undefined): void => {
    const added = [...(files ?? [])].map((file): Upload => ({ id: (next += 1), file, state: 'queued', share: 0 }));
    if (!added.length) return;
    waiting.current.push(...added);
    setUploads((before) => [...before.filter((one) => one.state !== 'completed'), ...added]);
    void work();
  };
  return (
    <Card title={t('knowledge.upload')}>
      <div
        class={`drop${over ? ' over' : ''}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          add(event.dataTransfer?.files);
        }}
      >
        <p>{t('knowledge.drop')}</p>
        <button type="button" class="button" onClick={() => input.current?.click()}>
          <Icon name="plus" />
          {t('knowledge.choose')}
        </button>
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label={t('knowledge.choose')}
          onChange={(event) => {
            add(event.currentTarget.files);
            event.currentTarget.value = '';
          }}
        />
        <p class="small muted">{t('knowledge.dropHelp', { size: bytes(LARGEST) })}</p>
      </div>
      {uploads.length > 0 && (
        <ul class="uploads" aria-live="polite">
          {uploads.map((one) => (
            <li key={one.id}>
              <div class="row between">
                <span class="mono one-line">{one.file.name}</span>
                <span class="row tight">
                  <span class="small muted">{bytes(one.file.size)}</span>
                  <Status value={one.state} />
                </span>
              </div>
              {one.state === 'in_progress' && <progress max={1} value={one.share} aria-label={t('knowledge.progress', { name: one.file.name })} />}
              {one.error && <Failure error={one.error} />}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
