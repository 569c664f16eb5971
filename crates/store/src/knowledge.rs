//! Knowledge: documents in chunks, and the search for them.
//!
//! An engine stores rows and a full-text index. The words in the index, the queries and the ranking are decided here,
//! so all engines return the same chunks.

mod columns;
mod documents;
mod index;
mod lookup;
mod question;
mod search;

use amalgam_core::{
    Operator, Scope, StoreError, TurnSummary,
    store::{
        Collection, DocumentListing, DocumentRecord, FoundChunk, ImportCounts, KnowledgeQuery, KnowledgeStore,
        NewDocument, Stored, Within,
    },
};

pub use self::question::{IndexSyntax, Question};
use self::{
    columns::attributes,
    documents::{DocumentWriter, check, held, hold, is_name, signed},
    lookup::{OwnedQuery, find},
};
use crate::{
    SqlStore,
    engine::{ChangedTenant, Repeat, SqlConnection, SqlEngine, TenantKey},
    sql::shared_statements,
    turn_list::{ADD_USAGE, usage_rows},
    values::{SqlRow, SqlValue, values},
};

shared_statements! {
    TenantSql COLLECTIONS = "
        SELECT name, documents, chunks, embedding_model, created_at, updated_at FROM knowledge_collections
        WHERE tenant_id = $1 ORDER BY name";
    TenantSql SEARCHED_COLLECTIONS = "SELECT number, name, chunks FROM knowledge_collections WHERE tenant_id = $1";
    TenantSql COLLECTION = "SELECT number FROM knowledge_collections WHERE tenant_id = $1 AND name = $2";
    TenantSql ADD_COLLECTION = "
        INSERT INTO knowledge_collections (tenant_id, name, embedding_model, documents, chunks, created_at, updated_at)
        VALUES ($1, $2, $3, 0, 0, $4, $4)
        ON CONFLICT (tenant_id, name) DO NOTHING";
    TenantSql SET_EMBEDDING_MODEL = "
        UPDATE knowledge_collections SET embedding_model = $3 WHERE tenant_id = $1 AND number = $2";
    TenantSql COUNT_IN_COLLECTION = "
        UPDATE knowledge_collections SET documents = documents + $3, chunks = chunks + $4,
            updated_at = CASE WHEN updated_at > $5 THEN updated_at ELSE $5 END
        WHERE tenant_id = $1 AND number = $2";
    TenantSql FORGET_COLLECTION = "DELETE FROM knowledge_collections WHERE tenant_id = $1 AND number = $2";
    TenantSql DOCUMENTS = "
        SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND (source, path) > ($3, $4) ORDER BY source, path LIMIT $5";
    TenantSql DOCUMENTS_OF_SOURCE = "
        SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND source = $3 AND path > $4 ORDER BY path LIMIT $5";
    TenantSql SOME_DOCUMENTS = "
        SELECT number FROM knowledge_documents WHERE tenant_id = $1 AND collection = $2 LIMIT $3";
    TenantSql FORGET_EMBEDDINGS = "DELETE FROM knowledge_embeddings WHERE tenant_id = $1 AND collection = $2";
}

/// The number of documents that one transaction deletes when a collection is deleted.
const DOCUMENTS_AT_ONCE: usize = 200;

