// The inbox of tool calls that wait for a decision. It looks again every few seconds while it is open.

import { useEffect } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { useDraft } from '../drafts';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { pretty } from '../items';
import { usePaged } from '../paged';
import { go, href, location } from '../router';
import { mayChange } from '../session';
import { toast } from '../ui/dialog';
import { Card, Code, Empty, Failure, Loading, Page, Status, TextField, Time, Tabs, TabPanel } from '../ui/parts';

type Approval = Schemas['Approval'];

const INTERVAL = 5000;

export default function Approvals() {
  const all = location.value.query.get('show') === 'all';
  const list = usePaged((after, signal) => call('get', '/admin/approvals', { query: { after, pending: !all, limit: 50 }, signal }), [all]);
  useEffect(() => {
    if (all) return;
    const timer = setInterval(() => {
      if (!document.hidden && !document.activeElement?.closest('.approval')) list.reload();
    }, INTERVAL);
    return () => clearInterval(timer);
  }, [all, list.reload]);
  return (
    <Page title={t('approvals.title')} about={t('approvals.about')}>
      <Tabs
        label={t('approvals.title')}
        selected={all ? 'all' : 'pending'}
        onSelect={(show) => go('/approvals', { show: show === 'all' ? 'all' : null }, true)}
        tabs={[
          { id: 'pending', label: t('approvals.pending') },
          { id: 'all', label: t('approvals.all') },
        ]}
      />
      <TabPanel tab={all ? 'all' : 'pending'}>
        {list.error && <Failure error={list.error} retry={list.reload} />}
        {list.rows.map((approval) => (
          <ApprovalCard key={approval.id} approval={approval} onDecided={list.reload} />
        ))}
        {!list.rows.length && list.loading && <Card><Loading /></Card>}
        {!list.rows.length && !list.loading && !list.error && (
          <Card>
            <Empty title={t('approvals.none')}>{t('approvals.noneText')}</Empty>
          </Card>
        )}
        {list.more && (
          <button type="button" class="button" onClick={list.next}>
            {t('list.more')}
          </button>
        )}
      </TabPanel>
    </Page>
  );
}

function ApprovalCard({ approval, onDecided }: { approval: Approval; onDecided: () => void }) {
  const [reason, setReason, clearReason] = useDraft(`approval.${approval.id}`, '');
  const decide = useAction(async (decision: 'approve' | 'deny') => {
    await send('post', '/admin/approvals/{id}', { path: { id: approval.id }, body: { decision, reason: reason.trim() || null } });
    clearReason();
    toast(decision === 'approve' ? t('approvals.approved') : t('approvals.denied'));
    onDecided();
  });
  return (
    <div class="approval">
      <Card
        title={<code>{approval.tool.name}</code>}
        actions={
          <>
            <span class="small muted">
              {approval.user} · <Time ms={approval.asked_at * 1000} relative />
            </span>
            <Status value={approval.status} />
          </>
        }
      >
        <div class="stack tight">
          <span class="small muted">{t('approvals.arguments')}</span>
          <Code text={pretty(approval.arguments)} label={t('approvals.arguments')} />
          <p class="small muted">
            {t('approvals.from', { label: approval.tool.label })} <a href={href(`/turns/${approval.response_id}`)}>{t('play.turn')}</a>
            {approval.status === 'pending' && (
              <>
                {' · '}
                {t('approvals.expires')} <Time ms={approval.expires_at * 1000} relative />
              </>
            )}
          </p>
          {approval.decision && (
            <p>
              {t('approvals.decided', { user: approval.decision.by })} <Time ms={approval.decision.at * 1000} />
              {approval.decision.reason && `: ${approval.decision.reason}`}
            </p>
          )}
          {approval.status === 'pending' && mayChange.value && (
            <>
              <TextField label={t('approvals.reason')} value={reason} onInput={setReason} />
              {decide.error && <Failure error={decide.error} />}
              <div class="row">
                <button type="button" class="button primary" disabled={decide.busy} onClick={() => void decide.run('approve')}>
                  {t('approvals.approve')}
                </button>
                <button type="button" class="button danger" disabled={decide.busy} onClick={() => void decide.run('deny')}>
                  {t('approvals.deny')}
                </button>
              </div>
            </>
          )}
        </div>
      </Card>
    </div>
  );
}
