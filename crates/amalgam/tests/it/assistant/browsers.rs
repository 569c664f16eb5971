//! Browser tokens: what they reach, for whom, from which pages, and how often. RNCC-39 is what a page shows with them.

use amalgam_server::ROUTES;
use amalgam_testkit::{Client, HttpAnswer, Reply};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, RESPOND, streamed, user_of, whole};
use crate::support::{Cli, Event, Events, Said, Script, Wire, shared_store, stores};

const SECRETS: &str = "/api/v2/ai-agent/client-secrets/";
const SESSIONS: &str = "/api/v2/ai-agent/sessions/";
const ORIGIN: &str = "https://app.example.com";

/// A request for a token for Ana, with other values for some fields.
fn wanted(more: Value) -> Value {
    let mut body = json!({"user": "ana", "agents": ["home-assistant"], "origin": ORIGIN});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// A token of a server key.
async fn issued(server: &Client, more: Value) -> String {
    let answer = server.post_json(SECRETS, &wanted(more)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let secret = answer.json()["client_secret"].as_str().expect("a token is a text").to_owned();
    assert!(secret.starts_with("amc_"), "{secret}");
    secret
}

/// A page of the usual origin with a token.
fn page(url: &str, secret: &str) -> Client {
    Client::new(url).with_key(secret).with_header("origin", ORIGIN).with_header("sec-fetch-site", "cross-site")
}

async fn say(client: &Client, text: &str) -> HttpAnswer {
    client.post_json(RESPOND, &json!({"agent": "home-assistant", "message": text})).await
}

fn refused(answer: &HttpAnswer, status: u16, code: &str) {
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (status, &json!(code)), "{}", answer.text());
    assert!(answer.json()["detail"].is_string());
}

#[tokio::test]
async fn a_page_with_a_token_talks_as_its_user_and_sees_that_users_threads_alone() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let (server, url) = (campus.admin(ALPHA), campus.amalgam.url());
        let ana = page(url, &issued(&server, json!({})).await);
        campus.says(&[Script::text(&["Hello."])]);
        let answer = say(&ana, "Hi").await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (200, Some(ORIGIN)));
        assert_eq!(answer.json()["message"], "Hello.");
        // The same thread as that of the server's own requests for her, and no other user's.
        let own = campus.user(ALPHA, "ana").get(SESSIONS).await.json();
        assert_eq!(ana.get(SESSIONS).await.json(), own, "{}", store.name);
        let messages = format!("{SESSIONS}{}/messages/", own["results"][0]["id"]);
        assert_eq!(ana.get(&messages).await.status, 200);
        let ben = page(url, &issued(&server, json!({"user": "ben"})).await);
        assert_eq!(ben.get(SESSIONS).await.json()["results"], json!([]));
        assert_eq!(ben.get(&messages).await.status, 404);
        let elsewhere = page(url, &issued(&campus.admin(BETA), json!({})).await);
        assert_eq!(elsewhere.get(&messages).await.status, 404);
        assert_eq!(ana.get("/api/v2/course-recommendations/?q=data").await.status, 200);
        assert!([200, 503].contains(&ana.get("/api/v2/ai-agent/health/").await.status.as_u16()));
        assert_eq!(ana.clone().with_header("x-amalgam-user", "ben").get(SESSIONS).await.status, 403);
        refused(
            &ana.post_json(RESPOND, &json!({"agent": "course-assistant", "message": "Hi"})).await,
            403,
            "agent_not_allowed",
        );
        refused(&ana.post_json(RESPOND, &json!({"message": "Hi"})).await, 403, "agent_not_allowed");
    }
}

