// Two turns side by side: facts, and the differences of prompts and answers.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { diffLines } from '../diff';
import { count, duration, money } from '../format';
import { useLoad } from '../hooks';
import { t } from '../i18n';
import { contentOf, type Item } from '../items';
import { indented } from '../text-search';
import { go, href, location } from '../router';
import { tenantOfPage } from '../tenant';
import { Diff } from '../ui/diff';
import { Card, Empty, Failure, Loading, Page, Status, TextField } from '../ui/parts';

type Turn = Schemas['Turn'];

/** What the model was told: the first exact request if it is stored, else instructions and input. */
export function promptOf(turn: Turn): string {
  const request = turn.calls[0]?.request;
  if (request) return indented(request);
  const instructions = turn.response?.instructions;
  const input = ((turn.input ?? []) as unknown as Item[]).map((item) => `${String(item.role ?? item.type)}: ${contentOf(item.content).text}`);
  return [typeof instructions === 'string' ? instructions : '', ...input].filter(Boolean).join('\n\n');
}

export function answerOf(turn: Turn): string {
  const items = (turn.response?.output ?? []) as unknown as Item[];
  return items.map((item) => (item.type === 'message' ? contentOf(item.content).text : JSON.stringify(item, null, 2))).join('\n\n');
}

export default function Compare() {
  const query = location.value.query;
  const tenant = tenantOfPage();
  const [one, two] = [query.get('a') ?? '', query.get('b') ?? ''];
  const [first, setFirst] = useState(one);
  const [second, setSecond] = useState(two);
  const turns = useLoad(
    async (signal) => {
      if (!one || !two) return null;
      const load = (id: string): Promise<Turn> => call('get', '/admin/turns/{response_id}', { path: { response_id: id }, query: { tenant_id: tenant }, signal });
      return Promise.all([load(one), load(two)]);
    },
    [one, two, tenant],
  );
  return (
    <Page title={t('compare.title')} about={t('compare.about')}>
      <form
        class="card card-body play-choice"
        onSubmit={(event) => {
          event.preventDefault();
          go('/compare', { a: first.trim(), b: second.trim(), tenant });
        }}
      >
        <TextField label={t('compare.first')} code value={first} onInput={setFirst} placeholder="resp_…" />
        <TextField label={t('compare.second')} code value={second} onInput={setSecond} placeholder="resp_…" />
        <div class="row end">
          <button type="submit" class="button primary" disabled={!first.trim() || !second.trim()}>
            {t('compare.action')}
          </button>
        </div>
      </form>
      {turns.error && <Failure error={turns.error} retry={turns.reload} />}
      {turns.loading && one && two && !turns.data && (
        <Card>
          <Loading />
        </Card>
      )}
      {(!one || !two) && (
        <Card>
          <Empty title={t('compare.none')}>{t('compare.noneText')}</Empty>
        </Card>
      )}
      {turns.data && <Result one={turns.data[0]} two={turns.data[1]} />}
    </Page>
  );
}

function Result({ one, two }: { one: Turn; two: Turn }) {
  const facts: [string, (turn: Turn) => preact.ComponentChildren][] = [
    [t('turns.id'), (turn) => <a class="mono" href={href(`/turns/${turn.id}`, { tenant: tenantOfPage() })}>{turn.id}</a>],
    [t('turns.status'), (turn) => (turn.summary ? <Status value={turn.summary.status} /> : '–')],
    [t('turns.model'), (turn) => [turn.summary?.upstream, turn.summary?.model].filter(Boolean).join('/') || '–'],
    [t('turns.duration'), (turn) => duration(turn.summary?.duration_ms)],
    [t('turns.first'), (turn) => duration(turn.summary?.first_token_ms)],
    [t('turn.tokens'), (turn) => (turn.summary ? `${count(turn.summary.input_tokens)} → ${count(turn.summary.output_tokens)}` : '–')],
    [t('turns.cost'), (turn) => money(turn.summary?.cost_usd)],
    [t('turns.tools'), (turn) => turn.summary?.tools.join(', ') || '–'],
  ];
  return (
    <>
      <Card flush>
        <div class="table-wrap" tabIndex={0} role="group" aria-label={t('compare.title')}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">{t('compare.fact')}</th>
                <th scope="col">{t('compare.first')}</th>
                <th scope="col">{t('compare.second')}</th>
              </tr>
            </thead>
            <tbody>
              {facts.map(([name, show]) => (
                <tr key={name}>
                  <td class="muted">{name}</td>
                  <td>{show(one)}</td>
                  <td>{show(two)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
      <Card title={t('compare.prompts')}>
        <Diff label={t('compare.prompts')} lines={diffLines(promptOf(one), promptOf(two))} />
      </Card>
      <Card title={t('compare.answers')}>
        <Diff label={t('compare.answers')} lines={diffLines(answerOf(one), answerOf(two))} />
      </Card>
    </>
  );
}
