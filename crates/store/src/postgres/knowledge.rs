//! Documents in pieces, and how they are found.

mod search;

use std::collections::HashMap;

use amalgam_core::{
    Scope, StoreError,
    store::{
        Collection, DocumentListing, DocumentRecord, FoundChunk, Imported, KnowledgeQuery, KnowledgeStore, NewDocument,
        Stored, Within,
    },
};
use tokio_postgres::Row;

use super::{
    Postgres, agents,
    batch::columns::column,
    connection::{Connection, Failure, Param},
    job::{most, signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{
    assistant::content,
    knowledge::{self, Indexed, KnownDocument, Quotes, Tally, numbers_of},
    rows,
};

#[cfg(test)]
pub(super) use self::search::ALL as ALL_OF_SEARCHES;

statements! {
    // Collections.
    Admin COLLECTIONS = "
        SELECT name, documents, chunks, embedding_model, created_at, updated_at FROM knowledge_collections
        WHERE tenant_id = $1 ORDER BY name";
    Admin COLLECTION = "SELECT number FROM knowledge_collections WHERE tenant_id = $1 AND name = $2";
    /// A transaction that changes a collection locks it, so that no other one does meanwhile.
    Admin HOLD_COLLECTION = "
        SELECT number, embedding_model FROM knowledge_collections WHERE tenant_id = $1 AND name = $2 FOR UPDATE";
    Admin ADD_COLLECTION = "
        INSERT INTO knowledge_collections (tenant_id, name, embedding_model, documents, chunks, created_at, updated_at)
        VALUES ($1, $2, $3, 0, 0, $4, $4)
        ON CONFLICT (tenant_id, name) DO NOTHING";
    Admin SET_EMBEDDING_MODEL = "
        UPDATE knowledge_collections SET embedding_model = $3 WHERE tenant_id = $1 AND number = $2";
    Admin COUNT_IN_COLLECTION = "
        UPDATE knowledge_collections SET documents = documents + $3, chunks = chunks + $4,
            updated_at = GREATEST(updated_at, $5)
        WHERE tenant_id = $1 AND number = $2";
    Admin FORGET_COLLECTION = "DELETE FROM knowledge_collections WHERE tenant_id = $1 AND number = $2";

    // Documents.
    Admin DOCUMENTS = "
        SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND (source, path) > ($3, $4) ORDER BY source, path LIMIT $5";
    Admin DOCUMENTS_OF_SOURCE = "
        SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND source = $3 AND path > $4 ORDER BY path LIMIT $5";
    Admin KNOWN_DOCUMENTS = "
        SELECT path, number, digest, language, attributes, chunks FROM knowledge_documents
        WHERE tenant_id = $1 AND collection = $2 AND source = $3 AND path = ANY ($4)";
    Admin SOME_DOCUMENTS = "
        SELECT number FROM knowledge_documents WHERE tenant_id = $1 AND collection = $2 LIMIT $3";
    Admin ADD_DOCUMENTS = "
        INSERT INTO knowledge_documents (tenant_id, collection, source, path, language, attributes, digest, chunks,
            updated_at)
        SELECT $1, $2, $3, new.path, new.language, new.attributes, new.digest, new.chunks, $4
        FROM unnest($5::text[], $6::text[], $7::text[], $8::bytea[], $9::bigint[])
            AS new (path, language, attributes, digest, chunks)
        RETURNING path, number";
    Admin FORGET_DOCUMENTS = "DELETE FROM knowledge_documents WHERE tenant_id = $1 AND number = ANY ($2)";

    // Pieces.
    Admin ADD_CHUNKS = "
        INSERT INTO knowledge_chunks (tenant_id, number, symbol, start_line, end_line, terms, content)
        SELECT $1, new.number, new.symbol, new.start_line, new.end_line, new.terms, new.content
        FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::text[])
            AS new (number, symbol, start_line, end_line, terms, content)";
    /// Words begin with the number of their tenant, in whose place `#` stands.
    Admin ADD_CHUNK_WORDS = "
        INSERT INTO knowledge_words (tenant_id, chunk, words)
        SELECT $1, new.chunk, replace(new.words, '#', $1::bigint::text)::tsvector
        FROM unnest($2::bigint[], $3::text[]) AS new (chunk, words)";
    Admin ADD_EMBEDDINGS = "
        INSERT INTO knowledge_embeddings (tenant_id, collection, chunk, embedding)
        SELECT $1, $2, new.chunk, new.embedding FROM unnest($3::bigint[], $4::bytea[]) AS new (chunk, embedding)";
    Admin FORGET_CHUNK_WORDS = "
        DELETE FROM knowledge_words USING unnest($2::bigint[], $3::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND chunk BETWEEN old.first AND old.last";
    Admin FORGET_CHUNKS = "
        DELETE FROM knowledge_chunks USING unnest($2::bigint[], $3::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND number BETWEEN old.first AND old.last";
    Admin FORGET_CHUNK_EMBEDDINGS = "
        DELETE FROM knowledge_embeddings USING unnest($2::bigint[], $3::bigint[]) AS old (first, last)
        WHERE tenant_id = $1 AND collection = $4 AND chunk BETWEEN old.first AND old.last";
    Admin FORGET_EMBEDDINGS = "DELETE FROM knowledge_embeddings WHERE tenant_id = $1 AND collection = $2";
}

/// So many documents of a collection that is forgotten go at once.
const AT_ONCE: i64 = 200;
/// Pieces with about so many bytes go in one statement.
const BYTES_AT_ONCE: usize = 1 << 20;

impl KnowledgeStore for Postgres {
    fn collections<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Collection>> {
        Box::pin(self.collections_of(scope.tenant_id()))
    }

    fn collections_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Collection>> {
        Box::pin(self.collections_of(within.tenant_id()))
    }

    fn documents_within<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let tenant_id = within.tenant_id();
            if collection.contains('\0') || listing.source.is_some_and(|source| source.contains('\0')) {
                return Ok(Vec::new());
            }
            let Some(row) = connection.row(&COLLECTION, &[&tenant_id, &collection]).await? else {
                return Ok(Vec::new());
            };
            let number: i64 = row.try_get(0)?;
            let (after_source, after_path) = listing.after.unwrap_or_default();
            let limit = most(listing.limit);
            let found = match listing.source {
                None => {
                    let params: [Param<'_>; 5] = [&tenant_id, &number, &after_source, &after_path, &limit];
                    connection.rows(&DOCUMENTS, &params).await?
                }
                Some(source) if source < after_source => Vec::new(),
                Some(source) => {
                    // Behind an earlier source are all documents of this one.
                    let path = if source == after_source { after_path } else { "" };
                    connection.rows(&DOCUMENTS_OF_SOURCE, &[&tenant_id, &number, &source, &path, &limit]).await?
                }
            };
            found.iter().map(record_from).collect()
        }))
    }

    fn put_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        embedding_model: Option<&'a str>,
        documents: Vec<NewDocument>,
        now_ms: u64,
    ) -> Stored<'a, Option<Imported>> {
        Box::pin(async move {
            knowledge::check(collection, source, &documents)?;
            let documents = &documents;
            // Once: a second time nothing would be new any more.
            let put = self.pool.once(move |mut connection: Lease| async move {
                if !agents::exists(&connection, within).await? {
                    return Ok(None);
                }
                connection.begin().await?;
                let put = async {
                    let tenant_id = within.tenant_id();
                    let collection = hold(&connection, tenant_id, collection, embedding_model, now_ms).await?;
                    put(&connection, Target { tenant_id, collection, source, now_ms }, documents).await
                };
                let put = put.await;
                connection.end(put).await.map(Some)
            });
            put.await
        })
    }

    fn delete_documents<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        source: &'a str,
        paths: &'a [String],
        now_ms: u64,
    ) -> Stored<'a, u64> {
        Box::pin(self.pool.once(move |mut connection: Lease| async move {
            let tenant_id = within.tenant_id();
            if collection.contains('\0') {
                return Ok(0);
            }
            connection.begin().await?;
            let deleted = async {
                let Some(row) = connection.row(&HOLD_COLLECTION, &[&tenant_id, &collection]).await? else {
                    return Ok(0);
                };
                let target = Target { tenant_id, collection: row.try_get(0)?, source, now_ms };
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let known: Vec<KnownDocument> = known(&connection, &target, &paths).await?.into_values().collect();
                if !known.is_empty() {
                    forget(&connection, &target, &column(&known, |known| known.number)).await?;
                    let chunks: i64 = known.iter().map(|known| signed(known.chunks)).sum();
                    count(&connection, &target, -signed(known.len() as u64), -chunks).await?;
                }
                Ok(known.len() as u64)
            };
            let deleted = deleted.await;
            connection.end(deleted).await
        }))
    }

    fn delete_collection<'a>(&'a self, within: Within<'a>, collection: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |mut connection: Lease| async move {
            let tenant_id = within.tenant_id();
            if collection.contains('\0') {
                return Ok(false);
            }
            connection.begin().await?;
            let deleted = async {
                let Some(row) = connection.row(&HOLD_COLLECTION, &[&tenant_id, &collection]).await? else {
                    return Ok(false);
                };
                let number: i64 = row.try_get(0)?;
                let target = Target { tenant_id, collection: number, source: "", now_ms: 0 };
                loop {
                    let some = connection.rows(&SOME_DOCUMENTS, &[&tenant_id, &number, &AT_ONCE]).await?;
                    let some = some.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
                    if some.is_empty() {
                        break;
                    }
                    forget(&connection, &target, &some).await?;
                }
                connection.execute(&FORGET_COLLECTION, &[&tenant_id, &number]).await?;
                Ok(true)
            };
            let deleted = deleted.await;
            connection.end(deleted).await
        }))
    }

    fn search_knowledge<'a>(&'a self, scope: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        Box::pin(async move {
            let query = &query;
            let find =
                move |connection: Lease| async move { search::find(&connection, scope.tenant_id(), query).await };
            self.pool.repeatably(find).await
        })
    }
}

