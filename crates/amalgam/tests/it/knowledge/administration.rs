//! `/admin/knowledge`, and what a running server sees of the command line.

use amalgam_testkit::Client;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::Library;
use crate::support::{assert_refused, stores};

fn caller(library: &Library, key: &str) -> Client {
    Client::new(library.world.amalgam.url()).with_key(key)
}

/// A page without its times.
fn timeless(mut page: Value) -> Value {
    for entry in page["data"].as_array_mut().into_iter().flatten() {
        let entry = entry.as_object_mut().expect("an entry is an object");
        for time in ["created_at", "updated_at"] {
            entry.remove(time);
        }
    }
    page
}

#[tokio::test]
async fn administrators_see_collections_and_documents_page_by_page_and_can_forget_them() {
    for store in stores() {
        let library = Library::on(&store).await;
        let client = caller(&library, "am_a");
        for path in ["a.md", "b.rs", "c.md"] {
            library.write(&format!("repo/{path}"), "The ibis.\n");
        }
        library.import("repo", &["--source", "birds", "--attribute", "team=sky"]);
        let path = library.path("repo");
        library.cli.json(&["knowledge", "import", &path, "--company-id", "1", "--collection", "other"]);

        let page = timeless(client.get("/admin/knowledge?limit=1").await.json());
        let expected = json!({
            "object": "list",
            "data": [{
                "name": "code", "object": "knowledge.collection", "documents": 3, "chunks": 3, "embedding_model": null,
            }],
            "first_id": "code", "last_id": "code", "has_more": true,
        });
        assert_eq!(page, expected, "{}", store.name);
        let page = client.get("/admin/knowledge?limit=1&after=code").await.json();
        assert_eq!((&page["last_id"], &page["has_more"]), (&json!("other"), &json!(false)), "{page}");
        assert_eq!(client.get("/admin/knowledge/code").await.json()["chunks"], 3, "{}", store.name);

        let page = timeless(client.get("/admin/knowledge/code/documents?limit=2").await.json());
        assert_eq!(
            page["data"][1],
            json!({
                "id": "birds:b.rs", "object": "knowledge.document", "source": "birds", "path": "b.rs", "language": "rust",
                "attributes": {"source": "birds", "team": "sky"}, "chunks": 1,
            })
        );
        assert_eq!((&page["last_id"], &page["has_more"]), (&json!("birds:b.rs"), &json!(true)), "{page}");
        let page = client.get("/admin/knowledge/code/documents?limit=2&after=birds:b.rs").await.json();
        assert_eq!((&page["last_id"], &page["has_more"]), (&json!("birds:c.md"), &json!(false)), "{page}");
        let page = client.get("/admin/knowledge/code/documents?source=fish").await.json();
        assert_eq!(page["data"], json!([]), "{}", store.name);
        let wrong = client.get("/admin/knowledge/code/documents?after=nothing").await;
        assert_refused(&wrong, 400, Some("after"), "invalid_value");

        let delete = |path: &'static str| client.request(Method::DELETE, path, &[], Bytes::new());
        library.import("repo/a.md", &["--source", "fish"]);
        let gone = delete("/admin/knowledge/code?source=fish").await.json();
        assert_eq!(
            gone,
            json!({"id": "fish", "object": "knowledge.source.deleted", "deleted": true}),
            "{}",
            store.name
        );
        assert_eq!(client.get("/admin/knowledge/code").await.json()["documents"], 3, "{}: those of birds", store.name);
        for path in ["/admin/knowledge/code?source=fish", "/admin/knowledge/code?source=a%00b"] {
            assert_eq!(delete(path).await.status, 404, "{}: {path}", store.name);
        }
        assert_eq!(client.get("/admin/knowledge/code/documents?source=a%00b").await.status, 404, "{}", store.name);
        let gone = delete("/admin/knowledge/code").await.json();
        assert_eq!(gone, json!({"id": "code", "object": "knowledge.collection.deleted", "deleted": true}));
        for path in ["/admin/knowledge/code", "/admin/knowledge/code/documents"] {
            assert_eq!(client.get(path).await.status, 404, "{}: {path}", store.name);
        }
        assert_eq!(delete("/admin/knowledge/code").await.status, 404, "{}", store.name);
        assert_eq!(
            library.search("ibis", &[])["data"].as_array().map(Vec::len),
            Some(3),
            "{}: the other's",
            store.name
        );
    }
}
