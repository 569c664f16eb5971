// The catalogue of courses, and what single learners have of them.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDelayed } from '../hooks';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { mayChange } from '../session';
import { Confirm, toast } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Page, Prose, TabPanel, Tabs, Tag, Time } from '../ui/parts';
import { CourseForm } from './course-form';
import { LearnerForm } from './learner-form';

type Course = Schemas['CatalogueCourse'];
type LearnerCourse = Schemas['LearnerCourse'];
type TabName = 'catalogue' | 'learners';

export default function Courses() {
  const tab = (location.value.query.get('tab') as TabName | null) ?? 'catalogue';
  const tabs: { id: TabName; label: string }[] = [
    { id: 'catalogue', label: t('courses.catalogue') },
    { id: 'learners', label: t('courses.learners') },
  ];
  return (
    <Page title={t('courses.title')} about={t('courses.about')}>
      <Tabs tabs={tabs} selected={tab} label={t('courses.title')} onSelect={(next) => go('/courses', { tab: next === 'catalogue' ? null : next }, true)} />
      <TabPanel tab={tab}>
        {tab === 'catalogue' && <Catalogue />}
        {tab === 'learners' && <Learners />}
      </TabPanel>
    </Page>
  );
}

function Catalogue() {
  const [typed, setTyped] = useState('');
  const query = useDelayed(typed.trim(), 350);
  const list = usePaged((after, signal) => call('get', '/admin/courses', { query: { after, q: query, limit: 50 }, signal }), [query]);
  const [editing, setEditing] = useState<Course | 'new' | null>(null);
  const [deleting, setDeleting] = useState<Course | null>(null);
  const create = mayChange.value && (
    <button type="button" class="button small" onClick={() => setEditing('new')}>
      <Icon name="plus" />
      {t('courses.new')}
    </button>
  );
  return (
    <>
      <div class="filters">
        <input class="input search" type="search" aria-label={t('courses.search')} placeholder={t('courses.search')} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      <ListCard<Course>
        list={list}
        title={t('courses.catalogue')}
        actions={create}
        rowKey={(row) => String(row.id)}
        empty={query ? t('courses.nothing') : t('courses.none')}
        emptyText={query ? t('courses.nothingText') : <Prose text={t('courses.noneText')} />}
        columns={[
          { label: t('courses.number'), number: true, cell: (row) => row.id },
          {
            label: t('courses.name'),
            cell: (row) => (
              <>
                <div>{row.title}</div>
                <span class="row tight wrap">
                  {row.tags.slice(0, 6).map((tag) => (
                    <Tag key={tag}>{tag}</Tag>
                  ))}
                </span>
              </>
            ),
          },
          { label: t('courses.kind'), cell: (row) => `${row.type} · ${row.modality}` },
          { label: t('turns.status'), cell: (row) => <Tag tone={row.active ? 'good' : undefined}>{row.active ? t('courses.offered') : t('courses.hidden')}</Tag> },
          {
            label: t('keys.actions'),
            cell: (row) => (
              <span class="row tight">
                {mayChange.value && (
                  <>
                    <button type="button" class="button small" onClick={() => setEditing(row)}>
                      {t('action.change')}
                    </button>
                    <button type="button" class="button small danger" onClick={() => setDeleting(row)}>
                      {t('action.delete')}
                    </button>
                  </>
                )}
              </span>
            ),
          },
        ]}
      />
      {editing && (
        <CourseForm
          course={editing === 'new' ? null : editing}
          onClose={() => setEditing(null)}
          onSaved={() => {
            setEditing(null);
            toast(t('state.saved'));
            list.reload();
          }}
        />
      )}
      {deleting && (
        <Confirm
          title={t('courses.deleteTitle', { title: deleting.title })}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            await send('delete', '/admin/courses/{id}', { path: { id: deleting.id } });
            toast(t('state.deleted'));
            list.reload();
          }}
        >
          <p>{t('courses.deleteText')}</p>
        </Confirm>
      )}
    </>
  );
}

