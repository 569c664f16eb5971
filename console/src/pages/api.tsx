// The reference of the API, made from the OpenAPI document, with requests that can be sent from here.

import { useMemo, useState } from 'preact/hooks';
import { address, send, ApiError } from '../api/client';
import { useDraft } from '../drafts';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { indented } from '../text-search';
import { Confirm } from '../ui/dialog';
import { Card, Code, Failure, Loading, Page, Prose, Tag, TextArea, TextField } from '../ui/parts';

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
}

interface Operation {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  path: string;
  summary: string;
  description: string;
  tag: string;
  parameters: Parameter[];
  example: string;
  hasBody: boolean;
  responses: [string, string][];
}

type Document = { paths: Record<string, Record<string, any>>; components: { parameters: Record<string, Parameter> }; tags: { name: string; description: string }[] };

const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;

/** The operations of a document, with references to shared parameters resolved. */
export function operationsOf(document: Document): Operation[] {
  const parameter = (value: { $ref?: string } & Parameter): Parameter => (value.$ref ? (document.components.parameters[value.$ref.split('/').pop() ?? ''] ?? value) : value);
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.flatMap((method) => {
      const operation = item[method];
      if (!operation) return [];
      const content = operation.requestBody?.content?.['application/json'];
      const example = content?.example ?? Object.values((content?.examples ?? {}) as Record<string, { value: unknown }>)[0]?.value;
      return [
        {
          method,
          path,
          summary: String(operation.summary ?? ''),
          description: String(operation.description ?? ''),
          tag: String(operation.tags?.[0] ?? ''),
          parameters: ((operation.parameters ?? []) as Parameter[]).map(parameter),
          example: example === undefined ? (content ? '{}' : '') : JSON.stringify(example, null, 2),
          hasBody: Boolean(operation.requestBody),
          responses: Object.entries((operation.responses ?? {}) as Record<string, { description?: string }>).map(([status, response]): [string, string] => [status, response.description ?? '']),
        },
      ];
    }),
  );
}

export default function Api() {
  const [wanted, setWanted] = useState('');
  const document = useLoad((signal) => send('get', '/openapi.json', { signal }).then((response) => response.json() as Promise<Document>), []);
  const operations = useMemo(() => (document.data ? operationsOf(document.data) : []), [document.data]);
  const shown = operations.filter((operation) => `${operation.method} ${operation.path} ${operation.summary}`.toLowerCase().includes(wanted.toLowerCase()));
  const tags = [...new Set(shown.map((operation) => operation.tag))];
  return (
    <Page
      title={t('api.title')}
      about={
        <>
          {t('api.about')} <a href="/openapi.json">openapi.json</a> · <a href="/docs/">{t('nav.docs')}</a>
        </>
      }
    >
      <div class="filters">
        <input class="input search" type="search" aria-label={t('api.search')} placeholder={t('api.search')} value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
      </div>
      {document.error && <Failure error={document.error} retry={document.reload} />}
      {!document.data && !document.error && (
        <Card>
          <Loading />
        </Card>
      )}
      {tags.map((tag) => (
        <Card key={tag} title={tag} flush>
          {shown
            .filter((operation) => operation.tag === tag)
            .map((operation) => (
              <Entry key={`${operation.method} ${operation.path}`} operation={operation} />
            ))}
        </Card>
      ))}
    </Page>
  );
}

const TONES = { get: 'live', post: 'good', put: 'wait', patch: 'wait', delete: 'wrong' } as const;

function Entry({ operation }: { operation: Operation }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="operation" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Tag tone={TONES[operation.method]}>{operation.method.toUpperCase()}</Tag>
        <code>{operation.path}</code>
        <span class="muted">{operation.summary}</span>
      </summary>
      {open && <Details operation={operation} />}
    </details>
  );
}

function Details({ operation }: { operation: Operation }) {
  const name = `${operation.method} ${operation.path}`;
  const [values, setValues] = useDraft<Record<string, string>>(`api.${name}`, {});
  const [body, setBody] = useDraft(`api.body.${name}`, operation.example);
  const [answer, setAnswer] = useState<{ status: string; requestId: string | null; text: string }>();
  const [asking, setAsking] = useState(false);
  const used = operation.parameters.filter((parameter) => parameter.in !== 'header');
  const pick = (place: string): Record<string, string> => Object.fromEntries(used.filter((parameter) => parameter.in === place && values[parameter.name]).map((parameter) => [parameter.name, values[parameter.name] ?? '']));
  const run = useAction(async () => {
    try {
      const response = await send(operation.method, operation.path, { path: pick('path'), query: pick('query'), body: operation.hasBody ? JSON.parse(body || '{}') : undefined });
      setAnswer({ status: String(response.status), requestId: response.headers.get('x-request-id'), text: indented((await response.text()).slice(0, 200_000)) });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setAnswer({ status: String(error.status), requestId: error.requestId, text: error.message });
    }
  });
  return (
    <div class="operation-body stack">
      {operation.description && (
        <p>
          <Prose text={operation.description} />
        </p>
      )}
      <div class="grid-2">
        <form
          class="stack tight"
          onSubmit={(event) => {
            event.preventDefault();
            // What changes or deletes something is sent after a question.
            if (operation.method === 'get') void run.run();
            else setAsking(true);
          }}
        >
          {used.map((parameter) => (
            <TextField key={parameter.name} label={`${parameter.name}${parameter.required ? ' *' : ''}`} help={parameter.description && <Prose text={parameter.description} />} value={values[parameter.name] ?? ''} onInput={(value) => setValues({ ...values, [parameter.name]: value })} />
          ))}
          {operation.hasBody && <TextArea label={t('api.body')} code rows={6} value={body} onInput={setBody} />}
          <code class="small muted">{address(operation.path, { path: pick('path'), query: pick('query') })}</code>
          <div class="row">
            <button type="submit" class="button primary" disabled={run.busy}>
              {t('api.send')}
            </button>
          </div>
          {run.error && <Failure error={run.error} />}
        </form>
        {asking && (
          <Confirm title={t(operation.method === 'delete' ? 'api.deleteTitle' : 'api.sendTitle')} action={t('api.send')} onConfirm={() => run.run()} onClose={() => setAsking(false)}>
            <p>
              <Tag tone={TONES[operation.method]}>{operation.method.toUpperCase()}</Tag> <code>{address(operation.path, { path: pick('path'), query: pick('query') })}</code>
            </p>
            <p>{t(operation.method === 'delete' ? 'api.deleteText' : 'api.sendText')}</p>
          </Confirm>
        )}
        <div class="stack tight">
          <strong>{t('api.responses')}</strong>
          <dl class="facts">
            {operation.responses.map(([status, description]) => (
              <>
                <dt>
                  <code>{status}</code>
                </dt>
                <dd>
                  <Prose text={description} />
                </dd>
              </>
            ))}
          </dl>
          {answer && (
            <>
              <strong>{t('api.answer', { status: answer.status })}</strong>
              {answer.requestId && (
                <p class="small muted">
                  {t('error.request')} <code>{answer.requestId}</code>
                </p>
              )}
              <Code text={answer.text} label={t('api.answer', { status: answer.status })} />
            </>
          )}
        </div>
      </div>
    </div>
  );
}
