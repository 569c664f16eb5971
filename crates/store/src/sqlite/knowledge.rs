//! Documents in pieces, and how they are found.

use std::collections::HashMap;

use amalgam_core::{
    Scope,
    store::{
        Collection, DocumentListing, DocumentRecord, FoundChunk, Imported, KnowledgeQuery, KnowledgeStore, NewDocument,
        Stored, Within,
    },
};
use amalgam_protocol::{Json, Writer};
use rusqlite::Row;

use super::{
    Sqlite,
    agents::Whose,
    failure::Failure,
    query::{Database, Tenant, bytes, int, most, text, uint},
    sql,
};
use crate::{
    assistant::content,
    knowledge::{
        self, Candidate, Dialect, DocumentFacts, Indexed, KnownDocument, OwnedQuery, Picked, Question, Quotes, Search,
        SearchedCollection, Tally, numbers_of,
    },
    rows,
};

/// So many documents of a collection that is forgotten are looked up at once.
const AT_ONCE: i64 = 1000;

impl KnowledgeStore for Sqlite {
    fn collections<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Collection>> {
        self.collections_of(Tenant::of_caller(scope))
    }

    fn collections_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Collection>> {
        self.collections_of(Tenant::within(within))
    }

    fn documents_within<'a>(
        &'a self,
        within: Within<'a>,
        collection: &'a str,
        listing: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        let (tenant, collection) = (Tenant::within(within), collection.to_owned());
        let source = listing.source.map(str::to_owned);
        let after = listing.after.map(|(source, path)| (source.to_owned(), path.to_owned())).unwrap_or_default();
        self.read(move |transaction| {
            let database = transaction.database;
            let Some((number, _)) = get(database, tenant, &collection)? else { return Ok(Vec::new()) };
            let limit = most(listing.limit);
            let found = match &source {
                None => database.tenant(tenant, sql::DOCUMENTS, &[&number, &after.0, &after.1, &limit])?,
                Some(source) if *source < after.0 => return Ok(Vec::new()),
                Some(source) => {
                    // Behind an earlier source are all documents of this one.
                    let path = if *source == after.0 { after.1.as_str() } else { "" };
                    database.tenant(tenant, sql::DOCUMENTS_OF_SOURCE, &[&number, source, &path, &limit])?
                }
            };
            found.all(record)
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
    ) -> Stored<'a, Option<Imported>> {
        if let Err(error) = knowledge::check(collection, source, &documents) {
            return Box::pin(async { Err(error) });
        }
        let (whose, collection, source) = (Whose::of(within), collection.to_owned(), source.to_owned());
        let embedding_model = embedding_model.map(str::to_owned);
        self.change(move |transaction| {
            let (database, tenant) = (transaction.database, whose.tenant);
            if !whose.exists(database)? {
                return Ok(None);
            }
            let into = Target {
                collection: made(database, tenant, &collection, embedding_model.as_deref(), now_ms)?,
                source: &source,
                now_ms,
            };
            put(database, tenant, &into, &documents).map(Some)
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
        let (tenant, collection, source) = (Tenant::within(within), collection.to_owned(), source.to_owned());
        let paths = paths.to_vec();
        self.change(move |transaction| {
            let database = transaction.database;
            let Some((number, _)) = get(database, tenant, &collection)? else { return Ok(0) };
            let (mut documents, mut chunks) = (0, 0);
            for path in &paths {
                if let Some(known) = known(database, tenant, number, &source, path)? {
                    forget(database, tenant, number, known.number)?;
                    documents += 1;
                    chunks += int(known.chunks)?;
                }
            }
            if documents > 0 {
                count(database, tenant, number, -documents, -chunks, now_ms)?;
            }
            Ok(documents.cast_unsigned())
        })
    }

    fn delete_collection<'a>(&'a self, within: Within<'a>, collection: &'a str) -> Stored<'a, bool> {
        let (tenant, collection) = (Tenant::within(within), collection.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            let Some((number, _)) = get(database, tenant, &collection)? else { return Ok(false) };
            loop {
                let some = database
                    .tenant(tenant, sql::SOME_DOCUMENTS, &[&number, &AT_ONCE])?
                    .all(|row| Ok(row.get::<_, i64>(0)?))?;
                if some.is_empty() {
                    break;
                }
                some.into_iter().try_for_each(|document| forget(database, tenant, number, document))?;
            }
            database.tenant(tenant, sql::FORGET_COLLECTION, &[&number])?.run()?;
            Ok(true)
        })
    }

    fn search_knowledge<'a>(&'a self, scope: &'a Scope, query: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        let (tenant, query) = (Tenant::of_caller(scope), OwnedQuery::of(&query));
        self.read(move |transaction| find(transaction.database, tenant, &query.borrowed()))
    }
}

