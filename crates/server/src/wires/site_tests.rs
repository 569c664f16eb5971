//! The site as a browser, a program and a cache get it.

use amalgam_core::TenantState;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::testing;

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

async fn get(path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
    let request = headers
        .iter()
        .fold(Request::get(path).header("host", "here"), |request, (name, value)| request.header(*name, *value));
    let response = testing::served(TenantState::Stored).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_link_of_the_index_opens_a_page_wherever_the_index_is() {
    for (path, base) in [("/docs", "docs/"), ("/docs/", "")] {
        for headers in [&[BROWSER][..], &[]] {
            let (_, _, index) = get(path, headers).await;
            for document in DOCUMENTATION.iter() {
                let linked = [format!("href=\"{base}{}\"", document.name), format!("]({base}{})", document.name)];
                assert!(linked.iter().any(|link| index.contains(link)), "{path}: {}", document.name);
                let (status, _, text) = get(&format!("/docs/{}", document.name), &[]).await;
                assert_eq!((status, text.as_str()), (StatusCode::OK, document.text));
            }
        }
    }
}

#[tokio::test]
async fn every_answer_can_be_validated_by_its_tag() {
    for path in ["/", "/docs", "/docs/", "/docs/clients.md", "/docs/openapi.json", "/llms.txt"] {
        for accept in [BROWSER, ("accept", "*/*")] {
            let (status, headers, text) = get(path, &[accept]).await;
            assert_eq!((status, text.is_empty()), (StatusCode::OK, false), "{path}");
            let tag = headers["etag"].to_str().unwrap().to_owned();
            for known in [tag.clone(), format!("\"other\", {tag}"), format!("W/{tag}"), "*".to_owned()] {
                let (status, again, text) = get(path, &[accept, ("if-none-match", &known)]).await;
                assert_eq!((status, text.as_str()), (StatusCode::NOT_MODIFIED, ""), "{path} {known}");
                assert_eq!(again["etag"], tag.as_str());
            }
            assert_eq!(get(path, &[accept, ("if-none-match", "\"other\"")]).await.0, StatusCode::OK, "{path}");
        }
    }
}

#[tokio::test]
async fn a_page_that_does_not_exist_is_not_found_without_a_key() {
    for path in ["/docs/nothing.md", "/docs/../Cargo.toml", "/docs/decisions/", "/docs/%2e%2e/README.md"] {
        let (status, _, text) = get(path, &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {text}");
        assert!(text.contains("unknown_url"), "{path}: {text}");
    }
}
