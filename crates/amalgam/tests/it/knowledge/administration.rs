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

const BOUNDARY: &str = "multipart/form-data; boundary=b";

/// A form with these fields: what follows `form-data;`, and the content.
fn form(fields: &[(&str, &str)]) -> Bytes {
    let part = |(disposition, content): &(&str, &str)| {
        format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
    };
    (fields.iter().map(part).collect::<String>() + "--b--\r\n").into()
}

#[tokio::test]
async fn a_document_is_uploaded_found_with_the_reasons_and_deleted() {
    for store in stores() {
        let library = Library::on(&store).await;
        let client = caller(&library, "am_a");
        let file = ("name=file; filename=\"ibis.md\"", "# The ibis\n\nIt evaluates the mud with its beak.\n");
        let upload = async |fields: &[(&str, &str)]| {
            client.post_raw("/admin/knowledge/birds/documents", BOUNDARY, form(fields)).await
        };
        let made =
            upload(&[file, ("name=path", "zoo/ibis.md"), ("name=attributes", r#"{"team": "sky", "repo": "zoo"}"#)])
                .await;
        assert_eq!(made.status, 201, "{}: {}", store.name, made.text());
        let mut made = made.json();
        made["updated_at"].take();
        let expected = json!({
            "id": "upload:zoo/ibis.md", "object": "knowledge.document", "source": "upload", "path": "zoo/ibis.md",
            "language": "markdown", "attributes": {"source": "upload", "repo": "zoo", "team": "sky"}, "chunks": 1,
            "updated_at": null,
        });
        assert_eq!(made, expected, "{}", store.name);
        let listed = client.get("/admin/knowledge/birds/documents").await.json();
        assert_eq!(listed["data"][0]["id"], "upload:zoo/ibis.md", "{}", store.name);
        let again =
            upload(&[file, ("name=path", "zoo/ibis.md"), ("name=attributes", r#"{"team": "sky", "repo": "zoo"}"#)])
                .await;
        assert_eq!(again.status, 200, "{}: it was there", store.name);
        assert_eq!(upload(&[file, ("name=source", "hand")]).await.status, 201, "{}", store.name);

        let asked = json!({"query": "which ibis is evaluating?", "limit": 1});
        let found = client.post_json("/admin/knowledge/_search", &asked).await.json();
        let chunk = &found["data"][0];
        assert_eq!(chunk["matched_words"], json!(["ibis", "evalu"]), "{}: {found}", store.name);
        assert_eq!((&chunk["similarity"], &chunk["score"]), (&Value::Null, &chunk["word_score"]), "{}", store.name);
        assert_eq!((&chunk["path"], found["data"].as_array().map(Vec::len)), (&json!("ibis.md"), Some(1)), "{found}");
        let asked = json!({"query": "ibis", "collections": ["birds", "fish"]});
        let found = client.post_json("/admin/knowledge/_search", &asked).await.json();
        assert_eq!(found["warnings"], json!(["There is no knowledge collection 'fish'."]), "{}", store.name);
        let command = library.search("ibis", &[]);
        assert_eq!(command["data"], found["data"], "{}: the command says the same", store.name);
        let others = caller(&library, "am_b").post_json("/admin/knowledge/_search", &json!({"query": "ibis"})).await;
        assert_eq!(others.json()["data"], json!([]), "{}", store.name);

        for (fields, status, param) in [
            (vec![("name=path", "a.md")], 400, "file"),
            (vec![("name=file; filename=a.md", " \n")], 400, "file"),
            (vec![("name=file; filename=a.md", "a\u{0}b")], 400, "file"),
            (vec![file, ("name=path", "../a.md")], 400, "path"),
            (vec![file, ("name=source", "a b")], 400, "source"),
            (vec![file, ("name=attributes", "{\"path\": \"x\"}")], 400, "attributes"),
            (vec![file, ("name=attributes", "{\"team\": 1}")], 400, "attributes"),
            (vec![file, ("name=tenant", "2")], 400, "tenant"),
        ] {
            let refused = upload(&fields).await;
            let error = &refused.json()["error"];
            assert_eq!(
                (refused.status.as_u16(), error["param"].as_str()),
                (status, Some(param)),
                "{fields:?}: {error}"
            );
        }
        let large = "a ".repeat(1024 * 1024 + 1);
        assert_eq!(upload(&[("name=file; filename=a.md", &large)]).await.status, 413, "{}", store.name);
        let wrong = client.post_raw("/admin/knowledge/_birds/documents", BOUNDARY, form(&[file])).await;
        assert_refused(&wrong, 400, Some("collection"), "invalid_value");
        let json = client.post_json("/admin/knowledge/birds/documents", &json!({})).await;
        assert_eq!(json.status, 415, "{}", store.name);

        let delete = async |client: &Client, id: &str| {
            let path = format!("/admin/knowledge/birds/documents/{id}");
            client.request(Method::DELETE, &path, &[], Bytes::new()).await
        };
        assert_eq!(delete(&caller(&library, "am_b"), "upload:zoo/ibis.md").await.status, 404, "{}", store.name);
        let gone = delete(&client, "upload:zoo/ibis.md").await.json();
        let expected = json!({"id": "upload:zoo/ibis.md", "object": "knowledge.document.deleted", "deleted": true});
        assert_eq!(gone, expected, "{}", store.name);
        for id in ["upload:zoo/ibis.md", "upload:a%00b", "nothing", "a%20b:c"] {
            assert_eq!(delete(&client, id).await.status, 404, "{}: {id}", store.name);
        }
        assert_eq!(client.get("/admin/knowledge/birds").await.json()["documents"], 1, "{}", store.name);
    }
}
