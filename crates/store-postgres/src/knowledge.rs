//! Knowledge: collections, documents, chunks, and the full-text index.

use amalgam_store::{Question, TenantKey, statements};

use super::{
    batch::columns::column,
    connection::{Connection, PostgresFailure},
    job::signed,
};

statements! {
    TenantSql CHUNKS_WITH_WORDS = "
        SELECT ARRAY(
            SELECT chunk FROM knowledge_words
            WHERE tenant_id = $1 AND words @@ replace(asked.question, '#', $1::bigint::text)::tsquery LIMIT asked.most
        )
        FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS asked (question, most, place) ORDER BY place";
}

/// Returns the chunks that the index finds for each query.
pub(super) async fn chunks_with_words(
    connection: &Connection,
    tenant: TenantKey,
    questions: &[Question],
) -> Result<Vec<Vec<i64>>, PostgresFailure> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let texts: Vec<&str> = column(questions, |question| question.text.as_str());
    let most: Vec<i64> = column(questions, |question| signed(question.most));
    let rows = connection.rows(CHUNKS_WITH_WORDS, &[&tenant.number(), &texts, &most]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
