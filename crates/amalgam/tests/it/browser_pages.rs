//! Web pages in a browser: those of other sites reach nothing, with or without a key.

use amalgam_server::ROUTES;
use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    BINARY, DELIVERIES, Delivery, Script, Wire, Workshop, asking, calls, ended, error_of, id_of, mcp_requests,
    serve_mcp, shown, stores,
};

const KEY: &str = "am_pages-key-0123456789";

/// Requests as browsers send them for pages that are not the server's own.
const FOREIGN: [&[(&str, &str)]; 7] = [
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "empty")],
    &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
    &[("origin", "https://evil.example")],
    &[("origin", "null")],
    &[("origin", "http://127.0.0.1:1")],
];

fn path_of(route: &amalgam_server::RouteInfo) -> String {
    route.published_path().replace("{id}", "demo").replace(['{', '}'], "")
}

fn assert_closed(answer: &HttpAnswer, place: &str) {
    assert_eq!(answer.status, 403, "{place}: {}", answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), None, "{place}");
    let told: Value = answer.json();
    let is_told = told["error"]["code"] == "origin_not_allowed"
        || told["ErrorCode"] == "origin_not_allowed"
        // The Messages API has no codes.
        || told["error"]["type"] == "permission_error"
        || told["detail"].is_string();
    assert!(is_told, "{place}: {told}");
}

// right E1
#[tokio::test]
async fn a_page_of_another_site_is_refused_on_every_route_with_and_without_a_key() {
    let open = Amalgam::start(BINARY, Setup::new()).await;
    let locked = Amalgam::start(BINARY, Setup::new().tenant_key(KEY)).await;
    let clients = [Client::new(open.url()), Client::new(locked.url()), locked.client()];
    for client in &clients {
        // Every page may load the widget, which holds no data.
        let closed = ROUTES.iter().filter(|route| !route.path.starts_with("/widget."));
        for (number, route) in closed.enumerate() {
            let path = path_of(route);
            // Each route meets two of the forms, so that all of them are met many times.
            for headers in FOREIGN.iter().cycle().skip(number).take(2) {
                let answer = client.request(route.method.clone(), &path, headers, Bytes::new()).await;
                assert_closed(&answer, &format!("{} {path} {headers:?}", route.method));
            }
        }
        for path in ["/", "/v1/nothing", "/console/"] {
            let answer = client.request(Method::GET, path, FOREIGN[0], Bytes::new()).await;
            assert_closed(&answer, path);
        }
        let preflight = [FOREIGN[4][0], ("access-control-request-method", "POST")];
        let answer = client.request(Method::OPTIONS, "/v1/responses", &preflight, Bytes::new()).await;
        assert_closed(&answer, "a preflight request");
    }
}

