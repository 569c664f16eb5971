//! Writes and deletes documents: what is new, what stays, and what no engine can store.

use std::collections::{BTreeMap, HashMap};

use amalgam_core::{
    StoreError,
    store::{ImportCounts, NewChunk, NewDocument},
};

use super::{
    ADD_COLLECTION, COUNT_IN_COLLECTION, FORGET_EMBEDDINGS, SET_EMBEDDING_MODEL,
    columns::{attributes_json, embedding_bytes},
    index::{IndexedChunk, numbers_of},
    question::IndexSyntax,
};
use crate::{
    engine::{SqlConnection, TenantKey},
    rows::storable,
    values::values,
};

/// Chunks with about so many bytes are written at once.
const BYTES_AT_ONCE: usize = 1 << 20;
/// A document has fewer chunks: its number and their places share a number.
const MOST_CHUNKS: usize = 1 << 16;
/// An index takes no more of a name or of a path with its source.
const MOST_NAME_BYTES: usize = 2000;

/// The number of a collection, which is locked against other changes; nothing if there is none.
pub(super) async fn held<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    name: &str,
) -> Result<Option<i64>, C::Failure> {
    match is_name(name) {
        true => {
            connection.tenant(tenant, connection.sql().hold_collection, values![name]).first(|row| row.get(0)).await
        }
        false => Ok(None),
    }
}

/// The number of a collection, which exists from now on, is locked against other changes, and has embeddings of this
/// model and no other.
pub(super) async fn hold<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    name: &str,
    embedding_model: Option<&str>,
    now_ms: u64,
) -> Result<i64, C::Failure> {
    let hold = async || {
        let held = connection.tenant(tenant, connection.sql().hold_collection, values![name]);
        held.first(|row| Ok((row.get::<i64>(0)?, row.optional::<String>(1)?))).await
    };
    let mut held = hold().await?;
    if held.is_none() {
        connection.tenant(tenant, ADD_COLLECTION, values![name, embedding_model, now_ms]).run().await?;
        held = hold().await?;
    }
    let Some((number, model)) = held else {
        return Err(connection.contended("another request deleted the collection at once"));
    };
    if model.as_deref() != embedding_model {
        connection.tenant(tenant, FORGET_EMBEDDINGS, values![number]).run().await?;
        connection.tenant(tenant, SET_EMBEDDING_MODEL, values![number, embedding_model]).run().await?;
    }
    Ok(number)
}

/// Where documents are written or deleted: inside a transaction that holds the collection.
pub(super) struct DocumentWriter<'a, C> {
    pub(super) connection: &'a C,
    pub(super) tenant: TenantKey,
    pub(super) collection: i64,
    pub(super) source: &'a str,
    pub(super) now_ms: u64,
}

impl<'a, C: SqlConnection> DocumentWriter<'a, C> {
    pub(super) async fn put(
        &self,
        syntax: IndexSyntax,
        documents: &'a [NewDocument],
    ) -> Result<ImportCounts, C::Failure> {
        let documents = last_of_each(documents);
        let known = self.known(documents.iter().map(|document| document.path.as_str())).await?;
        let mut tally = ImportTally::default();
        let new: Vec<&NewDocument> =
            documents.into_iter().filter(|document| tally.takes(known.get(&document.path), document)).collect();
        self.forget(new.iter().filter_map(|document| known.get(&document.path)).map(|known| known.number).collect())
            .await?;
        self.add(syntax, &new).await?;
        self.count(tally.documents, tally.chunks).await?;
        Ok(tally.imported)
    }