#[tokio::test]
async fn a_token_reaches_no_other_route() {
    const REACHED: [&str; 6] = [
        RESPOND,
        "/api/v2/ai-agent/respond/{response_id}/",
        "/api/v2/ai-agent/respond/{response_id}/cancel/",
        "/api/v2/ai-agent/health/",
        SESSIONS,
        "/api/v2/ai-agent/sessions/{session_id}/messages/",
    ];
    let store = crate::support::embedded_store();
    let campus = Campus::on(&store).await;
    let client = page(campus.amalgam.url(), &issued(&campus.admin(ALPHA), json!({})).await);
    // Metrics are public for callers on this machine.
    let skipped = ["/api/v2/course-recommendations/", "/metrics"];
    for route in ROUTES.iter().filter(|route| !route.public && !skipped.contains(&route.path)) {
        let path = route.path.replace("{*id}", "demo").replace(['{', '}'], "");
        let headers = [("content-type", "application/json")];
        let answer = client.request(route.method.clone(), &path, &headers, Bytes::from("{}")).await;
        let place = format!("{} {path}: {}", route.method, answer.text());
        match REACHED.contains(&route.path) {
            true => assert!(!answer.text().contains("route_not_allowed"), "{place}"),
            false => {
                assert_eq!(answer.status, 403, "{place}");
                // The Messages API has no codes.
                let names_it = |text: &str| text.contains("route_not_allowed") || text.contains("permission_error");
                assert!(names_it(&answer.text()), "{place}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_for_pages_of_its_origin_until_it_expires_or_its_key_ends() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let (server, url) = (campus.admin(ALPHA), campus.amalgam.url());
        let secret = issued(&server, json!({"expires_in": 60})).await;
        for origin in [None, Some("https://evil.example"), Some("null"), Some("https://app.example.com.evil.example")] {
            let client = Client::new(url).with_key(&secret);
            let client = origin.map_or(client.clone(), |origin| client.with_header("origin", origin));
            let answer = client.get(SESSIONS).await;
            refused(&answer, 403, "origin_not_allowed");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        // A token that is not of this server is no credential at all.
        for forged in ["amc_ams1.AAAA", "amc_", &format!("{secret}A")] {
            let answer = Client::new(url).with_key(forged).get(SESSIONS).await;
            assert_eq!(answer.status, 401, "{forged}: {}", answer.text());
        }
        // A key of the store that is revoked takes its tokens with it.
        let cli = Cli::beside(&campus.amalgam, &store);
        let key = cli.json(&["keys", "create", "--tenant", "1", "--label", "backend"]);
        let short = issued(&Client::new(url).with_key(key["key"].as_str().expect("a key")), json!({})).await;
        assert_eq!(page(url, &short).get(SESSIONS).await.status, 200);
        let id = key["id"].as_str().expect("a key has an id");
        assert_eq!(server.request(Method::DELETE, &format!("/admin/keys/{id}"), &[], Bytes::new()).await.status, 200);
        assert_eq!(page(url, &short).get(SESSIONS).await.status, 401, "{}", store.name);
    }
}

#[tokio::test]
async fn a_preflight_request_is_allowed_where_a_token_is_and_nowhere_else() {
    let store = crate::support::embedded_store();
    let campus = Campus::on(&store).await;
    let ask = |path: &'static str, method: &'static str| {
        let client = Client::new(campus.amalgam.url());
        async move {
            let headers = [
                ("origin", ORIGIN),
                ("access-control-request-method", method),
                ("access-control-request-headers", "authorization,content-type,x-other"),
            ];
            client.request(Method::OPTIONS, path, &headers, Bytes::new()).await
        }
    };
    for (path, method) in [(RESPOND, "POST"), ("/api/v2/ai-agent/respond", "POST"), (SESSIONS, "GET")] {
        let answer = ask(path, method).await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (204, Some(ORIGIN)));
        let headers = answer.header("access-control-allow-headers").expect("the headers are listed");
        assert!(
            headers.contains("authorization") && headers.contains("idempotency-key") && !headers.contains("x-other")
        );
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
    for (path, method) in [(SECRETS, "POST"), ("/v1/responses", "POST"), ("/admin/keys", "GET"), (RESPOND, "DELETE")] {
        let answer = ask(path, method).await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (403, None), "{path}");
    }
}

#[tokio::test]
async fn the_messages_of_a_day_are_counted_exactly_across_tokens_and_processes() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let another = match store.name {
            "postgres" => Some(campus.another().await),
            _ => None,
        };
        let urls = [campus.amalgam.url(), another.as_ref().map_or(campus.amalgam.url(), |amalgam| amalgam.url())];
        let server = campus.admin(ALPHA);
        for number in 0..5 {
            campus.upstream.enqueue(whole(&Script::text(&["Yes."]), &format!("resp_up_{number}")));
        }
        let mut asked = tokio::task::JoinSet::new();
        for number in 0..12 {
            // A new token does not begin a new day.
            let client = page(urls[number % 2], &issued(&server, json!({"messages_per_day": 5})).await);
            asked.spawn(async move { say(&client, "Hi").await });
        }
        let answers = asked.join_all().await;
        let good = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(good, 5, "{}", store.name);
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            refused(answer, 429, "message_budget_spent");
            let wait: u64 = answer.header("retry-after").expect("it says when").parse().expect("in seconds");
            assert!((1..=86_400).contains(&wait), "{wait}");
        }
        // Neither another user's messages nor those of the server itself count.
        campus.says(&[Script::text(&["Yes."])]);
        assert_eq!(say(&page(urls[0], &issued(&server, json!({"user": "ben"})).await), "Hi").await.status, 200);
        campus.says(&[Script::text(&["Yes."])]);
        assert_eq!(say(&campus.user(ALPHA, "ana"), "Hi").await.status, 200);
    }
}

