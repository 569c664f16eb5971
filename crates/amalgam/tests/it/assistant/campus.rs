//! A server with three tenants that have assistants and courses, and the scripted model that answers for all of them.

use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Reply, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, Script, TestStore, Wire};

/// Where messages go.
pub(super) const RESPOND: &str = "/api/v2/ai-agent/respond/";

/// The keys of tenants 1, 2 and 3. Each may administer its own.
pub(super) const ALPHA: &str = "am_alpha";
pub(super) const BETA: &str = "am_beta";
pub(super) const GAMMA: &str = "am_gamma";

/// The model that is asked unless a setting names another.
pub(super) const MODEL: &str = "gpt-4o-mini";

/// The tenants as the configuration has them.
pub(super) const TENANTS: &str = r#"
[tenants.alpha]
id = 1
keys = ["am_alpha"]

[tenants.beta]
id = 2
keys = ["am_beta"]

[tenants.gamma]
id = 3
keys = ["am_gamma"]
"#;

/// The prompts of the two profiles.
pub(super) const HOME: &str = "Find courses.";
pub(super) const COURSE: &str = "Explain the course.";

/// A running server on a store, with one Responses upstream.
pub(super) struct Campus<'a> {
    pub(super) amalgam: Amalgam,
    pub(super) upstream: Upstream,
    store: &'a TestStore,
    setup: Setup,
}

impl<'a> Campus<'a> {
    /// With nothing set about the assistants but their tools, their profiles and their courses.
    pub(super) async fn on(store: &'a TestStore) -> Self {
        Self::with(store, Setup::new()).await
    }

    /// The same with this set-up.
    pub(super) async fn with(store: &'a TestStore, setup: Setup) -> Self {
        let upstream = Upstream::start();
        let setup =
            setup.upstream("up", "responses", &upstream.base_url()).option("models", &json!([MODEL]).to_string());
        Self::around(store, setup.extra(TENANTS), upstream).await
    }

    /// On upstreams that the set-up has already; `upstream` is the one that is looked at.
    pub(super) async fn around(store: &'a TestStore, setup: Setup, upstream: Upstream) -> Self {
        let setup = store.setup(setup);
        let amalgam = Amalgam::start(BINARY, setup.clone()).await;
        let setup = setup.home(&amalgam.home());
        let campus = Self { amalgam, upstream, store, setup };
        campus.furnish().await;
        campus
    }

    /// Tools in the common bank, two profiles and a few courses for each tenant.
    async fn furnish(&self) {
        let cli = self.cli();
        cli.text(&["seed", "tools"]);
        let file = self.amalgam.folder().join("courses.json");
        std::fs::write(&file, courses().to_string()).expect("the folder of a test takes a file");
        let file = file.to_str().expect("a temporary folder has a plain name");
        for (number, key) in ["1", "2", "3"].into_iter().zip([ALPHA, BETA, GAMMA]) {
            cli.text(&["courses", "import", file, "--company-id", number]);
            self.put_profile(key, "home-assistant", json!({"prompt": HOME, "tools": ["get_course_recommendation"]}))
                .await;
            self.put_profile(key, "course-assistant", json!({"prompt": COURSE, "tools": ["get_course_detail"]})).await;
        }
    }

    /// The command line beside the server.
    pub(super) fn cli(&self) -> Cli {
        Cli::beside(&self.amalgam, self.store)
    }

    /// One more process like the first, on the same database.
    pub(super) async fn another(&self) -> Amalgam {
        Amalgam::start(BINARY, self.setup.clone()).await
    }

    /// Starts the process again after its end, on the same data.
    pub(super) async fn start_again(&mut self) {
        self.amalgam = self.another().await;
    }

    /// A user of a tenant.
    pub(super) fn user(&self, key: &str, user: &str) -> Client {
        user_of(&self.amalgam, key, user)
    }

    /// The administrator of a tenant.
    pub(super) fn admin(&self, key: &str) -> Client {
        Client::new(self.amalgam.url()).with_key(key)
    }

    /// Keeps a profile of a tenant.
    pub(super) async fn put_profile(&self, key: &str, slug: &str, profile: Value) {
        let headers = [("content-type", "application/json")];
        let path = format!("/admin/profiles/{slug}");
        let answer = self.admin(key).request(Method::PUT, &path, &headers, profile.to_string().into()).await;
        assert!(answer.status.is_success(), "{slug}: {}", answer.text());
    }

    /// Sets what a tenant says about its assistant.
    pub(super) async fn configure(&self, key: &str, values: Value) -> Value {
        let number = 1 + [ALPHA, BETA, GAMMA].iter().position(|one| *one == key).expect("there are three tenants");
        let (headers, path) = ([("content-type", "application/json")], format!("/admin/configs/{number}"));
        let answer = self.admin(key).request(Method::PATCH, &path, &headers, values.to_string().into()).await;
        assert_eq!(answer.status, 200, "{values}: {}", answer.text());
        answer.json()
    }

