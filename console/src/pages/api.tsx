// The reference of the API, made from the OpenAPI document, with requests that can be sent from here.

import { useMemo, useState } from 'preact/hooks';
import { address, send, ApiError } from '../api/client';
import { useAction, useLoad } from '../hooks';
import { t } from '../i18n';
import { pretty } from '../items';
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
  const [values, setValues] = useState<Record<string, string>>({});
  const [body, setBody] = useState(operation.example);
  const [answer, setAnswer] = useState<{ status: string; text: string }>();
  const used = operation.parameters.filter((parameter) => parameter.in !== 'header');
  const pick = (place: string): Record<string, string> => Object.fromEntries(used.filter((parameter) => parameter.in === place && values[parameter.name]).map((parameter) => [parameter.name, values[parameter.name] ?? '']));
  const run = useAction(async () => {
    try {
      const response = await send(operation.method, operation.path, { path: pick('path'), query: pick('query'), body: operation.hasBody ? JSON.parse(body || '{}') : undefined });
      setAnswer({ status: String(response.status), text: pretty((await response.text()).slice(0, 200_000)) });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setAnswer({ status: String(error.status), text: error.message });
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
            void run.run();
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
              <Code text={answer.text} label={t('api.answer', { status: answer.status })} />
            </>
          )}
        </div>
      </div>
    </div>
  );
}
