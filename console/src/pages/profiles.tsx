// Profiles and modes of the tenant's assistants and agents.

import { call, type Schemas } from '../api/client';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { href } from '../router';
import { mayChange } from '../session';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Page, Tag, Time } from '../ui/parts';

export default function Profiles() {
  const profiles = usePaged((after, signal) => call('get', '/admin/profiles', { query: { after, limit: 50 }, signal }), []);
  const modes = usePaged((after, signal) => call('get', '/admin/modes', { query: { after, limit: 50 }, signal }), []);
  const first = (text: string): string => text.split('\n').find((line) => line.trim()) ?? '';
  return (
    <Page title={t('profiles.title')} about={t('profiles.about')}>
      <ListCard<Schemas['Profile']>
        list={profiles}
        title={t('profiles.profiles')}
        actions={
          mayChange.value && (
            <a class="button small" href={href('/profiles/new')}>
              <Icon name="plus" />
              {t('profiles.new')}
            </a>
          )
        }
        rowKey={(row) => row.slug}
        empty={t('profiles.none')}
        emptyText={t('profiles.noneText')}
        columns={[
          {
            label: t('profiles.slug'),
            cell: (row) => (
              <>
                <a href={href(`/profiles/${encodeURIComponent(row.slug)}`)}>{row.slug}</a>
                <div class="small muted one-line">{first(row.prompt)}</div>
              </>
            ),
          },
          { label: t('profiles.version'), number: true, cell: (row) => row.version },
          { label: t('turns.model'), cell: (row) => row.model ?? <span class="muted">{t('play.default')}</span> },
          { label: t('turns.tools'), cell: (row) => <Names names={row.tools} unknown={row.unknown_tools} /> },
          { label: t('turns.status'), cell: (row) => <Tag tone={row.active ? 'good' : undefined}>{row.active ? t('state.active') : t('state.inactive')}</Tag> },
          { label: t('profiles.changed'), cell: (row) => <Time ms={row.updated_at * 1000} /> },
        ]}
      />
      <ListCard<Schemas['Mode']>
        list={modes}
        title={t('profiles.modes')}
        actions={
          mayChange.value && (
            <a class="button small" href={href('/modes/new')}>
              <Icon name="plus" />
              {t('modes.new')}
            </a>
          )
        }
        rowKey={(row) => row.name}
        empty={t('modes.none')}
        columns={[
          {
            label: t('modes.name'),
            cell: (row) => (
              <>
                <a href={href(`/modes/${encodeURIComponent(row.name)}`)}>{row.display_name || row.name}</a>
                <div class="small muted one-line">{first(row.system_prompt)}</div>
              </>
            ),
          },
          { label: t('turns.tools'), cell: (row) => <Names names={row.tools} unknown={row.unknown_tools} /> },
          { label: t('modes.origin'), cell: (row) => (row.seeded ? t('modes.builtin') : t('modes.own')) },
        ]}
      />
    </Page>
  );
}

function Names({ names, unknown }: { names: string[]; unknown: string[] }) {
  if (!names.length) return <span class="muted">–</span>;
  return (
    <span class="row tight">
      {names.map((name) => (
        <Tag key={name} tone={unknown.includes(name) ? 'wrong' : undefined}>
          {name}
        </Tag>
      ))}
    </span>
  );
}
