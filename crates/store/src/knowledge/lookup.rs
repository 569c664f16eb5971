//! Runs a search: sends the queries of [`Search`] to the engine.

use std::{borrow::Cow, collections::HashMap};

use amalgam_core::{
    Condition, StoreError,
    store::{FoundChunk, KnowledgeQuery},
};

use super::{
    SEARCHED_COLLECTIONS,
    columns::{attributes, embedding},
    question::{IndexSyntax, Question},
    search::{ChunkContent, DocumentFacts, RankedChunk, Search, SearchedCollection},
};
use crate::{
    engine::{EngineQueries, SqlConnection, TenantKey},
    values::{SqlRow, values},
};

pub(super) async fn find<C: EngineQueries>(
    connection: &C,
    syntax: IndexSyntax,
    tenant: TenantKey,
    query: &KnowledgeQuery<'_>,
) -> Result<Vec<FoundChunk>, C::Failure> {
    let collections = connection
        .tenant(tenant, SEARCHED_COLLECTIONS, [])
        .all(|row| Ok(SearchedCollection { number: row.get(0)?, name: row.get(1)?, chunks: row.get(2)? }))
        .await?;
    let Some(mut search) = Search::new(syntax, query, &collections) else { return Ok(Vec::new()) };
    let counts = count(connection, tenant, &search.samples()).await?;
    let counts = count(connection, tenant, &search.strengths(&counts)).await?;
    let lists = connection.chunks_with_words(tenant, &search.reads(&counts)).await?;
    let lists = connection.chunks_with_words(tenant, &search.more(&lists)).await?;
    search.take(&lists);
    search.order();
    loop {
        let documents = search.next_documents();
        if documents.is_empty() {
            break;
        }
        let facts = connection.tenant(tenant, connection.sql().document_facts, values![documents.clone()]);
        search.judge(&documents, &facts.all(|row| facts_from(row, 0)).await?);
    }
    let candidates = connection.tenant(tenant, connection.sql().ranked_chunks, values![search.candidates().to_vec()]);
    let candidates = candidates
        .all(|row| {
            let (number, start_line, terms) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(RankedChunk { number, start_line, terms, document: facts_from(row, 3)? })
        })
        .await?;
    let picked = search.pick(candidates);
    let numbers: Vec<i64> = picked.iter().map(|(_, chunk)| chunk.number).collect();
    let contents = connection.tenant(tenant, connection.sql().chunk_contents, values![numbers]);
    let mut contents = contents
        .all(|row| {
            let (number, symbol, end_line) = (row.get(0)?, row.optional(1)?, row.get(2)?);
            Ok(ChunkContent { number, symbol, end_line, content: row.get(3)?, embedding: None })
        })
        .await?;
    if query.embeddings {
        let wanted = picked.iter().map(|(_, chunk)| values![chunk.document.collection, chunk.number]);
        let embeddings = connection.tenant(tenant, connection.sql().embeddings, []).for_each(wanted);
        let embeddings = embeddings.all(|row| Ok((row.get::<i64>(0)?, embedding(row.get(1)?)))).await?;
        let mut embeddings: HashMap<i64, Vec<f32>> = embeddings.into_iter().collect();
        for content in &mut contents {
            content.embedding = embeddings.remove(&content.number);
        }
    }
    Ok(search.found(picked, contents))
}

async fn count<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    questions: &[Question],
) -> Result<Vec<u64>, C::Failure> {
    let rows = questions.iter().map(|question| values![&question.text, question.most]);
    connection.tenant(tenant, connection.sql().count_word, []).for_each(rows).all(|row| row.get(0)).await
}

fn facts_from(row: &dyn SqlRow, column: usize) -> Result<DocumentFacts, StoreError> {
    Ok(DocumentFacts {
        number: row.get(column)?,
        collection: row.get(column + 1)?,
        path: row.get(column + 2)?,
        language: row.get(column + 3)?,
        attributes: attributes(row.get(column + 4)?),
    })
}

/// A query that owns its parts.
pub(super) struct OwnedQuery {
    collections: Vec<String>,
    words: Vec<String>,
    conditions: Vec<Condition<'static>>,
    limit: usize,
    embeddings: bool,
}

impl OwnedQuery {
    pub(super) fn of(query: &KnowledgeQuery<'_>) -> Self {
        let owned = |condition: &Condition<'_>| Condition {
            key: Cow::Owned(condition.key.clone().into_owned()),
            operator: condition.operator,
            values: condition.values.iter().map(|value| Cow::Owned(value.clone().into_owned())).collect(),
        };
        Self {
            collections: query.collections.to_vec(),
            words: query.words.to_vec(),
            conditions: query.conditions.iter().map(owned).collect(),
            limit: query.limit,
            embeddings: query.embeddings,
        }
    }

    pub(super) fn borrowed(&self) -> KnowledgeQuery<'_> {
        KnowledgeQuery {
            collections: &self.collections,
            words: &self.words,
            conditions: &self.conditions,
            limit: self.limit,
            embeddings: self.embeddings,
        }
    }
}