impl Sqlite {
    fn collections_of<'a>(&self, tenant: Tenant) -> Stored<'a, Vec<Collection>> {
        self.read(move |transaction| {
            transaction.database.tenant(tenant, sql::COLLECTIONS, &[])?.all(|row| {
                Ok(Collection {
                    name: row.get(0)?,
                    documents: uint(row, 1)?,
                    chunks: uint(row, 2)?,
                    embedding_model: row.get(3)?,
                    created_at_ms: uint(row, 4)?,
                    updated_at_ms: uint(row, 5)?,
                })
            })
        })
    }
}

/// The number of a collection, and the model of its embeddings.
fn get(database: Database<'_>, tenant: Tenant, name: &str) -> Result<Option<(i64, Option<String>)>, Failure> {
    database.tenant(tenant, sql::COLLECTION, &[&name])?.first(|row| Ok((row.get(0)?, row.get(1)?)))
}

/// The number of a collection, which is there from now on and has embeddings of this model and no other.
fn made(
    database: Database<'_>,
    tenant: Tenant,
    name: &str,
    embedding_model: Option<&str>,
    now_ms: u64,
) -> Result<i64, Failure> {
    match get(database, tenant, name)? {
        Some((number, model)) if model.as_deref() == embedding_model => Ok(number),
        Some((number, _)) => {
            database.tenant(tenant, sql::FORGET_EMBEDDINGS, &[&number])?.run()?;
            database.tenant(tenant, sql::SET_EMBEDDING_MODEL, &[&number, &embedding_model])?.run()?;
            Ok(number)
        }
        None => {
            let params: [&dyn rusqlite::ToSql; 3] = [&name, &embedding_model, &int(now_ms)?];
            let number = database.tenant(tenant, sql::ADD_COLLECTION, &params)?.first(|row| Ok(row.get(0)?))?;
            number.ok_or_else(|| Failure::Broken("a new collection has no number".into()))
        }
    }
}

/// Where documents go.
struct Target<'a> {
    collection: i64,
    source: &'a str,
    now_ms: u64,
}

fn put(
    database: Database<'_>,
    tenant: Tenant,
    into: &Target<'_>,
    documents: &[NewDocument],
) -> Result<Imported, Failure> {
    let mut tally = Tally::default();
    for document in knowledge::last_of_each(documents) {
        let known = known(database, tenant, into.collection, into.source, &document.path)?;
        if tally.takes(known.as_ref(), document) {
            if let Some(known) = known {
                forget(database, tenant, into.collection, known.number)?;
            }
            add(database, tenant, into, document)?;
        }
    }
    count(database, tenant, into.collection, tally.documents, tally.chunks, into.now_ms)?;
    Ok(tally.imported)
}

fn known(
    database: Database<'_>,
    tenant: Tenant,
    collection: i64,
    source: &str,
    path: &str,
) -> Result<Option<KnownDocument>, Failure> {
    database.tenant(tenant, sql::KNOWN_DOCUMENT, &[&collection, &source, &path])?.first(|row| {
        Ok(KnownDocument {
            number: row.get(0)?,
            digest: row.get(1)?,
            language: row.get(2)?,
            attributes: row.get(3)?,
            chunks: uint(row, 4)?,
        })
    })
}

fn add(database: Database<'_>, tenant: Tenant, into: &Target<'_>, document: &NewDocument) -> Result<(), Failure> {
    let number: Option<i64> = database
        .tenant(
            tenant,
            sql::ADD_DOCUMENT,
            &[
                &into.collection,
                &into.source,
                &document.path,
                &document.language,
                &knowledge::attributes_json(&document.attributes).raw().text(),
                &document.digest,
                &most(document.chunks.len()),
                &int(into.now_ms)?,
            ],
        )?
        .first(|row| Ok(row.get(0)?))?;
    let (first, _) = numbers_of(number.ok_or_else(|| Failure::Broken("a new document has no number".into()))?);
    for (place, (number, chunk)) in (first..).zip(&document.chunks).enumerate() {
        let indexed = Indexed::of(into.collection, document, place, chunk, Quotes::Without);
        let symbol = chunk.symbol.as_deref().map(content);
        database
            .tenant(
                tenant,
                sql::ADD_CHUNK,
                &[
                    &number,
                    &symbol.as_deref(),
                    &int(chunk.start_line)?,
                    &int(chunk.end_line)?,
                    &indexed.terms,
                    &&*content(&chunk.content),
                ],
            )?
            .run()?;
        database.tenant(tenant, sql::ADD_CHUNK_WORDS, &[&number, &indexed.words])?.run()?;
        if let Some(embedding) = &chunk.embedding {
            let embedding = knowledge::embedding_bytes(embedding);
            database.tenant(tenant, sql::ADD_EMBEDDING, &[&into.collection, &number, &embedding])?.run()?;
        }
    }
    Ok(())
}