#[tokio::test]
async fn only_server_keys_issue_tokens_and_faults_are_reported_by_field() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let url = campus.amalgam.url();
        let server = campus.admin(ALPHA);
        assert_eq!(Client::new(url).post_json(SECRETS, &wanted(json!({}))).await.status, 401);
        let cli = Cli::beside(&campus.amalgam, &store);
        let key = |arguments: &[&str]| {
            let key = cli.json(&[&["keys", "create", "--tenant", "1"], arguments].concat());
            Client::new(url).with_key(key["key"].as_str().expect("a key"))
        };
        assert_eq!(key(&["--scope", "view"]).post_json(SECRETS, &wanted(json!({}))).await.status, 403);
        assert_eq!(key(&["--scope", "admin"]).post_json(SECRETS, &wanted(json!({}))).await.status, 200);
        let of_ana = key(&["--user", "ana"]);
        assert_eq!(of_ana.post_json(SECRETS, &wanted(json!({}))).await.status, 200);
        assert_eq!(of_ana.post_json(SECRETS, &wanted(json!({"user": "ben"}))).await.status, 403);
        let answer = server.post_json(SECRETS, &json!({"user": "key:config", "agents": ["a"], "origin": ORIGIN})).await;
        assert_eq!(answer.status, 400);
        assert!(answer.json()["user"][0].is_string(), "{}", answer.text());
        let answer = server.post_json(SECRETS, &wanted(json!({"expires_in": 59, "origin": "*"}))).await;
        assert_eq!(answer.status, 400);
        assert!(answer.json()["expires_in"].is_array() && answer.json()["origin"].is_array(), "{}", answer.text());
        for wrong in ["[]", "null", "7", "{"] {
            assert_eq!(server.post_raw(SECRETS, "application/json", wrong).await.status, 400, "{wrong}");
        }
    }
}

fn detail_scripts() -> [Script; 2] {
    let call = Said::call("call_1", "get_course_detail", &["{\"course_id\":28}"]);
    [Script::new([call]), Script::text(&["It is about leading."])]
}

#[tokio::test]
async fn the_messages_of_a_thread_show_the_tool_results_of_each_answer() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.says(&detail_scripts());
        let body = json!({"agent": "course-assistant", "message": "What is it?", "metadata": {"course_id": 28}});
        let answer = campus.told(&ana, body).await;
        assert_eq!(answer["tool_results"][0]["name"], "get_course_detail");
        let list = ana.get(&format!("{SESSIONS}{}/messages/", answer["session_id"])).await.json();
        assert_eq!(list["results"][0]["tool_results"], answer["tool_results"], "{}", store.name);
        assert_eq!(list["results"][1].get("tool_results"), None, "the user's message has none");
        assert_eq!(list["results"][0].get("metadata"), None);
    }
}

