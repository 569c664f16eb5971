// The form of one course.

import { useState } from 'preact/hooks';
import { send, type Schemas } from '../api/client';
import { namesOf, numberOf } from '../form-values';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { Dialog } from '../ui/dialog';
import { Check, Failure, TextArea, TextField } from '../ui/parts';

export function CourseForm({ course, onClose, onSaved }: { course: Schemas['CatalogueCourse'] | null; onClose: () => void; onSaved: () => void }) {
  const [id, setId] = useState(course ? String(course.id) : '');
  const [title, setTitle] = useState(course?.title ?? '');
  const [description, setDescription] = useState(course?.description ?? '');
  const [kind, setKind] = useState(course?.type ?? 'Course');
  const [modality, setModality] = useState(course?.modality ?? 'Learn');
  const [url, setUrl] = useState(course?.url ?? '');
  const [tags, setTags] = useState(course?.tags.join('\n') ?? '');
  const [assets, setAssets] = useState(course?.assets.join('\n') ?? '');
  const [minimum, setMinimum] = useState(String(course?.min_percentage_finish ?? 100));
  const [inSequence, setInSequence] = useState(course?.content_in_sequence ?? false);
  const [eligible, setEligible] = useState(course?.is_eligible ?? true);
  const [active, setActive] = useState(course?.active ?? true);
  const number = numberOf(id, true);
  const percent = numberOf(minimum, true);
  const save = useAction(async () => {
    await send('put', '/admin/courses/{id}', {
      path: { id: number ?? '' },
      body: {
        title: title.trim(),
        description,
        type: kind.trim() || null,
        modality: modality.trim() || null,
        url: url.trim() || null,
        tags: namesOf(tags) ?? [],
        assets: namesOf(assets) ?? [],
        min_percentage_finish: percent,
        content_in_sequence: inSequence,
        is_eligible: eligible,
        active,
        // Values of learners are on the other tab; those of the catalogue stay as they are.
        status: course?.status ?? null,
        progress: course?.progress ?? null,
        in_playlist: course?.in_playlist ?? null,
      },
    });
    onSaved();
  });
  return (
    <Dialog
      title={course ? t('courses.changeTitle', { id: course.id }) : t('courses.new')}
      onClose={onClose}
      wide
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            {t('action.cancel')}
          </button>
          <button type="button" class="button primary" disabled={save.busy || !number || percent === undefined || !title.trim()} onClick={() => void save.run()}>
            {t('action.save')}
          </button>
        </>
      }
    >
      <div class="form-row">
        {!course && <TextField label={t('courses.number')} value={id} onInput={setId} required error={number === undefined ? t('limits.notNumber') : undefined} autofocus />}
        <TextField label={t('courses.name')} value={title} onInput={setTitle} required />
      </div>
      <TextArea label={t('courses.description')} value={description} onInput={setDescription} rows={5} />
      <div class="form-row">
        <TextField label={t('courses.kind')} value={kind} onInput={setKind} />
        <TextField label={t('courses.modality')} value={modality} onInput={setModality} />
        <TextField label={t('courses.minimum')} value={minimum} onInput={setMinimum} error={percent === undefined ? t('limits.notNumber') : undefined} />
      </div>
      <TextField label={t('courses.url')} value={url} onInput={setUrl} />
      <div class="form-row">
        <TextArea label={t('courses.tags')} value={tags} onInput={setTags} rows={3} help={t('courses.oneALine')} />
        <TextArea label={t('courses.assets')} value={assets} onInput={setAssets} rows={3} help={t('courses.oneALine')} />
      </div>
      <div class="row wrap">
        <Check label={t('courses.offered')} checked={active} onChange={setActive} />
        <Check label={t('courses.eligible')} checked={eligible} onChange={setEligible} />
        <Check label={t('courses.sequence')} checked={inSequence} onChange={setInSequence} />
      </div>
      {save.error && <Failure error={save.error} />}
    </Dialog>
  );
}
