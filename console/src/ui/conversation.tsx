// Messages, calls and reasoning as a conversation.

import { useState } from 'preact/hooks';
import { t } from '../i18n';
import { pretty, type CallView, type ItemView } from '../items';
import { Code, Tag } from './parts';

/** Longer texts are shown in part, with a button for the rest: the browser would need seconds for megabytes. */
const SHOWN = 20_000;

export function LongText({ text, code }: { text: string; code?: boolean }) {
  const [whole, setWhole] = useState(false);
  const shown = whole || text.length <= SHOWN ? text : text.slice(0, SHOWN);
  return (
    <>
      {code ? <Code text={shown} /> : <div class="text-block">{shown}</div>}
      {shown.length < text.length && (
        <button type="button" class="button small" onClick={() => setWhole(true)}>
          {t('part.showAll', { count: text.length.toLocaleString() })}
        </button>
      )}
    </>
  );
}

export function Conversation({ views }: { views: ItemView[] }) {
  return (
    <ol class="conversation">
      {views.map((view, index) => (
        <li key={view.id ?? index} class={`said ${view.kind} ${view.kind === 'message' ? view.role : ''}`}>
          <ItemCard view={view} />
        </li>
      ))}
    </ol>
  );
}

function ItemCard({ view }: { view: ItemView }) {
  switch (view.kind) {
    case 'message':
      return (
        <>
          <div class="who">{view.role}</div>
          <LongText text={view.text} />
          {view.attachments.length > 0 && (
            <div class="row tight">
              {view.attachments.map((name) => (
                <Tag key={name}>{name}</Tag>
              ))}
            </div>
          )}
        </>
      );
    case 'call':
      return <CallCard view={view} />;
    case 'reasoning':
      return (
        <details>
          <summary class="who">{t('part.reasoning')}</summary>
          {view.text ? <LongText text={view.text} /> : <p class="muted">{t('part.hiddenReasoning')}</p>}
        </details>
      );
    case 'other':
      return (
        <details>
          <summary class="who">{view.type}</summary>
          <LongText text={view.json} code />
        </details>
      );
  }
}

export function CallCard({ view }: { view: CallView }) {
  const tone = view.error ? 'wrong' : view.output !== null ? 'good' : 'wait';
  const state = view.error ? t('call.failed') : view.output !== null ? t('call.answered') : t('call.open');
  return (
    <div class="call">
      <div class="row">
        <code class="call-name">{view.name}</code>
        <Tag tone={tone}>{state}</Tag>
      </div>
      <div class="call-part">
        <span class="small muted">{t('call.arguments')}</span>
        <LongText text={pretty(view.arguments || '{}')} code />
      </div>
      {view.error && (
        <div class="call-part">
          <span class="small muted">{t('call.error')}</span>
          <p class="bad text-block">{view.error}</p>
        </div>
      )}
      {view.output !== null && (
        <div class="call-part">
          <span class="small muted">{t('call.output')}</span>
          <LongText text={pretty(view.output)} code />
        </div>
      )}
    </div>
  );
}