    /// A thread as administrators see it: messages, the oldest first, with all that is known about them.
    pub(super) async fn thread(&self, key: &str, session_id: &Value) -> Vec<Value> {
        let answer = self.admin(key).get(&format!("/admin/sessions/{session_id}?limit=100")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut messages = answer.json()["messages"].as_array().expect("a thread has messages").clone();
        messages.reverse();
        messages
    }

    /// The model says these, one after the other, to requests for whole answers.
    pub(super) fn says(&self, scripts: &[Script]) {
        for (number, script) in scripts.iter().enumerate() {
            self.upstream.enqueue(whole(script, &format!("resp_up_{}", number + 1)));
        }
    }

    /// Sends a message and returns its successful answer.
    pub(super) async fn told(&self, client: &Client, body: Value) -> Value {
        let answer = respond(client, &body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        answer.json()
    }

    /// The same while the model says one text.
    pub(super) async fn chat(&self, client: &Client, body: Value, text: &str) -> Value {
        self.says(&[Script::text(&[text])]);
        self.told(client, body).await
    }

    /// The bodies of all requests to the model so far.
    pub(super) fn asked(&self) -> Vec<Value> {
        let requests = self.upstream.requests();
        requests.iter().filter(|request| request.method == "POST").map(amalgam_testkit::Request::json).collect()
    }

    /// The body of the last request to the model.
    pub(super) fn last_asked(&self) -> Value {
        self.asked().pop().expect("the model was asked")
    }
}

/// A user of a tenant, at one process.
pub(super) fn user_of(amalgam: &Amalgam, key: &str, user: &str) -> Client {
    Client::new(amalgam.url()).with_key(key).with_header("x-amalgam-user", user)
}

/// Sends a message.
pub(super) async fn respond(client: &Client, body: &Value) -> HttpAnswer {
    client.post_json(RESPOND, body).await
}

/// Sends a message with more headers.
pub(super) async fn respond_with(client: &Client, headers: &[(&str, &str)], body: &Value) -> HttpAnswer {
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    client.request(Method::POST, RESPOND, &headers, Bytes::from(body.to_string())).await
}

/// What a model says as one piece, under an id of its own.
pub(super) fn whole(script: &Script, id: &str) -> Reply {
    let mut events = script.frames(Wire::Responses);
    let mut response = events.pop().expect("an answer has an end")["response"].take();
    response["id"] = json!(id);
    Reply::json(response)
}

/// The same as a stream.
pub(super) fn streamed(script: &Script, id: &str) -> Reply {
    let events = script.frames(Wire::Responses).into_iter().map(|mut event| {
        if let Some(response) = event.get_mut("response") {
            response["id"] = json!(id);
        }
        event
    });
    Reply::sse_typed(events)
}

/// What a request to the model says, without the prompt: role and text of every message.
pub(super) fn said(request: &Value) -> Vec<(String, String)> {
    let items = request["input"].as_array().expect("a request says something").iter();
    let messages = items.filter(|item| item.get("role").is_some());
    messages.map(|item| (item["role"].as_str().unwrap_or_default().to_owned(), text_of(&item["content"]))).collect()
}

/// The text of a content, in one piece or several.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    }
}

/// The system prompt that the model received, without the guidance on tools at its end.
pub(super) fn prompt_of(request: &Value) -> &str {
    let told = request["instructions"].as_str().unwrap_or_default();
    told.split_once("\n\n<<<APTIX").map_or(told, |(prompt, _)| prompt)
}

/// The kinds of what is known about a message, in order.
pub(super) fn kinds(message: &Value) -> Vec<&str> {
    message["metadata"].as_array().into_iter().flatten().filter_map(|record| record["kind"].as_str()).collect()
}

/// What is known about a message under this kind.
pub(super) fn known<'v>(message: &'v Value, kind: &str) -> Vec<&'v Value> {
    let records = message["metadata"].as_array().into_iter().flatten();
    records.filter(|record| record["kind"] == kind).map(|record| &record["value"]).collect()
}

/// How long something immediate may take on a busy machine.
pub(super) const QUICK: Duration = Duration::from_secs(30);

fn courses() -> Value {
    let course = |id: i64, title: &str, tags: [&str; 2], active: bool| {
        json!({
            "id": id, "title": title, "description": format!("About {title}."), "modality": "Learn", "type": "Course",
            "tags": tags, "assets": ["Video: Start"], "url": format!("https://courses.example.com/{id}"),
            "content_in_sequence": false, "min_percentage_finish": 100, "active": active,
        })
    };
    let mut courses = vec![
        course(28, "Leadership Foundations", ["leadership", "communication"], true),
        course(29, "Retired Course", ["leadership", "old"], false),
        course(30, "Dasar Kepemimpinan", ["kepemimpinan", "komunikasi"], true),
    ];
    courses[0]["status"] = json!("Started");
    courses.extend((101..=107).map(|id| course(id, &format!("Spreadsheets {id}"), ["data", "excel"], true)));
    Value::Array(courses)
}
