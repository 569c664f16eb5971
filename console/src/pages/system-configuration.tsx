// The effective configuration with the origin of each value, and what a reload would change.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { Dialog } from '../ui/dialog';
import { Icon } from '../ui/icons';
import { Card, Check, Empty, Failure, Loading, Notice, Tag } from '../ui/parts';

type Setting = Schemas['Configuration']['settings'][number];
type Report = Schemas['ReloadReport'];

export function SystemConfiguration() {
  const configuration = useLoad((signal) => call('get', '/admin/configuration', { signal }), []);
  const [query, setQuery] = useState('');
  const [changed, setChanged] = useState(false);
  const [preview, setPreview] = useState<Report>();
  const [report, setReport] = useState<Report>();
  const look = useAction(async () => setPreview(await call('post', '/admin/reload', { query: { dry_run: true }, body: {} })));
  const reload = useAction(async () => {
    setReport(await call('post', '/admin/reload', { body: {} }));
    setPreview(undefined);
    configuration.reload();
  });
  const wanted = query.trim().toLowerCase();
  const shown = configuration.data?.settings.filter((one) => (!changed || one.origin !== 'default') && (!wanted || one.key.toLowerCase().includes(wanted))) ?? [];
  return (
    <>
      <Card
        title={t('system.configuration')}
        actions={
          <button type="button" class="button small" disabled={look.busy} onClick={() => void look.run()}>
            <Icon name="refresh" />
            {t('system.preview')}
          </button>
        }
      >
        <p class="muted">{configuration.data?.file ? t('system.file', { file: configuration.data.file }) : t('system.noFile')}</p>
        <p class="muted">{t('system.reloadText')}</p>
        {look.error && <Failure error={look.error} />}
        {report && (
          <Notice tone="good">
            <Changes report={report} />
          </Notice>
        )}
      </Card>
      <Card
        flush
        title={t('system.settings')}
        actions={
          <span class="row tight wrap">
            <input class="input" type="search" aria-label={t('system.findKey')} placeholder={t('system.findKey')} value={query} onInput={(event) => setQuery(event.currentTarget.value)} />
            <Check label={t('system.onlySet')} checked={changed} onChange={setChanged} />
          </span>
        }
      >
        {configuration.error && (
          <div class="card-body">
            <Failure error={configuration.error} retry={configuration.reload} />
          </div>
        )}
        {!configuration.data && !configuration.error && <Loading />}
        {configuration.data && !shown.length && <Empty title={t('system.noKeys')} />}
        {shown.length > 0 && (
          <div class="table-wrap" tabIndex={0} role="group" aria-label={t('system.settings')}>
            <table class="table">
              <thead>
                <tr>
                  <th scope="col">{t('system.key')}</th>
                  <th scope="col">{t('system.value')}</th>
                  <th scope="col">{t('system.valueOrigin')}</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((one) => (
                  <tr key={one.key}>
                    <td class="mono">{one.key}</td>
                    <td class="mono value-cell">{text(one.value)}</td>
                    <td>
                      <OriginOf setting={one} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
      {preview && (
        <Dialog
          title={t('system.previewTitle')}
          wide
          onClose={() => setPreview(undefined)}
          foot={
            <>
              <button type="button" class="button" onClick={() => setPreview(undefined)}>
                {t('action.cancel')}
              </button>
              <button type="button" class="button primary" disabled={reload.busy || !preview.differences.length} onClick={() => void reload.run()}>
                {t('system.reload')}
              </button>
            </>
          }
        >
          <Changes report={preview} />
          {reload.error && <Failure error={reload.error} />}
        </Dialog>
      )}
    </>
  );
}

function text(value: unknown): string {
  if (value === null || value === undefined) return '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function OriginOf({ setting }: { setting: Setting }) {
  const place =
    setting.origin === 'file' ? `${(setting.file ?? '').split('/').pop()}:${setting.line}`
    : setting.origin === 'environment' ? setting.variable
    : setting.origin === 'flag' ? setting.flag
    : null;
  if (!place) return <span class="muted">{t('system.default')}</span>;
  return (
    <span title={setting.file ?? undefined}>
      <Tag tone="live">{place}</Tag>
    </span>
  );
}

/** Every key that differs with both values, and what a restart has to do. */
function Changes({ report }: { report: Report }) {
  if (!report.differences.length) return <p>{t('system.unchanged')}</p>;
  return (
    <>
      <div class="table-wrap" tabIndex={0} role="group" aria-label={t('system.changed')}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">{t('system.key')}</th>
              <th scope="col">{t('system.before')}</th>
              <th scope="col">{t('system.after')}</th>
            </tr>
          </thead>
          <tbody>
            {report.differences.map((one) => (
              <tr key={one.key}>
                <td class="mono">{one.key}</td>
                <td class="mono value-cell">{text(one.before)}</td>
                <td class="mono value-cell">{text(one.after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {report.restart_required.length > 0 && <Notice tone="wait">{t('system.restartText', { keys: report.restart_required.join(', ') })}</Notice>}
      {report.warnings.map((warning) => (
        <Notice key={warning} tone="wait">
          {warning}
        </Notice>
      ))}
    </>
  );
}
