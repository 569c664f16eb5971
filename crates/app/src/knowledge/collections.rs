//! What administrators see of a tenant's knowledge, and how it is forgotten.

use amalgam_core::{
    Store, StoreError,
    store::{Collection, DocumentListing, DocumentRecord, Within},
};
use amalgam_protocol::{Json, Writer};

/// How many documents are forgotten at once: others write in between.
const AT_ONCE: usize = 100;

/// Forgets a collection, or the documents of one source of it, bit by bit.
pub struct Forgetting<'a> {
    collection: &'a str,
    source: Option<&'a str>,
    /// The last document that is gone.
    last: Option<(String, String)>,
    over: bool,
}

impl<'a> Forgetting<'a> {
    /// All of the collection, or with a source what that has brought into it.
    pub fn of(collection: &'a str, source: Option<&'a str>) -> Self {
        Self { collection, source, last: None, over: false }
    }

    /// Forgets some documents, and behind the last of them the collection itself; how many, or nothing once all are gone.
    pub async fn go_on(
        &mut self,
        store: &dyn Store,
        within: Within<'_>,
        now_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        if self.over {
            return Ok(None);
        }
        let after = self.last.as_ref().map(|(source, path)| (source.as_str(), path.as_str()));
        let listing = DocumentListing { source: self.source, after, limit: AT_ONCE };
        let page = store.documents_within(within, self.collection, listing).await?;
        let mut gone = 0;
        for documents in page.chunk_by(|one, other| one.source == other.source) {
            let paths: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
            let Some(first) = documents.first() else { continue };
            gone += store.delete_documents(within, self.collection, &first.source, &paths, now_ms).await?;
        }
        if page.len() < AT_ONCE {
            self.over = true;
            if self.source.is_none() {
                store.delete_collection(within, self.collection).await?;
            }
        }
        self.last = page.into_iter().next_back().map(|document| (document.source, document.path));
        Ok(Some(gone))
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

/// Writes a collection as administrators see it.
pub fn write_collection(writer: &mut Writer, collection: &Collection) {
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

/// Writes a document as administrators see it.
pub fn write_document(writer: &mut Writer, document: &DocumentRecord) {
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
pub fn document_id(document: &DocumentRecord) -> String {
    format!("{}:{}", document.source, document.path)
}
