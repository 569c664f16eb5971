// The form of one limit.

import { useState } from 'preact/hooks';
import { call, send, type Schemas } from '../api/client';
import { namesOf, numberOf } from '../form-values';
import { useAction, useLoad } from '../hooks';
import { t, type Key } from '../i18n';
import { isOperator } from '../session';
import { Dialog } from '../ui/dialog';
import { Failure, Select, TextArea, TextField } from '../ui/parts';

type Limit = Schemas['Limit'];
type Kind = Limit['kind'];
type Budget = NonNullable<Limit['budget']>;

const shown = (value: number | null | undefined): string => (value === null || value === undefined ? '' : String(value));

export function LimitForm({ limit, tenant, onClose, onSaved }: { limit: Limit | null; tenant: string | null; onClose: () => void; onSaved: () => void }) {
  const [kind, setKind] = useState<Kind>(limit?.kind ?? 'users');
  const [id, setId] = useState(limit?.id ?? '');
  const [requests, setRequests] = useState(shown(limit?.requests_per_minute));
  const [tokens, setTokens] = useState(shown(limit?.tokens_per_minute));
  const [inFlight, setInFlight] = useState(shown(limit?.in_flight));
  const [amount, setAmount] = useState(shown(limit?.budget?.amount));
  const [unit, setUnit] = useState<Budget['unit']>(limit?.budget?.unit ?? 'usd');
  const [period, setPeriod] = useState<Budget['period']>(limit?.budget?.period ?? 'month');
  const [models, setModels] = useState(limit?.models?.join('\n') ?? '');
  const [tools, setTools] = useState(limit?.tools?.join('\n') ?? '');
  const numbers = { requests: numberOf(requests, true), tokens: numberOf(tokens, true), inFlight: numberOf(inFlight, true), amount: numberOf(amount, unit === 'tokens') };
  const wrong = (value: number | null | undefined): string | undefined => (value === undefined ? t('limits.notNumber') : undefined);
  const valid = id.trim() && Object.values(numbers).every((value) => value !== undefined);
  const save = useAction(async () => {
    const perTenant = kind === 'keys' || kind === 'users';
    await send('put', `/admin/limits/${kind}/{id}`, {
      path: { id: id.trim() },
      query: { tenant: perTenant ? (limit?.tenant_id ?? tenant) : null },
      body: {
        requests_per_minute: numbers.requests,
        tokens_per_minute: numbers.tokens,
        in_flight: numbers.inFlight,
        budget: typeof numbers.amount === 'number' ? { amount: numbers.amount, unit, period } : null,
        models: namesOf(models),
        tools: namesOf(tools),
      },
    });
    onSaved();
  });
  const kinds: Kind[] = isOperator.value ? ['tenants', 'keys', 'users', 'models'] : ['keys', 'users'];
  return (
    <Dialog
      title={limit ? t('limits.changeTitle', { kind: t(`limits.kind.${limit.kind}` as Key), id: limit.id }) : t('limits.new')}
      onClose={onClose}
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            {t('action.cancel')}
          </button>
          <button type="button" class="button primary" disabled={save.busy || !valid} onClick={() => void save.run()}>
            {t('action.save')}
          </button>
        </>
      }
    >
      {!limit && (
        <div class="form-row">
          <Select label={t('limits.of')} value={kind} onChange={setKind} options={kinds.map((value) => ({ value, label: t(`limits.kind.${value}` as Key) }))} />
          {kind === 'keys' ? <KeyChoice tenant={tenant} value={id} onChange={setId} /> : <TextField label={t(`limits.id.${kind}` as Key)} value={id} onInput={setId} required />}
        </div>
      )}
      <p class="small muted">{t('limits.emptyHelp')}</p>
      <div class="form-row">
        <TextField label={t('limits.requests')} value={requests} onInput={setRequests} error={wrong(numbers.requests)} />
        <TextField label={t('limits.tokens')} value={tokens} onInput={setTokens} error={wrong(numbers.tokens)} />
        <TextField label={t('limits.inFlight')} value={inFlight} onInput={setInFlight} error={wrong(numbers.inFlight)} />
      </div>
      <div class="form-row">
        <TextField label={t('limits.budget')} value={amount} onInput={setAmount} error={wrong(numbers.amount)} />
        <Select label={t('limits.unit')} value={unit} onChange={setUnit} options={(['usd', 'tokens'] as const).map((value) => ({ value, label: t(`limits.unit.${value}`) }))} />
        <Select label={t('limits.period')} value={period} onChange={setPeriod} options={(['day', 'month', 'total'] as const).map((value) => ({ value, label: t(`limits.period.${value}`) }))} />
      </div>
      <div class="form-row">
        <TextArea label={t('limits.models')} value={models} onInput={setModels} rows={3} code help={t('limits.oneALine')} />
        <TextArea label={t('limits.tools')} value={tools} onInput={setTools} rows={3} code help={t('limits.oneALine')} />
      </div>
      {limit?.budget && (unit !== limit.budget.unit || period !== limit.budget.period) && <p class="small">{t('limits.anew')}</p>}
      {save.error && <Failure error={save.error} />}
    </Dialog>
  );
}

/** A key by its label, because ids of keys are long. */
function KeyChoice({ tenant, value, onChange }: { tenant: string | null; value: string; onChange: (id: string) => void }) {
  const keys = useLoad((signal) => call('get', '/admin/keys', { query: { limit: 100, tenant_id: tenant }, signal }), [tenant]);
  const known = keys.data?.data.filter((key) => !key.revoked_at) ?? [];
  if (keys.error) return <Failure error={keys.error} retry={keys.reload} />;
  if (keys.data?.has_more) return <TextField label={t('limits.id.keys')} value={value} onInput={onChange} required />;
  return <Select label={t('limits.id.keys')} value={value} onChange={onChange} options={[{ value: '', label: t('limits.choose') }, ...known.map((key) => ({ value: key.id, label: `${key.label ?? '–'} (${key.prefix}…)` }))]} />;
}
