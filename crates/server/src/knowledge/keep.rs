//! What administrators see of a tenant's knowledge, and how it is forgotten.

use amalgam_core::{
    Store, StoreError,
    store::{Collection, DocumentListing, DocumentRecord, Within},
};
use amalgam_protocol::{Json, Writer};

/// How many documents are forgotten at once: others write in between.
const AT_ONCE: usize = 100;

/// Forgets a collection, or the documents of one source of it, bit by bit; `told` hears how many documents are gone. Whether there
/// was such a collection.
pub async fn forget_knowledge(
    store: &dyn Store,
    within: Within<'_>,
    collection: &str,
    source: Option<&str>,
    now_ms: u64,
    mut told: impl FnMut(u64),
) -> Result<bool, StoreError> {
    if !store.collections_within(within).await?.iter().any(|known| known.name == collection) {
        return Ok(false);
    }
    let mut last: Option<(String, String)> = None;
    loop {
        let after = last.as_ref().map(|(source, path)| (source.as_str(), path.as_str()));
        let listing = DocumentListing { source, after, limit: AT_ONCE };
        let page = store.documents_within(within, collection, listing).await?;
        for documents in page.chunk_by(|one, other| one.source == other.source) {
            let paths: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
            let Some(first) = documents.first() else { continue };
            told(store.delete_documents(within, collection, &first.source, &paths, now_ms).await?);
        }
        match page.into_iter().next_back() {
            Some(document) => last = Some((document.source, document.path)),
            None => break,
        }
    }
    match source {
        Some(_) => Ok(true),
        None => store.delete_collection(within, collection).await,
    }
}

/// A collection as administrators see it: a JSON object.
pub fn show_collection(collection: &Collection) -> Json {
    let mut writer = Writer::with_capacity(256);
    write_collection(&mut writer, collection);
    Json::from_writer(writer)
}

/// A document as administrators see it: a JSON object.
pub fn show_document(document: &DocumentRecord) -> Json {
    let mut writer = Writer::with_capacity(512);
    write_document(&mut writer, document);
    Json::from_writer(writer)
}

pub(crate) fn write_collection(writer: &mut Writer, collection: &Collection) {
    writer.object(|writer| {
        writer.key("name").string(&collection.name);
        writer.key("object").string("knowledge.collection");
        writer.key("documents").number(collection.documents);
        writer.key("chunks").number(collection.chunks);
        match &collection.embedding_model {
            Some(model) => writer.key("embedding_model").string(model),
            None => writer.key("embedding_model").null(),
        }
        writer.key("created_at").number(collection.created_at_ms / 1000);
        writer.key("updated_at").number(collection.updated_at_ms / 1000);
    });
}

pub(crate) fn write_document(writer: &mut Writer, document: &DocumentRecord) {
    writer.object(|writer| {
        writer.key("id").string(&document_id(document));
        writer.key("object").string("knowledge.document");
        writer.key("source").string(&document.source);
        writer.key("path").string(&document.path);
        writer.key("language").string(&document.language);
        writer.key("attributes").object(|writer| {
            for (name, value) in &document.attributes {
                writer.key_text(name).string(value);
            }
        });
        writer.key("chunks").number(document.chunks);
        writer.key("updated_at").number(document.updated_at_ms / 1000);
    });
}

/// What a document is known by in lists. No source has a colon in its name.
pub(crate) fn document_id(document: &DocumentRecord) -> String {
    format!("{}:{}", document.source, document.path)
}
