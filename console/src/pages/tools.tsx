// The tool bank of the tenant, with the common tools of the installation.

import { call, type Schemas } from '../api/client';
import { t } from '../i18n';
import { usePaged } from '../paged';
import { href } from '../router';
import { mayChange } from '../session';
import { Icon } from '../ui/icons';
import { ListCard } from '../ui/list';
import { Page, Tag } from '../ui/parts';

export default function Tools() {
  const tools = usePaged((after, signal) => call('get', '/admin/tools', { query: { after, limit: 50 }, signal }), []);
  return (
    <Page
      title={t('tools.title')}
      about={t('tools.about')}
      actions={
        mayChange.value && (
          <a class="button primary" href={href('/tools/new')}>
            <Icon name="plus" />
            {t('tools.new')}
          </a>
        )
      }
    >
      <ListCard<Schemas['BankTool']>
        list={tools}
        rowKey={(row) => row.name}
        empty={t('tools.none')}
        emptyText={t('tools.noneText')}
        columns={[
          {
            label: t('tools.name'),
            cell: (row) => (
              <>
                <a class="mono" href={href(`/tools/${encodeURIComponent(row.name)}`, { common: row.common ? 'true' : null })}>
                  {row.name}
                </a>
                <div class="small muted one-line">{row.description}</div>
              </>
            ),
          },
          { label: t('tools.kind'), cell: (row) => <Tag>{row.kind}</Tag> },
          { label: t('tools.bank'), cell: (row) => (row.common ? t('tools.common') : t('tools.own')) },
          { label: t('tools.approval'), cell: (row) => (row.requires_approval ? <Tag tone="wait">{String(row.requires_approval)}</Tag> : <span class="muted">–</span>) },
          { label: t('turns.status'), cell: (row) => <Tag tone={row.active ? 'good' : undefined}>{row.active ? t('state.active') : t('state.inactive')}</Tag> },
        ]}
      />
    </Page>
  );
}
