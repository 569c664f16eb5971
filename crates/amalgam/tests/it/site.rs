//! What the server says about itself without a key: the home page, the documentation, `llms.txt`.

use amalgam_testkit::{Amalgam, Client, Setup};
use bytes::Bytes;
use http::Method;
use serde_json::json;

use crate::support::{BINARY, document, error_of};

/// A server that needs a key, and a client without one.
async fn locked(extra: &str) -> (Amalgam, Client) {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key("am_site-key-0123456789").extra(extra)).await;
    let client = Client::new(amalgam.url());
    (amalgam, client)
}

#[tokio::test]
async fn the_root_tells_programs_what_the_server_is_and_where_its_documents_are() {
    let (_amalgam, client) = locked("").await;
    let answer = client.get("/").await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, Some("application/json")));
    let about = answer.json();
    assert_eq!(about["name"], "amalgam");
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    for name in ["docs", "llms", "openapi", "health", "ready"] {
        let path = about[name].as_str().expect("each document has a path");
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    let head = client.request(Method::HEAD, "/", &[], Bytes::new()).await;
    assert_eq!((head.status.as_u16(), head.body.is_empty()), (200, true));
}

#[tokio::test]
async fn the_root_gives_a_browser_a_page_that_loads_nothing_else() {
    let (_amalgam, client) = locked("[server]\npublic_url = \"https://models.example.com\"").await;
    let browser = client.clone().with_header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    for path in ["/", "/docs", "/docs/"] {
        let page = browser.get(path).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
        let policy = page.header("content-security-policy").expect("a page has a policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("vary"), Some("accept"));
        let text = page.text();
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        for loading in ["<script", "src=", "@import", "url(", "onclick", "style=\""] {
            assert!(!text.contains(loading), "{path} contains {loading}");
        }
        // Links are relative, so that they also work below a path of a proxy.
        for link in text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(link == "data:," || !link.contains(':') && !link.starts_with('/'), "{path}: {link}");
        }
    }
    assert!(browser.get("/").await.text().contains("curl -s https://models.example.com/v1/responses"));
}

#[tokio::test]
async fn the_documentation_is_served_as_it_is_in_the_repository() {
    let (_amalgam, client) = locked("").await;
    for name in ["clients.md", "configuration.md", "operations.md", "decisions/0002-openapi-document.md"] {
        let page = client.get(&format!("/docs/{name}")).await;
        assert_eq!(page.header("content-type"), Some("text/markdown; charset=utf-8"), "{name}");
        assert_eq!(page.text(), document(&format!("docs/{name}")), "{name}");
        let tag = page.header("etag").expect("a page has a tag").to_owned();
        let again = client.clone().with_header("if-none-match", &tag).get(&format!("/docs/{name}")).await;
        assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{name}");
    }
    let published = client.get("/docs/openapi.json").await;
    assert_eq!(published.json(), client.get("/openapi.json").await.json());
    let missing = client.get("/docs/none.md").await;
    assert_eq!((missing.status.as_u16(), &error_of(&missing)["code"]), (404, &json!("unknown_url")));
}

#[tokio::test]
async fn every_link_of_llms_txt_leads_to_a_document_of_this_server() {
    let (amalgam, client) = locked("").await;
    let answer = client.get("/llms.txt").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    let text = answer.text();
    assert!(text.starts_with("# Amalgam\n\n> "), "{text}");
    let links: Vec<&str> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 40, "{text}");
    for link in links {
        let path = link.strip_prefix(amalgam.url()).expect("links are addresses of this server");
        assert_eq!(client.get(path).await.status, 200, "{link}");
    }
}