// right E1
#[tokio::test]
async fn the_servers_own_pages_and_programs_are_served() {
    let amalgam = Amalgam::start(BINARY, Setup::new()).await;
    let client = Client::new(amalgam.url());
    let request = json!({"model": "demo", "input": "Hi"}).to_string();
    let own: [&[(&str, &str)]; 4] = [
        &[],
        &[("origin", amalgam.url()), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-mode", "cors")],
    ];
    for headers in own {
        let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        let answer = client.request(Method::POST, "/v1/responses", &headers, request.clone().into()).await;
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    // A link on another site opens what is public anyway, in a tab of its own.
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    assert_eq!(client.request(Method::GET, "/openapi.json", &link, Bytes::new()).await.status, 200);
    assert_eq!(client.request(Method::GET, "/v1/models", &link, Bytes::new()).await.status, 403);
}

// right E1
#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call_and_read_the_answer() {
    let setup = Setup::new().tenant_key(KEY).extra("[server]\nallowed_origins = [\"https://app.example.com\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let page = [("origin", "https://app.example.com"), ("sec-fetch-site", "cross-site")];
    let asks = [
        page[0],
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let answer = Client::new(amalgam.url()).request(Method::OPTIONS, "/v1/responses", &asks, Bytes::new()).await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization,content-type"));
    assert!(answer.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
    for (client, status) in [(amalgam.client(), 200), (Client::new(amalgam.url()), 401)] {
        let headers = [page[0], page[1], ("content-type", "application/json")];
        let body = json!({"model": "demo", "input": "Hi"}).to_string().into();
        let answer = client.request(Method::POST, "/v1/responses", &headers, body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
        assert_eq!(answer.header("vary"), Some("origin"));
    }
    let other = [("origin", "https://app.example.com.evil.example")];
    assert_closed(&amalgam.client().request(Method::GET, "/v1/models", &other, Bytes::new()).await, "a longer name");
}

// right E1
#[tokio::test]
async fn a_body_that_does_not_say_that_it_is_json_is_refused_on_every_route() {
    let amalgam = Amalgam::start(BINARY, Setup::new().env("AMALGAM_BOOTSTRAP_KEY", KEY)).await;
    let client = Client::new(amalgam.url()).with_key(KEY);
    let types: [&[(&str, &str)]; 5] = [
        &[],
        &[("content-type", "text/plain;charset=UTF-8")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "text/plain"), ("content-type", "application/json")],
        &[("content-type", "multipart/form-data; boundary=b")],
    ];
    // Metrics are public for callers on this machine, and public routes read no body.
    for route in ROUTES.iter().filter(|route| !route.public && route.path != "/metrics") {
        let forms = ["/v1/files", "/admin/knowledge/{collection}/documents"];
        let (path, is_upload) = (path_of(route), route.method == Method::POST && forms.contains(&route.path));
        for (index, headers) in types.iter().enumerate().filter(|(index, _)| !(is_upload && *index == 4)) {
            let answer = client.request(route.method.clone(), &path, headers, "{\"input\": \"x\"}".into()).await;
            let place = format!("{} {path} {index}", route.method);
            assert_eq!(answer.status, 415, "{place}: {}", answer.text());
            let told: Value = answer.json();
            let by_code =
                told["ErrorCode"] == "unsupported_media_type" || told["error"]["code"] == "unsupported_media_type";
            // The Messages API has no codes.
            let by_type = told["error"]["type"] == "invalid_request_error" && told["request_id"].is_string();
            assert!(by_code || by_type || told["detail"].is_string(), "{place}: {told}");
        }
    }
    // No body needs no type.
    let cancelled = client.request(Method::POST, "/v1/responses/resp_1/cancel", &[], Bytes::new()).await;
    assert_eq!((cancelled.status.as_u16(), &error_of(&cancelled)["code"]), (404, &json!("not_found")));
    assert!(!client.get("/v1/files").await.text().contains("file-"));
}

// right E1
#[tokio::test]
async fn a_caller_without_a_key_never_switches_off_approvals_of_the_operators_servers() {
    for store in stores() {
        let remote = Upstream::start();
        serve_mcp(&remote);
        let config = format!("[mcp.town]\nurl = \"{}/mcp\"\n", remote.url());
        let workshop = Workshop::with(&store, Setup::new().extra(&config)).await;
        let first_key = workshop.world.amalgam.first_key();
        let server = json!({"type": "mcp", "server_label": "town", "require_approval": "never"});
        let some =
            json!({"type": "mcp", "server_label": "town", "require_approval": {"never": {"tool_names": ["lookup"]}}});
        for (tool, delivery) in
            [&server, &some].into_iter().flat_map(|tool| DELIVERIES.map(|delivery| (tool, delivery)))
        {
            let request = json!({"input": "What about Oslo?", "tools": [tool]});
            let response =
                workshop.turn(Wire::Chat, delivery, &[calls("call_1", "town__lookup", "Oslo")], &request).await;
            assert_eq!(shown(&response), ["mcp_list_tools", "mcp_approval_request"], "{} {tool}", store.name);
        }
        // Neither when the turn runs later, without its caller.
        workshop.script(Wire::Chat, Delivery::Whole, &[calls("call_1", "town__lookup", "Oslo")]);
        let mut request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Later?", "tools": [server.clone()]}));
        request["background"] = json!(true);
        let queued = workshop.client().post_json("/v1/responses", &request).await.json();
        let response = ended(&workshop.client(), id_of(&queued)).await;
        assert_eq!(shown(&response), ["mcp_list_tools", "mcp_approval_request"], "{}", store.name);
        assert_eq!(mcp_requests(&remote, "tools/call").len(), 0, "{}", store.name);

        // A caller with a key may.
        let client = workshop.client().with_key(&first_key);
        workshop.script(
            Wire::Chat,
            Delivery::Whole,
            &[calls("call_1", "town__lookup", "Oslo"), Script::text(&["Found."])],
        );
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "What about Oslo?", "tools": [server]}));
        let response = client.post_json("/v1/responses", &request).await.json();
        assert_eq!(
            shown(&response),
            ["mcp_list_tools", r#"town/lookup({"city":"Oslo"}) completed"#, "message"],
            "{}",
            store.name
        );
    }
}
