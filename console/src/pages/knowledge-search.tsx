// Searches as an agent does, and shows why each part was found.

import { useState } from 'preact/hooks';
import { call, type Schemas } from '../api/client';
import { useAction } from '../hooks';
import { t } from '../i18n';
import { href } from '../router';
import { LongText } from '../ui/conversation';
import { Icon } from '../ui/icons';
import { Card, Empty, Failure, Notice, Tag } from '../ui/parts';

type Found = Schemas['FoundChunk'];

export function KnowledgeSearch({ collection }: { collection: string | null }) {
  const [query, setQuery] = useState('');
  const [result, setResult] = useState<Schemas['KnowledgeSearchResult']>();
  const search = useAction(async () => {
    setResult(await call('post', '/admin/knowledge/_search', { body: { query: query.trim(), collections: collection ? [collection] : null } }));
  });
  return (
    <Card title={t('knowledge.searchTitle')}>
      <form
        class="row search-row"
        onSubmit={(event) => {
          event.preventDefault();
          if (query.trim()) void search.run();
        }}
      >
        <input class="input grow" type="search" aria-label={t('knowledge.query')} placeholder={t('knowledge.query')} value={query} maxLength={1000} onInput={(event) => setQuery(event.currentTarget.value)} />
        <button type="submit" class="button primary" disabled={search.busy || !query.trim()}>
          <Icon name="search" />
          {t('knowledge.find')}
        </button>
      </form>
      {search.error && <Failure error={search.error} />}
      {result?.warnings.map((warning) => (
        <Notice key={warning} tone="wait">
          {warning}
        </Notice>
      ))}
      {result && !result.data.length && !search.error && <Empty title={t('knowledge.nothing')}>{t('knowledge.nothingText')}</Empty>}
      {result && result.data.length > 0 && (
        <ol class="found">
          {result.data.map((chunk) => (
            <li key={chunk.id}>
              <FoundChunk chunk={chunk} linked={!collection} />
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

function FoundChunk({ chunk, linked }: { chunk: Found; linked: boolean }) {
  const place = `${chunk.path}:${chunk.start_line}–${chunk.end_line}`;
  return (
    <>
      <div class="row between wrap">
        <span>
          {linked && <a href={href('/knowledge', { collection: chunk.collection })}>{chunk.collection}</a>} <span class="mono">{place}</span> {chunk.symbol && <code>{chunk.symbol}</code>}
        </span>
        <Tag tone="live">{t('knowledge.score', { score: chunk.score.toFixed(3) })}</Tag>
      </div>
      <p class="small muted">
        {t('knowledge.why', { words: chunk.matched_words.join(', ') || '–', score: chunk.word_score.toFixed(2) })}
        {' · '}
        {chunk.similarity === null ? t('knowledge.noVector') : t('knowledge.vector', { score: chunk.similarity.toFixed(3) })}
      </p>
      <LongText text={chunk.content} code />
    </>
  );
}
