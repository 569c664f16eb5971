//! Knowledge: collections, documents, chunks, and the index of words.

use amalgam_store::{Question, TenantKey, statements};

use super::{
    failure::SqliteFailure,
    query::{Database, int},
};

statements! {
    TenantSql CHUNKS_WITH_WORD = "
        SELECT rowid, ?1 AS tenant_id FROM knowledge_words WHERE knowledge_words MATCH replace(?2, '#', ?1) LIMIT ?3";
}

/// The chunks that the index finds for each question.
pub(super) fn chunks_with_words(
    database: Database<'_>,
    tenant: TenantKey,
    questions: &[Question],
) -> Result<Vec<Vec<i64>>, SqliteFailure> {
    let chunks = |question: &Question| {
        let found = database.tenant(tenant, CHUNKS_WITH_WORD, &[&question.text, &int(question.most)?])?;
        found.all(|row| Ok(row.get(0)?))
    };
    questions.iter().map(chunks).collect()
}
