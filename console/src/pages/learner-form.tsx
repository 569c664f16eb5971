// What one learner has of one course.

import { useState } from 'preact/hooks';
import { send, type Schemas } from '../api/client';
import { numberOf } from '../form-values';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { Dialog } from '../ui/dialog';
import { Failure, Select, TextField } from '../ui/parts';

type Choice = '' | 'true' | 'false';

const choiceOf = (value: boolean | null | undefined): Choice => (value === null || value === undefined ? '' : value ? 'true' : 'false');
const valueOf = (choice: Choice): boolean | null => (choice === '' ? null : choice === 'true');

export function LearnerForm({ course, user, onClose, onSaved }: { course: Schemas['LearnerCourse'] | null; user: string; onClose: () => void; onSaved: () => void }) {
  const [learner, setLearner] = useState(course?.user ?? user);
  const [id, setId] = useState(course ? String(course.course_id) : '');
  const [status, setStatus] = useState(course?.status ?? '');
  const [progress, setProgress] = useState(course?.progress === null || course === null ? '' : String(course.progress));
  const [eligible, setEligible] = useState(choiceOf(course?.is_eligible));
  const [listed, setListed] = useState(choiceOf(course?.in_playlist));
  const number = numberOf(id, true);
  const percent = numberOf(progress, true);
  const save = useAction(async () => {
    await send('put', '/admin/courses/users/{user}/{id}', {
      path: { user: learner.trim(), id: number ?? '' },
      body: { status: status.trim() || null, progress: percent, is_eligible: valueOf(eligible), in_playlist: valueOf(listed) },
    });
    onSaved();
  });
  const choices = [
    { value: '' as const, label: t('courses.catalogueValue') },
    { value: 'true' as const, label: t('courses.yes') },
    { value: 'false' as const, label: t('courses.no') },
  ];
  return (
    <Dialog
      title={course ? t('courses.changeValueTitle', { user: course.user, course: course.course_id }) : t('courses.newValue')}
      onClose={onClose}
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            {t('action.cancel')}
          </button>
          <button type="button" class="button primary" disabled={save.busy || !number || !learner.trim() || percent === undefined} onClick={() => void save.run()}>
            {t('action.save')}
          </button>
        </>
      }
    >
      {!course && (
        <div class="form-row">
          <TextField label={t('turns.user')} value={learner} onInput={setLearner} required autofocus />
          <TextField label={t('courses.number')} value={id} onInput={setId} required error={number === undefined ? t('limits.notNumber') : undefined} />
        </div>
      )}
      <p class="small muted">{t('courses.emptyHelp')}</p>
      <div class="form-row">
        <TextField label={t('turns.status')} value={status} onInput={setStatus} />
        <TextField label={t('courses.progress')} value={progress} onInput={setProgress} error={percent === undefined ? t('limits.notNumber') : undefined} />
      </div>
      <div class="form-row">
        <Select label={t('courses.eligible')} value={eligible} onChange={setEligible} options={choices} />
        <Select label={t('courses.playlist')} value={listed} onChange={setListed} options={choices} />
      </div>
      {save.error && <Failure error={save.error} />}
    </Dialog>
  );
}
