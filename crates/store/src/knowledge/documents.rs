//! Writes and deletes documents: compares them with the stored ones, and checks that every engine can store them.

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

/// Chunks are written in groups of about this many bytes.
const BYTES_AT_ONCE: usize = 1 << 20;
/// The limit of a document's chunks: a chunk's number is made of the document's number and its place in the document.
const MOST_CHUNKS: usize = 1 << 16;
/// The limit of the length of a name, and of a path with its source, so that they fit into an index.
const MOST_NAME_BYTES: usize = 2000;

/// Locks a collection against other changes and returns its number; `None` if it does not exist.
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

/// Locks a collection against other changes, creates it if it does not exist, and removes embeddings of other models.
/// Returns its number.
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

/// Writes and deletes documents, inside a transaction that has locked the collection.
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

    /// The stored documents, by their paths.
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

/// PostgreSQL cannot store U+0000 in text, so no stored name contains it.
pub(super) fn is_name(text: &str) -> bool {
    !text.contains('\0')
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Refuses input that an engine could not store.
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

/// The facts about an existing document that matter when a new one replaces it.
#[derive(Debug, Clone)]
pub(super) struct KnownDocument {
    pub(super) number: i64,
    digest: Vec<u8>,
    language: String,
    attributes: String,
    pub(super) chunks: u64,
}

impl KnownDocument {
    /// Whether the document would be unchanged. One with embeddings counts as changed: the stored ones are not
    /// compared.
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
    /// The changes of the numbers of documents and chunks.
    documents: i64,
    chunks: i64,
}

impl ImportTally {
    /// Counts a document. Returns whether it has to be written.
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

/// The last of the documents with the same path, sorted by path.
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
