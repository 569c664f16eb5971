// Processes, queues, the store and upstreams, with a live check of each upstream.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { bytes, count, duration } from '../format';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { href } from '../router';
import { Icon } from '../ui/icons';
import { Card, Empty, Failure, Loading, Tag } from '../ui/parts';

export function SystemState() {
  const system = useLoad((signal) => call('get', '/admin/system', { signal }), []);
  if (system.error) return <Failure error={system.error} retry={system.reload} />;
  if (!system.data) {
    return (
      <Card>
        <Loading />
      </Card>
    );
  }
  const { processes, upstreams, queued_turns: queued, store_bytes: size } = system.data;
  return (
    <>
      <div class="grid-2">
        <Card
          title={t('system.processes')}
          actions={
            <button type="button" class="button small" disabled={system.loading} onClick={system.reload}>
              <Icon name="refresh" />
              {t('action.refresh')}
            </button>
          }
        >
          <ul class="rows">
            {processes.map((process) => (
              <li key={process.id} class="row between wrap">
                <code>{process.id.slice(0, 12)}</code>
                {process.own && <Tag tone="live">{t('system.thisProcess')}</Tag>}
                <span class="muted">{t('system.heartbeats', { time: duration(process.heartbeats * 1000) })}</span>
              </li>
            ))}
          </ul>
        </Card>
        <Card title={t('system.store')}>
          <dl class="facts">
            <dt>{t('system.storeSize')}</dt>
            <dd>{bytes(size)}</dd>
            <dt>{t('system.queued')}</dt>
            <dd>{count(queued)}</dd>
          </dl>
          <p>
            <a href={href('/turns', { status: 'failed' })}>{t('system.recentErrors')}</a>
          </p>
        </Card>
      </div>
      <Card title={t('system.upstreams')}>
        {upstreams.length ? (
          <ul class="rows">
            {upstreams.map((upstream) => (
              <UpstreamRow key={upstream.name} upstream={upstream} />
            ))}
          </ul>
        ) : (
          <Empty title={t('system.noUpstreams')}>{t('system.noUpstreamsText')}</Empty>
        )}
      </Card>
    </>
  );
}

function UpstreamRow({ upstream }: { upstream: Schemas['Upstream'] }) {
  const [result, setResult] = useState<Schemas['UpstreamCheck']>();
  const check = useAction(async () => setResult(await call('post', '/admin/upstreams/{name}/check', { path: { name: upstream.name }, body: {} })));
  return (
    <li class="stack tight">
      <div class="row between wrap">
        <strong>{upstream.name}</strong>
        {upstream.resting && <Tag tone="wrong">{t('system.resting')}</Tag>}
        {result && <Tag tone={result.ok ? 'good' : 'wrong'}>{result.ok ? t('system.reached', { time: duration(result.duration_ms) }) : t('system.notReached')}</Tag>}
        <button type="button" class="button small" disabled={check.busy} aria-label={t('system.checkUpstream', { name: upstream.name })} onClick={() => void check.run()}>
          {t('system.check')}
        </button>
      </div>
      {result?.problem && <p class="bad text-block">{result.problem}</p>}
      {result?.ok && result.models !== null && <p class="small muted">{t('system.models', { count: result.models })}</p>}
      {check.error && <Failure error={check.error} />}
    </li>
  );
}