fn forget(database: Database<'_>, tenant: Tenant, collection: i64, document: i64) -> Result<(), Failure> {
    let (first, last) = numbers_of(document);
    // Words first: they are found by their pieces.
    database.tenant(tenant, sql::FORGET_CHUNK_WORDS, &[&first, &last])?.run()?;
    database.tenant(tenant, sql::FORGET_CHUNKS, &[&first, &last])?.run()?;
    database.tenant(tenant, sql::FORGET_CHUNK_EMBEDDINGS, &[&collection, &first, &last])?.run()?;
    database.tenant(tenant, sql::FORGET_DOCUMENT, &[&document])?.run()?;
    Ok(())
}

fn count(
    database: Database<'_>,
    tenant: Tenant,
    collection: i64,
    documents: i64,
    chunks: i64,
    now_ms: u64,
) -> Result<(), Failure> {
    let params: [&dyn rusqlite::ToSql; 4] = [&collection, &documents, &chunks, &int(now_ms)?];
    database.tenant(tenant, sql::COUNT_IN_COLLECTION, &params)?.run().map(drop)
}

fn find(database: Database<'_>, tenant: Tenant, query: &KnowledgeQuery<'_>) -> Result<Vec<FoundChunk>, Failure> {
    let collections = database
        .tenant(tenant, sql::SEARCHED_COLLECTIONS, &[])?
        .all(|row| Ok(SearchedCollection { number: row.get(0)?, name: row.get(1)?, chunks: uint(row, 2)? }))?;
    let Some(mut search) = Search::new(Dialect::Fts5, query, &collections) else { return Ok(Vec::new()) };
    let count = |question: &Question| {
        let params: [&dyn rusqlite::ToSql; 2] = [&question.text, &int(question.most)?];
        let count = database.tenant(tenant, sql::COUNT_WORD, &params)?.first(|row| uint(row, 0))?;
        Ok(count.unwrap_or_default())
    };
    let read = |question: &Question| {
        let params: [&dyn rusqlite::ToSql; 2] = [&question.text, &int(question.most)?];
        database.tenant(tenant, sql::CHUNKS_WITH_WORD, &params)?.all(|row| Ok(row.get(0)?))
    };
    let counts = search.samples().iter().map(count).collect::<Result<Vec<u64>, Failure>>()?;
    let counts = search.strengths(&counts).iter().map(count).collect::<Result<Vec<u64>, Failure>>()?;
    let lists = search.reads(&counts).iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let lists = search.more(&lists).iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    search.take(&lists);
    search.order();
    loop {
        let documents = search.next_documents();
        if documents.is_empty() {
            break;
        }
        let facts = database.tenant(tenant, sql::DOCUMENT_FACTS, &[&array(&documents).raw().text()])?;
        search.judge(&documents, &facts.all(|row| facts_at(row, 0))?);
    }
    let wanted = array(search.candidates());
    let candidates = database.tenant(tenant, sql::CANDIDATES, &[&wanted.raw().text()])?.all(|row| {
        Ok(Candidate {
            number: row.get(0)?,
            start_line: uint(row, 1)?,
            terms: bytes(row, 2)?.to_vec(),
            document: facts_at(row, 3)?,
        })
    })?;
    let picked = search.pick(candidates);
    let wanted = array(&picked.iter().map(|(_, candidate)| candidate.number).collect::<Vec<_>>());
    let mut made_of = database.tenant(tenant, sql::PICKED, &[&wanted.raw().text()])?.all(|row| {
        let (number, symbol, end_line) = (row.get(0)?, row.get(1)?, uint(row, 2)?);
        Ok(Picked { number, symbol, end_line, content: row.get(3)?, embedding: None })
    })?;
    if query.embeddings {
        let collections: HashMap<i64, i64> =
            picked.iter().map(|(_, candidate)| (candidate.number, candidate.document.collection)).collect();
        for picked in &mut made_of {
            let embedding =
                database.tenant(tenant, sql::EMBEDDING, &[&collections.get(&picked.number), &picked.number])?;
            picked.embedding = embedding.first(|row| Ok(knowledge::embedding(bytes(row, 0)?)))?;
        }
    }
    Ok(search.found(picked, made_of))
}

/// Numbers as an array.
fn array(numbers: &[i64]) -> Json {
    let mut writer = Writer::default();
    // They begin at 1.
    writer.array(|writer| numbers.iter().for_each(|number| writer.number(number.cast_unsigned())));
    Json::from_writer(writer)
}

fn facts_at(row: &Row<'_>, column: usize) -> Result<DocumentFacts, Failure> {
    Ok(DocumentFacts {
        number: row.get(column)?,
        collection: row.get(column + 1)?,
        path: row.get(column + 2)?,
        language: row.get(column + 3)?,
        attributes: knowledge::attributes(text(row, column + 4)?),
    })
}

fn record(row: &Row<'_>) -> Result<DocumentRecord, Failure> {
    Ok(DocumentRecord {
        source: row.get(0)?,
        path: row.get(1)?,
        digest: rows::digest(bytes(row, 2)?)?,
        language: row.get(3)?,
        attributes: knowledge::attributes(text(row, 4)?),
        chunks: uint(row, 5)?,
        updated_at_ms: uint(row, 6)?,
    })
}