impl Postgres {
    async fn collections_of(&self, tenant_id: i64) -> Result<Vec<Collection>, StoreError> {
        let found = self.pool.repeatably(move |connection: Lease| async move {
            let found = connection.rows(&COLLECTIONS, &[&tenant_id]).await?;
            found.iter().map(collection_from).collect::<Result<_, Failure>>()
        });
        found.await
    }
}

/// Where documents are, or go.
struct Target<'a> {
    tenant_id: i64,
    collection: i64,
    source: &'a str,
    now_ms: u64,
}

/// The number of a collection, which is there from now on, is locked against other changes, and has embeddings of this
/// model and no other.
async fn hold(
    connection: &Connection,
    tenant_id: i64,
    name: &str,
    embedding_model: Option<&str>,
    now_ms: u64,
) -> Result<i64, Failure> {
    let mut held = connection.row(&HOLD_COLLECTION, &[&tenant_id, &name]).await?;
    if held.is_none() {
        connection.execute(&ADD_COLLECTION, &[&tenant_id, &name, &embedding_model, &signed(now_ms)]).await?;
        held = connection.row(&HOLD_COLLECTION, &[&tenant_id, &name]).await?;
    }
    // Another request may have deleted it at once.
    let Some(row) = held else { return Err(Failure::again("the collection comes and goes")) };
    let (number, model): (i64, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
    if model != embedding_model {
        connection.execute(&FORGET_EMBEDDINGS, &[&tenant_id, &number]).await?;
        connection.execute(&SET_EMBEDDING_MODEL, &[&tenant_id, &number, &embedding_model]).await?;
    }
    Ok(number)
}

async fn put(connection: &Connection, target: Target<'_>, documents: &[NewDocument]) -> Result<Imported, Failure> {
    let documents = knowledge::last_of_each(documents);
    let known = known(connection, &target, &column(&documents, |document| document.path.as_str())).await?;
    let mut tally = Tally::default();
    let new: Vec<&NewDocument> =
        documents.into_iter().filter(|document| tally.takes(known.get(&document.path), document)).collect();
    let old: Vec<i64> = new.iter().filter_map(|document| known.get(&document.path)).map(|known| known.number).collect();
    forget(connection, &target, &old).await?;
    add(connection, &target, &new).await?;
    count(connection, &target, tally.documents, tally.chunks).await?;
    Ok(tally.imported)
}

/// Documents that are there, by their paths.
async fn known(
    connection: &Connection,
    target: &Target<'_>,
    paths: &[&str],
) -> Result<HashMap<String, KnownDocument>, Failure> {
    // No path has the character of number 0.
    let paths: Vec<&str> = paths.iter().copied().filter(|path| !path.contains('\0')).collect();
    let params: [Param<'_>; 4] = [&target.tenant_id, &target.collection, &target.source, &paths];
    let rows = connection.rows(&KNOWN_DOCUMENTS, &params).await?;
    let known = rows.iter().map(|row| {
        let known = KnownDocument {
            number: row.try_get(1)?,
            digest: row.try_get(2)?,
            language: row.try_get(3)?,
            attributes: row.try_get(4)?,
            chunks: unsigned(row.try_get(5)?),
        };
        Ok((row.try_get(0)?, known))
    });
    known.collect()
}

async fn add(connection: &Connection, target: &Target<'_>, documents: &[&NewDocument]) -> Result<(), Failure> {
    if documents.is_empty() {
        return Ok(());
    }
    let attributes: Vec<String> =
        column(documents, |document| knowledge::attributes_json(&document.attributes).raw().text().to_owned());
    let params: [Param<'_>; 9] = [
        &target.tenant_id,
        &target.collection,
        &target.source,
        &signed(target.now_ms),
        &column(documents, |document| document.path.as_str()),
        &column(documents, |document| content(&document.language).into_owned()),
        &attributes,
        &column(documents, |document| document.digest.as_slice()),
        &column(documents, |document| signed(document.chunks.len() as u64)),
    ];
    let mut numbers = HashMap::new();
    for row in connection.rows(&ADD_DOCUMENTS, &params).await? {
        numbers.insert(row.try_get::<_, String>(0)?, row.try_get::<_, i64>(1)?);
    }
    let mut pieces = Pieces::default();
    for document in documents {
        let number = numbers.get(&document.path).ok_or_else(|| Failure::broken("a new document has no number"))?;
        let (first, _) = numbers_of(*number);
        for (place, (number, chunk)) in (first..).zip(&document.chunks).enumerate() {
            let indexed = Indexed::of(target.collection, document, place, chunk, Quotes::Single);
            pieces.bytes += chunk.content.len() + indexed.words.len() + indexed.terms.len();
            pieces.numbers.push(number);
            pieces.symbols.push(chunk.symbol.as_deref().map(|symbol| content(symbol).into_owned()));
            pieces.start_lines.push(signed(chunk.start_line));
            pieces.end_lines.push(signed(chunk.end_line));
            pieces.terms.push(indexed.terms);
            pieces.contents.push(content(&chunk.content).into_owned());
            pieces.words.push(indexed.words);
            if let Some(embedding) = &chunk.embedding {
                pieces.embedded.push(number);
                pieces.embeddings.push(knowledge::embedding_bytes(embedding));
                pieces.bytes += 4 * embedding.len();
            }
            if pieces.bytes > BYTES_AT_ONCE {
                std::mem::take(&mut pieces).write(connection, target).await?;
            }
        }
    }
    pieces.write(connection, target).await
}

/// Pieces as columns.
#[derive(Default)]
struct Pieces {
    bytes: usize,
    numbers: Vec<i64>,
    symbols: Vec<Option<String>>,
    start_lines: Vec<i64>,
    end_lines: Vec<i64>,
    terms: Vec<Vec<u8>>,
    contents: Vec<String>,
    words: Vec<String>,
    embedded: Vec<i64>,
    embeddings: Vec<Vec<u8>>,
}

impl Pieces {
    async fn write(self, connection: &Connection, target: &Target<'_>) -> Result<(), Failure> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        let params: [Param<'_>; 7] = [
            &target.tenant_id,
            &self.numbers,
            &self.symbols,
            &self.start_lines,
            &self.end_lines,
            &self.terms,
            &self.contents,
        ];
        connection.execute(&ADD_CHUNKS, &params).await?;
        connection.execute(&ADD_CHUNK_WORDS, &[&target.tenant_id, &self.numbers, &self.words]).await?;
        if !self.embedded.is_empty() {
            let params: [Param<'_>; 4] = [&target.tenant_id, &target.collection, &self.embedded, &self.embeddings];
            connection.execute(&ADD_EMBEDDINGS, &params).await?;
        }
        Ok(())
    }
}

async fn forget(connection: &Connection, target: &Target<'_>, documents: &[i64]) -> Result<(), Failure> {
    if documents.is_empty() {
        return Ok(());
    }
    let (first, last): (Vec<i64>, Vec<i64>) = documents.iter().copied().map(numbers_of).unzip();
    let tenant_id = target.tenant_id;
    for statement in [&FORGET_CHUNK_WORDS, &FORGET_CHUNKS] {
        connection.execute(statement, &[&tenant_id, &first, &last]).await?;
    }
    connection.execute(&FORGET_CHUNK_EMBEDDINGS, &[&tenant_id, &first, &last, &target.collection]).await?;
    connection.execute(&FORGET_DOCUMENTS, &[&tenant_id, &documents]).await.map(drop)
}

async fn count(connection: &Connection, target: &Target<'_>, documents: i64, chunks: i64) -> Result<(), Failure> {
    let params: [Param<'_>; 5] = [&target.tenant_id, &target.collection, &documents, &chunks, &signed(target.now_ms)];
    connection.execute(&COUNT_IN_COLLECTION, &params).await.map(drop)
}

fn collection_from(row: &Row) -> Result<Collection, Failure> {
    Ok(Collection {
        name: row.try_get(0)?,
        documents: unsigned(row.try_get(1)?),
        chunks: unsigned(row.try_get(2)?),
        embedding_model: row.try_get(3)?,
        created_at_ms: unsigned(row.try_get(4)?),
        updated_at_ms: unsigned(row.try_get(5)?),
    })
}

fn record_from(row: &Row) -> Result<DocumentRecord, Failure> {
    Ok(DocumentRecord {
        source: row.try_get(0)?,
        path: row.try_get(1)?,
        digest: rows::digest(row.try_get(2)?)?,
        language: row.try_get(3)?,
        attributes: knowledge::attributes(row.try_get(4)?),
        chunks: unsigned(row.try_get(5)?),
        updated_at_ms: unsigned(row.try_get(6)?),
    })
}
