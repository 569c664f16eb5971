//! The model of the assistant and execute doors, whose callers name none: local upstreams alone are enough.

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, Delivery, Script, TestStore, Wire, stores};

/// An upstream that lists these models and answers every request with a greeting.
fn upstream(models: &[&str]) -> Upstream {
    let upstream = Upstream::always(Script::text(&["Hello."]).reply(Wire::Chat, Delivery::Whole));
    let listed: Vec<Value> = models.iter().map(|model| json!({"id": model, "object": "model"})).collect();
    upstream.always_for("/models", Reply::json(json!({"object": "list", "data": listed})));
    upstream
}

/// The models that were requested from an upstream.
fn asked(upstream: &Upstream) -> Vec<String> {
    let posts = upstream.requests().into_iter().filter(|request| request.method == "POST");
    posts.map(|request| request.json()["model"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Says something on both doors.
async fn speak(client: &Client, place: &str) {
    let answer = client.post_json("/api/v2/ai-agent/respond/", &json!({"message": "Hello?"})).await;
    assert_eq!(answer.status, 200, "{place}: {}", answer.text());
    let session = client.post_json("/api/agent/sessions", &json!({})).await.json();
    let turn = json!({"SessionId": session["SessionId"], "TurnId": "one", "Instruction": "Hello?"});
    let answer = client.post_json("/api/agent/execute", &turn).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["Kind"]), (200, &json!("ok")), "{place}: {}", answer.text());
}

/// A server with upstreams of kind chat that need no key; `extra` is the rest of its file.
async fn started(store: &TestStore, upstreams: &[(&str, &Upstream)], extra: &str, env: &[(&str, &str)]) -> Amalgam {
    let setup =
        env.iter().fold(Setup::new().tenant_key("am_one").seeded(), |setup, (name, value)| setup.env(name, value));
    let setup = upstreams.iter().fold(setup, |setup, (name, upstream)| {
        setup.extra(&format!("[upstreams.{name}]\nkind = \"chat\"\nbase_url = \"{}\"\n", upstream.base_url()))
    });
    Amalgam::start(BINARY, store.setup(setup.extra(extra))).await
}

#[tokio::test]
async fn the_doors_without_a_model_name_use_what_the_configuration_has() {
    // right B3
    let named =
        "[models.fast]\nupstream = \"second\"\nmodel = \"named\"\n[models.slow]\nupstream = \"first\"\nmodel = \"x\"\n";
    let chosen = format!("[assistant]\nmodel = \"slow\"\n{named}");
    for store in stores() {
        // The configuration, the models that upstreams are called for, and the log lines at the start.
        for (extra, env, first, second, said) in [
            ("", None, "listed-1", "", "model listed-1 of upstream first"),
            (named, None, "", "named", "model fast of upstream second (the first of [models])"),
            (chosen.as_str(), None, "x", "", "model slow of upstream first ([assistant] model)"),
            (chosen.as_str(), Some("listed-3"), "", "listed-3", "model listed-3 of upstream second (AI_AGENT_MODEL)"),
        ] {
            let place = format!("{}: {extra:?} {env:?}", store.name);
            let (one, two) = (upstream(&["listed-1", "listed-2"]), upstream(&["listed-3"]));
            let env: Vec<(&str, &str)> = env.map(|model| ("AI_AGENT_MODEL", model)).into_iter().collect();
            let amalgam = started(&store, &[("first", &one), ("second", &two)], extra, &env).await;
            let told = amalgam.wait_for_stderr("doors use").await;
            assert!(told.contains(said), "{place}: {told}");
            speak(&amalgam.client(), &place).await;
            let both = |model: &str| if model.is_empty() { vec![] } else { vec![model.to_owned(); 2] };
            assert_eq!((asked(&one), asked(&two)), (both(first), both(second)), "{place}");
            let health = amalgam.client().get("/api/v2/ai-agent/health/").await;
            assert_eq!(health.status, 200, "{place}: {}", health.text());
            let cli = env.iter().fold(Cli::beside(&amalgam, &store), |cli, (name, value)| cli.env(name, value));
            let doctor = cli.run(&["doctor"]);
            let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
            for door in ["assistant door", "execute door"] {
                assert!(doctor.contains(&format!("{door}: {said}")), "{place}: {doctor}");
            }
            // Another store for every case.
            cli.text(&["reset", "everything", "--confirm", &name_of(&store, &cli)]);
        }
    }
}

/// The name of the store, as the command line prints it.
fn name_of(store: &TestStore, cli: &Cli) -> String {
    let failure = cli.failure(&["reset", "everything"]);
    let name = failure.split_once("--confirm ").and_then(|(_, rest)| rest.split_whitespace().next());
    name.unwrap_or(store.name).to_owned()
}

#[tokio::test]
async fn an_upstream_that_lists_nothing_is_told_and_no_key_of_openai_is_asked_for() {
    // right B3
    for store in stores() {
        let silent = Upstream::always(Reply::status(500));
        let amalgam = started(&store, &[("silent", &silent)], "", &[]).await;
        let told = amalgam.wait_for_stderr("no model").await;
        assert!(told.contains("[assistant] model"), "{told}");
        let answer = amalgam.client().post_json("/api/v2/ai-agent/respond/", &json!({"message": "Hello?"})).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(!answer.text().contains("OPENAI_API_KEY"), "{}", answer.text());
        let health = amalgam.client().get("/api/v2/ai-agent/health/").await.json();
        assert_eq!(health["error"], "No upstream names or lists a model.", "{health}");
    }
}

#[tokio::test]
async fn a_demo_installation_follows_its_first_upstream() {
    // right B3: what the first start has seeded does not hold the tenant to the demo.
    for store in stores() {
        let mut amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one").seeded())).await;
        let answer = amalgam.client().post_json("/api/v2/ai-agent/respond/", &json!({"message": "Hello?"})).await;
        assert_eq!(answer.json()["model"], "demo", "{}", answer.text());
        amalgam.stop().await;
        let local = upstream(&["local"]);
        let setup = Setup::new().tenant_key("am_one").seeded().home(&amalgam.home());
        let setup = setup.upstream("local", "chat", &local.base_url());
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        speak(&amalgam.client(), store.name).await;
        assert_eq!(asked(&local), ["local"; 2], "{}", store.name);
    }
}

#[test]
fn a_model_for_the_assistant_that_no_upstream_serves_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[upstreams.one]\nkind = \"chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodels = [\"a\"]\n[assistant]\nmodel = \"b\"\n";
    std::fs::write(folder.path().join("amalgam.toml"), file).unwrap();
    let failure = Cli::within(folder.path()).failure(&["check"]);
    assert!(failure.contains("amalgam.toml:6: [assistant] names the model 'b', which no upstream serves"), "{failure}");
}