/** Values of all learners, or of the one that was asked for. */
async function learners(user: string, after: string | undefined, signal: AbortSignal): Promise<Schemas['LearnerCourseList']> {
  const query = { after, limit: 50 };
  return user ? call('get', '/admin/courses/users/{user}', { path: { user }, query, signal }) : call('get', '/admin/courses/users', { query, signal });
}

function Learners() {
  const [typed, setTyped] = useState(location.value.query.get('user') ?? '');
  const user = useDelayed(typed.trim(), 350);
  const list = usePaged((after, signal) => learners(user, after, signal), [user]);
  const [editing, setEditing] = useState<LearnerCourse | 'new' | null>(null);
  const [deleting, setDeleting] = useState<LearnerCourse | string | null>(null);
  const unset = <span class="muted">{t('courses.catalogueValue')}</span>;
  const yesOrNo = (value: boolean | null) => (value === null ? unset : value ? t('courses.yes') : t('courses.no'));
  return (
    <>
      <div class="filters">
        <input class="input search" type="search" aria-label={t('sessions.user')} placeholder={t('sessions.user')} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      <ListCard<LearnerCourse>
        list={list}
        title={t('courses.learners')}
        actions={
          mayChange.value && (
            <span class="row tight">
              {user && list.rows.length > 0 && (
                <button type="button" class="button small danger" onClick={() => setDeleting(user)}>
                  {t('courses.erase')}
                </button>
              )}
              <button type="button" class="button small" onClick={() => setEditing('new')}>
                <Icon name="plus" />
                {t('courses.newValue')}
              </button>
            </span>
          )
        }
        rowKey={(row) => row.id}
        empty={t('courses.noLearners')}
        emptyText={<Prose text={t('courses.noLearnersText')} />}
        columns={[
          { label: t('turns.user'), cell: (row) => <a href={href('/turns', { user: row.user })}>{row.user}</a> },
          { label: t('courses.number'), number: true, cell: (row) => row.course_id },
          { label: t('turns.status'), cell: (row) => row.status ?? unset },
          { label: t('courses.progress'), number: true, cell: (row) => (row.progress === null ? unset : `${row.progress} %`) },
          { label: t('courses.eligible'), cell: (row) => yesOrNo(row.is_eligible) },
          { label: t('courses.playlist'), cell: (row) => yesOrNo(row.in_playlist) },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
          {
            label: t('keys.actions'),
            cell: (row) =>
              mayChange.value && (
                <span class="row tight">
                  <button type="button" class="button small" onClick={() => setEditing(row)}>
                    {t('action.change')}
                  </button>
                  <button type="button" class="button small danger" onClick={() => setDeleting(row)}>
                    {t('action.delete')}
                  </button>
                </span>
              ),
          },
        ]}
      />
      {editing && (
        <LearnerForm
          course={editing === 'new' ? null : editing}
          user={user}
          onClose={() => setEditing(null)}
          onSaved={() => {
            setEditing(null);
            toast(t('state.saved'));
            list.reload();
          }}
        />
      )}
      {deleting && (
        <Confirm
          title={typeof deleting === 'string' ? t('courses.eraseTitle', { user: deleting }) : t('courses.deleteValueTitle', { user: deleting.user, course: deleting.course_id })}
          action={t('action.delete')}
          onClose={() => setDeleting(null)}
          onConfirm={async () => {
            if (typeof deleting === 'string') await send('delete', '/admin/courses/users/{user}', { path: { user: deleting } });
            else await send('delete', '/admin/courses/users/{user}/{id}', { path: { user: deleting.user, id: deleting.course_id } });
            toast(t('state.deleted'));
            list.reload();
          }}
        >
          <p>{t('courses.deleteValueText')}</p>
        </Confirm>
      )}
    </>
  );
}