    /// Documents that exist, by their paths.
    pub(super) async fn known(
        &self,
        paths: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, KnownDocument>, C::Failure> {
        let paths: Vec<&str> = paths.filter(|path| is_name(path)).collect();
        let values = values![self.collection, self.source, paths];
        let known = self.connection.tenant(self.tenant, self.connection.sql().known_documents, values).all(|row| {
            let known = KnownDocument {
                number: row.get(1)?,
                digest: row.get(2)?,
                language: row.get(3)?,
                attributes: row.get(4)?,
                chunks: row.get(5)?,
            };
            Ok((row.get::<String>(0)?, known))
        });
        Ok(known.await?.into_iter().collect())
    }

    async fn add(&self, syntax: IndexSyntax, documents: &[&NewDocument]) -> Result<(), C::Failure> {
        let rows = documents.iter().map(|document| {
            values![
                &document.path,
                storable(&document.language),
                attributes_json(&document.attributes),
                &document.digest,
                document.chunks.len(),
            ]
        });
        let values = values![self.collection, self.source, self.now_ms];
        let added = self.connection.tenant(self.tenant, self.connection.sql().add_document, values).for_each(rows);
        let numbers = added.all(|row| Ok((row.get::<String>(0)?, row.get::<i64>(1)?))).await?;
        let numbers: HashMap<String, i64> = numbers.into_iter().collect();
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        for document in documents {
            let Some(number) = numbers.get(&document.path) else {
                return Err(StoreError::Broken("a new document has no number".to_owned()).into());
            };
            let (first, _) = numbers_of(*number);
            for (place, (number, chunk)) in (first..).zip(&document.chunks).enumerate() {
                let indexed = IndexedChunk::of(self.collection, document, place, chunk, syntax);
                bytes += chunk.content.len() + indexed.words.len() + indexed.terms.len();
                bytes += chunk.embedding.as_ref().map_or(0, |embedding| 4 * embedding.len());
                chunks.push((number, chunk, indexed));
                if bytes > BYTES_AT_ONCE {
                    self.add_chunks(&chunks).await?;
                    (chunks, bytes) = (Vec::new(), 0);
                }
            }
        }
        self.add_chunks(&chunks).await
    }

    async fn add_chunks(&self, chunks: &[(i64, &NewChunk, IndexedChunk)]) -> Result<(), C::Failure> {
        let (connection, tenant) = (self.connection, self.tenant);
        let rows = chunks.iter().map(|(number, chunk, indexed)| {
            let symbol = chunk.symbol.as_deref().map(storable);
            values![*number, symbol, chunk.start_line, chunk.end_line, &indexed.terms[..], storable(&chunk.content),]
        });
        connection.tenant(tenant, connection.sql().add_chunk, []).for_each(rows).run().await?;
        let words = chunks.iter().map(|(number, _, indexed)| values![*number, &indexed.words]);
        connection.tenant(tenant, connection.sql().add_chunk_words, []).for_each(words).run().await?;
        let embeddings = chunks
            .iter()
            .filter_map(|(number, chunk, _)| Some(values![*number, embedding_bytes(chunk.embedding.as_ref()?)]));
        connection
            .tenant(tenant, connection.sql().add_embedding, values![self.collection])
            .for_each(embeddings)
            .run()
            .await?;
        Ok(())
    }

    pub(super) async fn forget(&self, documents: Vec<i64>) -> Result<(), C::Failure> {
        let (connection, tenant) = (self.connection, self.tenant);
        let ranges = || documents.iter().copied().map(numbers_of).map(|(first, last)| values![first, last]);
        connection.tenant(tenant, connection.sql().forget_chunk_words, []).for_each(ranges()).run().await?;
        connection.tenant(tenant, connection.sql().forget_chunks, []).for_each(ranges()).run().await?;
        let embeddings = connection.tenant(tenant, connection.sql().forget_chunk_embeddings, values![self.collection]);
        embeddings.for_each(ranges()).run().await?;
        connection.tenant(tenant, connection.sql().forget_documents, values![documents]).run().await.map(drop)
    }

    pub(super) async fn count(&self, documents: i64, chunks: i64) -> Result<(), C::Failure> {
        let values = values![self.collection, documents, chunks, self.now_ms];
        self.connection.tenant(self.tenant, COUNT_IN_COLLECTION, values).run().await.map(drop)
    }
}

/// PostgreSQL has no text with the character of number 0, so nothing has such a name.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains('\0')
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Refuses what no engine can keep.
pub(super) fn check(collection: &str, source: &str, documents: &[NewDocument]) -> Result<(), StoreError> {
    let broken = |what: &str| Err(StoreError::Broken(what.to_owned()));
    let odd = |text: &str| !is_name(text) || text.len() > MOST_NAME_BYTES;
    if odd(collection) || odd(source) {
        return broken("the name of a collection or a source is too long or no text");
    }
    for document in documents {
        if odd(&document.path) || document.path.len() + source.len() > MOST_NAME_BYTES {
            return broken("the path of a document is too long or no text");
        }
        if document.chunks.len() > MOST_CHUNKS {
            return broken("a document has too many chunks");
        }
    }
    Ok(())
}

/// A document that exists, as far as it matters for one that is to take its place.
#[derive(Debug, Clone)]
pub(super) struct KnownDocument {
    pub(super) number: i64,
    digest: Vec<u8>,
    language: String,
    attributes: String,
    pub(super) chunks: u64,
}

impl KnownDocument {
    /// Whether a document is the same in every way. One with embeddings is not: it is not known which ones are there.
    fn is(&self, document: &NewDocument) -> bool {
        self.digest == document.digest
            && self.language == document.language
            && self.attributes == attributes_json(&document.attributes).raw().text()
            && document.chunks.iter().all(|chunk| chunk.embedding.is_none())
    }
}

/// The counts of an import.
#[derive(Debug, Default)]
struct ImportTally {
    imported: ImportCounts,
    /// How many more documents and chunks there are.
    documents: i64,
    chunks: i64,
}

impl ImportTally {
    /// Counts a document; whether it has to be written.
    fn takes(&mut self, known: Option<&KnownDocument>, document: &NewDocument) -> bool {
        match known {
            Some(known) if known.is(document) => {
                self.imported.unchanged += 1;
                return false;
            }
            Some(known) => {
                self.imported.updated += 1;
                self.chunks -= signed(known.chunks);
            }
            None => {
                self.imported.created += 1;
                self.documents += 1;
            }
        }
        self.chunks += signed(document.chunks.len() as u64);
        true
    }
}

/// Of documents with the same path the last one, in the order of paths.
fn last_of_each(documents: &[NewDocument]) -> Vec<&NewDocument> {
    let mut last: BTreeMap<&str, &NewDocument> = BTreeMap::new();
    for document in documents {
        last.insert(&document.path, document);
    }
    last.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_engine_can_store_is_refused() {
        let document = |path: &str| NewDocument {
            path: path.to_owned(),
            digest: [0; 32],
            language: "rust".into(),
            attributes: Vec::new(),
            chunks: Vec::new(),
        };
        assert!(check("code", "here", &[document("a/b.rs")]).is_ok());
        let long = "x".repeat(MOST_NAME_BYTES);
        assert!(check("code", "here", &[document(&long)]).is_err());
        assert!(check("code", "he\0re", &[]).is_err());
        assert!(check("code", "here", &[document("a\0b")]).is_err());
        assert!(check(&[long.as_str(), "x"].concat(), "here", &[]).is_err());
    }
}