impl<E: SqlEngine> KnowledgeStore for SqlStore<E> {
    fn count_calls(&self, operator: Operator, summary: TurnSummary) -> Stored<'_, ()> {
        let arguments = (TenantKey::of_row(operator, summary.tenant_id), summary);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, summary)| {
            Box::pin(async move {
                for mut row in usage_rows(summary) {
                    // No turn has ended.
                    (row.sums.turns, row.sums.failed_turns) = (0, 0);
                    let values: Vec<SqlValue<'_>> = row.values().into_iter().skip(1).collect();
                    connection.tenant(*tenant, ADD_USAGE, values).run().await?;
                }
                Ok(())
            })
        })
    }

    fn collections<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Collection>> {
        let (cache, tenant) = (&self.tenant_cache, TenantKey::of_caller(scope));
        Box::pin(cache.get(&cache.collections, tenant.number(), move || self.collections_of(tenant)))
    }

    fn collections_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Collection>> {
        self.collections_of(TenantKey::within(within))
    }

    fn documents_within<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        let source = listing.source.map(str::to_owned);
        let after = listing.after.map(|(source, path)| (source.to_owned(), path.to_owned())).unwrap_or_default();
        let arguments = (TenantKey::within(within), collection.to_owned(), source, after, listing.limit);
        self.engine.read(arguments, |connection, (tenant, collection, source, after, limit)| {
            Box::pin(async move {
                let (after_source, after_path) = after;
                if !is_name(collection) || !source.as_deref().is_none_or(is_name) {
                    return Ok(Vec::new());
                }
                let number = connection.tenant(*tenant, COLLECTION, values![collection]);
                let Some(number) = number.first(|row| row.get::<i64>(0)).await? else { return Ok(Vec::new()) };
                let query = match source {
                    None => connection.tenant(*tenant, DOCUMENTS, values![number, after_source, after_path, *limit]),
                    Some(source) if source < after_source => return Ok(Vec::new()),
                    Some(source) => {
                        // With `after` in an earlier source, the page starts at the first document of this one.
                        let path = if source == after_source { after_path.as_str() } else { "" };
                        connection.tenant(*tenant, DOCUMENTS_OF_SOURCE, values![number, source, path, *limit])
                    }
                };
                query.all(document).await
            })
        })
    }

    fn put_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        embedding_model: Option<&'a str>,
        documents: Vec<NewDocument>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        if let Err(error) = check(collection, source, &documents) {
            return Box::pin(async { Err(error) });
        }
        let (collection, model) = (collection.to_owned(), embedding_model.map(str::to_owned));
        let arguments = (ChangedTenant::of(within), collection, source.to_owned(), model, documents, now_ms);
        // Not repeatable: a second run would count nothing as new.
        let put = self.engine.transaction(
            Repeat::Never,
            arguments,
            |connection, (tenant, collection, source, model, documents, now_ms)| {
                Box::pin(async move {
                    if !tenant.exists(connection).await? {
                        return Ok(None);
                    }
                    let tenant = tenant.key;
                    let collection = hold(connection, tenant, collection, model.as_deref(), *now_ms).await?;
                    let writer = DocumentWriter { connection, tenant, collection, source, now_ms: *now_ms };
                    writer.put(E::INDEX_SYNTAX, documents).await.map(Some)
                })
            },
        );
        self.tenant_cache.changing(put)
    }

    fn delete_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        paths: &'a [String],
        now_ms: u64,
    ) -> Stored<'a, u64> {
        let (collection, source) = (collection.to_owned(), source.to_owned());
        let arguments = (TenantKey::within(within), collection, source, paths.to_vec(), now_ms);
        let deleted =
            self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, name, source, paths, now_ms)| {
                Box::pin(async move {
                    let (tenant, now_ms) = (*tenant, *now_ms);
                    let Some(collection) = held(connection, tenant, name).await? else { return Ok(0) };
                    let writer = DocumentWriter { connection, tenant, collection, source, now_ms };
                    let known = writer.known(paths.iter().map(String::as_str)).await?;
                    if !known.is_empty() {
                        writer.forget(known.values().map(|known| known.number).collect()).await?;
                        let chunks = known.values().map(|known| signed(known.chunks)).sum::<i64>();
                        writer.count(-signed(known.len() as u64), -chunks).await?;
                    }
                    Ok(known.len() as u64)
                })
            });
        self.tenant_cache.changing(deleted)
    }

    fn delete_collection<'a>(&'a self, within: Within<'a>, collection: &'a str) -> Stored<'a, bool> {
        let arguments = (TenantKey::within(within), collection.to_owned());
        let deleted = self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, name)| {
            Box::pin(async move {
                let tenant = *tenant;
                let Some(collection) = held(connection, tenant, name).await? else { return Ok(false) };
                let writer = DocumentWriter { connection, tenant, collection, source: "", now_ms: 0 };
                loop {
                    let some = connection.tenant(tenant, SOME_DOCUMENTS, values![collection, DOCUMENTS_AT_ONCE]);
                    let some = some.all(|row| row.get(0)).await?;
                    if some.is_empty() {
                        break;
                    }
                    writer.forget(some).await?;
                }
                connection.tenant(tenant, FORGET_COLLECTION, values![collection]).run().await?;
                Ok(true)
            })
        });
        self.tenant_cache.changing(deleted)
    }

    fn search_knowledge<'a>(&'a self, scope: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        self.engine.read((TenantKey::of_caller(scope), OwnedQuery::of(&query)), |connection, (tenant, query)| {
            Box::pin(async move { find(connection, E::INDEX_SYNTAX, *tenant, &query.borrowed()).await })
        })
    }
}

impl<E: SqlEngine> SqlStore<E> {
    fn collections_of<'a>(&'a self, tenant: TenantKey) -> Stored<'a, Vec<Collection>> {
        self.engine.read(tenant, |connection, tenant| {
            Box::pin(connection.tenant(*tenant, COLLECTIONS, []).all(|row| {
                Ok(Collection {
                    name: row.get(0)?,
                    documents: row.get(1)?,
                    chunks: row.get(2)?,
                    embedding_model: row.optional(3)?,
                    created_at_ms: row.get(4)?,
                    updated_at_ms: row.get(5)?,
                })
            }))
        })
    }
}

fn document(row: &dyn SqlRow) -> Result<DocumentRecord, StoreError> {
    Ok(DocumentRecord {
        source: row.get(0)?,
        path: row.get(1)?,
        digest: row.get(2)?,
        language: row.get(3)?,
        attributes: attributes(row.get(4)?),
        chunks: row.get(5)?,
        updated_at_ms: row.get(6)?,
    })
}
