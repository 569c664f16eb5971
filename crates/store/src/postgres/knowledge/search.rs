//! Looks pieces up: the answers of this engine to what a search asks.

use amalgam_core::store::{FoundChunk, KnowledgeQuery};
use tokio_postgres::Row;

use crate::{
    knowledge::{self, Candidate, Dialect, DocumentFacts, Picked, Question, Search, SearchedCollection},
    postgres::{
        batch::columns::column,
        connection::{Connection, Failure},
        job::{signed, unsigned},
        sql::statements,
    },
};

statements! {
    Admin SEARCHED_COLLECTIONS = "SELECT number, name, chunks FROM knowledge_collections WHERE tenant_id = $1";
    /// Words begin with the number of their tenant, in whose place `#` stands.
    Admin COUNT_WORDS = "
        SELECT (SELECT count(*) FROM (
            SELECT FROM knowledge_words
            WHERE tenant_id = $1 AND words @@ replace(asked.question, '#', $1::bigint::text)::tsquery LIMIT asked.most
        ) AS counted)
        FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS asked (question, most, place) ORDER BY place";
    Admin CHUNKS_WITH_WORDS = "
        SELECT ARRAY(
            SELECT chunk FROM knowledge_words
            WHERE tenant_id = $1 AND words @@ replace(asked.question, '#', $1::bigint::text)::tsquery LIMIT asked.most
        )
        FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS asked (question, most, place) ORDER BY place";
    Admin DOCUMENT_FACTS = "
        SELECT number, collection, path, language, attributes FROM knowledge_documents
        WHERE tenant_id = $1 AND number = ANY ($2)";
    Admin CANDIDATES = "
        SELECT c.number, c.start_line, c.terms, d.number, d.collection, d.path, d.language, d.attributes
        FROM unnest($2::bigint[]) AS wanted (number) JOIN knowledge_chunks c ON c.number = wanted.number
            JOIN knowledge_documents d ON d.number = c.number >> 16
        WHERE c.tenant_id = $1";
    Admin PICKED = "
        SELECT c.number, c.symbol, c.end_line, c.content FROM knowledge_chunks c
        WHERE c.tenant_id = $1 AND c.number = ANY ($2)";
    Admin PICKED_EMBEDDINGS = "
        SELECT e.chunk, e.embedding
        FROM unnest($2::bigint[], $3::bigint[]) AS wanted (collection, chunk)
            JOIN knowledge_embeddings e ON e.collection = wanted.collection AND e.chunk = wanted.chunk
        WHERE e.tenant_id = $1";
}

/// What is found.
pub(super) async fn find(
    connection: &Connection,
    tenant_id: i64,
    query: &KnowledgeQuery<'_>,
) -> Result<Vec<FoundChunk>, Failure> {
    let collections = connection.rows(&SEARCHED_COLLECTIONS, &[&tenant_id]).await?;
    let collections = collections.iter().map(collection_from).collect::<Result<Vec<_>, Failure>>()?;
    let Some(mut search) = Search::new(Dialect::TsQuery, query, &collections) else { return Ok(Vec::new()) };
    let counts = count(connection, tenant_id, &search.samples()).await?;
    let counts = count(connection, tenant_id, &search.strengths(&counts)).await?;
    let lists = read(connection, tenant_id, &search.reads(&counts)).await?;
    let lists = read(connection, tenant_id, &search.more(&lists)).await?;
    search.take(&lists);
    search.order();
    loop {
        let documents = search.next_documents();
        if documents.is_empty() {
            break;
        }
        let facts = connection.rows(&DOCUMENT_FACTS, &[&tenant_id, &documents]).await?;
        let facts = facts.iter().map(|row| facts_from(row, 0)).collect::<Result<Vec<_>, Failure>>()?;
        search.judge(&documents, &facts);
    }
    let candidates = connection.rows(&CANDIDATES, &[&tenant_id, &search.candidates()]).await?;
    let candidates = candidates.iter().map(candidate_from).collect::<Result<Vec<_>, Failure>>()?;
    let picked = search.pick(candidates);
    let numbers: Vec<i64> = column(&picked, |(_, candidate)| candidate.number);
    let made_of = connection.rows(&PICKED, &[&tenant_id, &numbers]).await?;
    let mut made_of = made_of.iter().map(picked_from).collect::<Result<Vec<_>, Failure>>()?;
    if query.embeddings {
        let collections: Vec<i64> = column(&picked, |(_, candidate)| candidate.document.collection);
        for row in connection.rows(&PICKED_EMBEDDINGS, &[&tenant_id, &collections, &numbers]).await? {
            let (chunk, embedding): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
            if let Some(picked) = made_of.iter_mut().find(|picked| picked.number == chunk) {
                picked.embedding = Some(knowledge::embedding(embedding));
            }
        }
    }
    Ok(search.found(picked, made_of))
}

async fn count(connection: &Connection, tenant_id: i64, questions: &[Question]) -> Result<Vec<u64>, Failure> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let (texts, most) = columns(questions);
    let rows = connection.rows(&COUNT_WORDS, &[&tenant_id, &texts, &most]).await?;
    rows.iter().map(|row| Ok(unsigned(row.try_get(0)?))).collect()
}

async fn read(connection: &Connection, tenant_id: i64, questions: &[Question]) -> Result<Vec<Vec<i64>>, Failure> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let (texts, most) = columns(questions);
    let rows = connection.rows(&CHUNKS_WITH_WORDS, &[&tenant_id, &texts, &most]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn columns(questions: &[Question]) -> (Vec<&str>, Vec<i64>) {
    (column(questions, |question| question.text.as_str()), column(questions, |question| signed(question.most)))
}

fn collection_from(row: &Row) -> Result<SearchedCollection, Failure> {
    Ok(SearchedCollection { number: row.try_get(0)?, name: row.try_get(1)?, chunks: unsigned(row.try_get(2)?) })
}

fn facts_from(row: &Row, column: usize) -> Result<DocumentFacts, Failure> {
    Ok(DocumentFacts {
        number: row.try_get(column)?,
        collection: row.try_get(column + 1)?,
        path: row.try_get(column + 2)?,
        language: row.try_get(column + 3)?,
        attributes: knowledge::attributes(row.try_get(column + 4)?),
    })
}

fn candidate_from(row: &Row) -> Result<Candidate, Failure> {
    Ok(Candidate {
        number: row.try_get(0)?,
        start_line: unsigned(row.try_get(1)?),
        terms: row.try_get(2)?,
        document: facts_from(row, 3)?,
    })
}

fn picked_from(row: &Row) -> Result<Picked, Failure> {
    Ok(Picked {
        number: row.try_get(0)?,
        symbol: row.try_get(1)?,
        end_line: unsigned(row.try_get(2)?),
        content: row.try_get(3)?,
        embedding: None,
    })
}