#[tokio::test]
async fn a_message_may_begin_a_new_session_which_does_not_know_the_one_before() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let first = campus.chat(&ana, json!({"agent": "home-assistant", "message": "My name is Ana"}), "Hello.").await;
        let body = json!({"agent": "home-assistant", "message": "Who am I?", "new_session": true});
        let second = campus.chat(&ana, body, "I do not know.").await;
        assert_ne!(first["session_id"], second["session_id"], "{}", store.name);
        assert!(!campus.last_asked().to_string().contains("My name is Ana"));
        let third = campus.chat(&ana, json!({"agent": "home-assistant", "message": "And now?"}), "No.").await;
        assert_eq!(third["session_id"], second["session_id"]);
        let sessions = ana.get(SESSIONS).await.json();
        let listed: Vec<_> =
            sessions["results"].as_array().into_iter().flatten().map(|one| (&one["id"], &one["status"])).collect();
        assert_eq!(listed, [(&second["session_id"], &json!("active")), (&first["session_id"], &json!("closed"))]);
        // Also when there is no session to close, and only with this agent.
        let body = json!({"agent": "course-assistant", "message": "Hi", "new_session": true});
        campus.chat(&ana, body, "Hi.").await;
        assert_eq!(ana.get(SESSIONS).await.json()["results"].as_array().map(Vec::len), Some(3));
    }
}

/// A stream under an idempotency key, up to the first piece of its text.
async fn opened(client: &Client, key: &str) -> (Events, String) {
    let headers = [
        ("authorization", "Bearer am_alpha"),
        ("x-amalgam-user", "ana"),
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
        ("idempotency-key", key),
    ];
    let body = json!({"agent": "home-assistant", "message": "Hi"}).to_string();
    let mut events = Events::open(client, "POST", RESPOND, &headers, &body).await;
    assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
    let id = events.header("amalgam-response-id").expect("a stream has an id").to_owned();
    assert_eq!(events.next().await.map(|event: Event| event.name), Some("message.delta".to_owned()));
    (events, id)
}

/// A model that says something and then nothing more.
fn stalled() -> Reply {
    let script = Script::text(&["Once ", "upon"]);
    let frames = script.frames(Wire::Responses);
    let delta = frames.iter().position(|frame| frame["type"] == "response.output_text.delta");
    streamed(&script, "resp_up_stalled").hang_after(delta.expect("it says something") + 1)
}

#[tokio::test]
async fn an_answer_is_cancelled_even_if_its_turn_does_not_depend_on_the_connection() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        campus.upstream.enqueue(stalled());
        let (events, id) = opened(&ana, "cancelled").await;
        let path = format!("{RESPOND}{id}/cancel/");
        assert_eq!(campus.user(ALPHA, "ben").post_raw(&path, "application/json", "").await.status, 404);
        let answer = ana.post_raw(&path, "application/json", "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json(), json!({"response_id": id, "cancelled": true}), "{}", store.name);
        let last = events.rest().await.pop().expect("a stream has an end");
        assert_eq!(last.name, "error");
        // The text that was there stays in the thread, and the next message is not kept waiting.
        let session = ana.get(SESSIONS).await.json()["results"][0]["id"].clone();
        let list = ana.get(&format!("{SESSIONS}{session}/messages/")).await.json();
        assert_eq!(list["results"][0]["message"], "Once", "{list}");
        let next = campus.chat(&ana, json!({"agent": "home-assistant", "message": "Again"}), "Yes.").await;
        assert_eq!(next["message"], "Yes.");
        // An answer that has ended stays as it is.
        campus.upstream.enqueue(streamed(&Script::text(&["Done."]), "resp_up_9"));
        let (events, id) = opened(&ana, "ended").await;
        events.rest().await;
        let answer = ana.post_raw(&format!("{RESPOND}{id}/cancel/"), "application/json", "").await;
        assert_eq!(answer.json(), json!({"response_id": id, "cancelled": false}));
        assert_eq!(ana.post_raw(&format!("{RESPOND}resp_unknown/cancel/"), "application/json", "").await.status, 404);
    }
}

#[tokio::test]
async fn an_answer_that_runs_in_another_process_is_cancelled() {
    let Some(store) = shared_store() else { return };
    let campus = Campus::on(&store).await;
    let another = campus.another().await;
    campus.upstream.enqueue(stalled());
    let (events, id) = opened(&campus.user(ALPHA, "ana"), "elsewhere").await;
    let ana = user_of(&another, ALPHA, "ana");
    let answer = ana.post_raw(&format!("{RESPOND}{id}/cancel/"), "application/json", "").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["cancelled"]), (200, &json!(true)), "{}", answer.text());
    assert_eq!(events.rest().await.pop().map(|event| event.name), Some("error".to_owned()));
    campus.says(&[Script::text(&["Yes."])]);
    assert_eq!(say(&ana, "Again").await.status, 200);
}
