//! Every setting has an effect, from both places: the environment for all tenants, a tenant for itself.

use amalgam_assistant::{prompt, safety_identifier, settings::AgentSettings};
use amalgam_testkit::{Request, Setup, Upstream};
use serde_json::{Value, json};

use super::campus::{ALPHA, BETA, Campus, GAMMA, MODEL, TENANTS, respond, said};
use crate::support::{Said, Script, stores};

/// Two upstreams with the same models; the first has the installation's key, the second one of its own.
fn two_upstreams(one: &Upstream, other: &Upstream) -> Setup {
    let table = |name: &str, upstream: &Upstream, key: &str| {
        let url = upstream.base_url();
        format!("[upstreams.{name}]\nkind = \"responses\"\nbase_url = \"{url}\"\napi_key = \"{key}\"\n")
    };
    let (one, other) = (table("openai", one, "env:OPENAI_API_KEY"), table("other", other, "sk-other"));
    Setup::new().extra(&format!("{one}models = [\"{MODEL}\", \"env-model\", \"own-model\"]\n{other}{TENANTS}"))
}

/// Every variable with a value that is not the default.
const VARIABLES: [(&str, &str); 17] = [
    ("OPENAI_API_KEY", "sk-env"),
    ("AI_AGENT_MODEL", "env-model"),
    ("AI_AGENT_TEMPERATURE", "0.25"),
    ("AI_AGENT_TOP_P", "0.5"),
    ("AI_AGENT_MAX_OUTPUT_TOKENS", "321"),
    ("AI_AGENT_TRUNCATION", "disabled"),
    ("AI_AGENT_REQUEST_TIMEOUT", "30"),
    ("AI_AGENT_PARALLEL_TOOL_CALLS", "false"),
    ("AI_AGENT_MAX_TOOL_ITERATIONS", "1"),
    ("AI_AGENT_MAX_INPUT_CHARS", "12"),
    ("AI_AGENT_HISTORY_MAX_MESSAGES", "1"),
    ("AI_AGENT_HISTORY_MAX_CHARS", "9"),
    ("AI_AGENT_EXPOSE_RAW_RESPONSES", "false"),
    ("AI_AGENT_SAFETY_SALT", "pepper"),
    ("AI_AGENT_SYSTEM_PROMPT", "Env words."),
    ("AI_AGENT_SYSTEM_PROMPT_VERSION", "env-7"),
    ("AI_AGENT_METADATA_MAX_BYTES", "16"),
];

fn detail(id: &str) -> Script {
    Script::new([Said::call(id, "get_course_detail", &["{\"course_id\":28}"])])
}

#[tokio::test]
async fn every_variable_of_the_environment_has_its_effect() {
    // RNCC-40, RNCC-42. How long a model may take is proven beside the other mishaps.
    for store in stores() {
        let (upstream, other) = (Upstream::start(), Upstream::start());
        let setup =
            VARIABLES.iter().fold(two_upstreams(&upstream, &other), |setup, (name, value)| setup.env(name, value));
        let campus = Campus::around(&store, setup, upstream).await;
        let ana = campus.user(ALPHA, "ana@example.com");
        let first = campus.chat(&ana, json!({"message": "Hi"}), "Hello.").await;
        assert_eq!((&first["model"], &first["prompt"]["version"]), (&json!("env-model"), &json!("env-7")));
        assert_eq!(first["prompt"]["hash"], prompt::hash("Env words."));
        let asked = campus.last_asked();
        let sent =
            ["model", "temperature", "top_p", "max_output_tokens", "truncation", "instructions"].map(|key| &asked[key]);
        let expected =
            [json!("env-model"), json!(0.25), json!(0.5), json!(321), json!("disabled"), json!("Env words.")];
        assert_eq!(sent, expected.each_ref());
        assert_eq!(asked["safety_identifier"], safety_identifier("pepper", 1, "ana@example.com"));
        assert_eq!(campus.upstream.requests()[0].header("authorization"), Some("Bearer sk-env"));

        // One message of at most nine characters is remembered: the answer, and not the question before it.
        campus.says(&[detail("call_1"), Script::text(&["A long answer"])]);
        campus.told(&ana, json!({"message": "And?", "agent": "course-assistant"})).await;
        let asked = campus.asked();
        assert_eq!(asked[1]["parallel_tool_calls"], false);
        assert!(
            asked[2]["tools"].as_array().is_none_or(Vec::is_empty) || asked[2]["tool_choice"] == "none",
            "{}",
            asked[2]
        );
        campus.chat(&ana, json!({"message": "Hi"}), "Bye.").await;
        let heard: Vec<String> = said(&campus.last_asked()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(heard, ["Hello.", "Hi"]);
        campus.chat(&ana, json!({"message": "Hi", "agent": "course-assistant"}), "Bye.").await;
        let heard: Vec<String> = said(&campus.last_asked()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(heard, ["Hi"], "an answer of thirteen characters is too long to be remembered");

        for (body, told) in [
            (
                json!({"message": "1234567890123"}),
                json!({"message": ["Ensure this field has no more than 12 characters."]}),
            ),
            (
                json!({"message": "Hi", "metadata": {"course_id": 123}}),
                json!({"metadata": ["Metadata is too large: it may have at most 16 bytes."]}),
            ),
        ] {
            let answer = respond(&ana, &body).await;
            assert_eq!((answer.status.as_u16(), answer.json()), (400, told));
        }
        // C-12: the other door of the same assistant hides the response itself.
        campus.says(&[Script::text(&["Done."])]);
        let session = ana.post_json("/api/agent/sessions", &json!({})).await.json();
        let turn = json!({"SessionId": session["SessionId"], "TurnId": "1", "Instruction": "Hi"});
        let told = ana.post_json("/api/agent/execute", &turn).await.json();
        assert_eq!((&told["Text"], &told["RawResponseJson"]), (&json!("Done."), &Value::Null), "{told}");
        // Where every value comes from can be seen; secrets cannot.
        let shown = campus.admin(ALPHA).get("/admin/configs/1").await.json();
        for (key, variable) in AgentSettings::KEYS.iter().filter(|(key, _)| *key != "upstream") {
            assert!(VARIABLES.iter().any(|(name, _)| name == variable), "{variable} is not tried here");
            assert_eq!(shown["resolved"][key]["origin"], "settings", "{key}: {}", shown["resolved"][key]);
        }
        assert!(!shown.to_string().contains("pepper") && !shown.to_string().contains("sk-env"), "{shown}");
    }
}

#[tokio::test]
async fn what_a_tenant_sets_goes_before_the_environment_and_what_it_leaves_empty_does_not() {
    // RNCC-41
    for store in stores() {
        let (upstream, other) = (Upstream::start(), Upstream::start());
        let setup =
            VARIABLES.iter().fold(two_upstreams(&upstream, &other), |setup, (name, value)| setup.env(name, value));
        let campus = Campus::around(&store, setup, upstream).await;
        let ana = campus.user(ALPHA, "ana");
        let own = json!({
            "model": "own-model", "temperature": 1.5, "top_p": 0.75, "max_output_tokens": 99, "truncation": "auto",
            "parallel_tool_calls": true, "max_input_chars": 20, "history_max_messages": 0, "prompt_version": "own",
            "system_prompt": "Own words.", "safety_salt": "salt", "api_key": "sk-alpha",
        });
        campus.configure(ALPHA, own).await;
        let body = json!({"message": "twelve and more", "agent": "course-assistant"});
        let answer = campus.chat(&ana, body.clone(), "Fine.").await;
        assert_eq!((&answer["model"], &answer["prompt"]["version"]), (&json!("own-model"), &json!("own")));
        let asked = campus.last_asked();
        let sent = ["model", "temperature", "top_p", "max_output_tokens", "parallel_tool_calls"].map(|key| &asked[key]);
        assert_eq!(sent, [json!("own-model"), json!(1.5), json!(0.75), json!(99), json!(true)].each_ref());
        assert_eq!(asked["safety_identifier"], safety_identifier("salt", 1, "ana"));
        assert!(asked["instructions"].as_str().is_some_and(|text| text.starts_with("Own words.\n\n")), "{asked}");
        assert_eq!(campus.upstream.requests()[0].header("authorization"), Some("Bearer sk-alpha"));

        // No other tenant is affected.
        let ben = campus.user(BETA, "ben");
        assert_eq!(campus.chat(&ben, json!({"message": "Hi"}), "Fine.").await["model"], "env-model");
        assert_eq!(campus.upstream.requests()[1].header("authorization"), Some("Bearer sk-env"));

        // Null and an empty text unset.
        campus
            .configure(ALPHA, json!({"model": "", "max_input_chars": null, "api_key": null, "system_prompt": " "}))
            .await;
        assert_eq!(respond(&ana, &body).await.status, 400);
        let answer = campus.chat(&ana, json!({"message": "Hi"}), "Fine.").await;
        assert_eq!(answer["model"], "env-model");
        assert_eq!(campus.last_asked()["instructions"], "Env words.");
        assert_eq!(campus.upstream.requests()[2].header("authorization"), Some("Bearer sk-env"));
        // The profile decides about its model.
        campus.put_profile(ALPHA, "home-assistant", json!({"prompt": "x", "model": MODEL})).await;
        let answer = campus.chat(&ana, json!({"message": "Hi", "agent": "home-assistant"}), "Fine.").await;
        assert_eq!((&answer["model"], &campus.last_asked()["model"]), (&json!(MODEL), &json!(MODEL)));
    }
}

#[tokio::test]
async fn a_tenant_has_an_upstream_and_a_key_of_its_own_and_no_other_hears_of_them() {
    // RNCC-01, RNCC-41, S14
    for store in stores() {
        let (upstream, other) = (Upstream::start(), Upstream::start());
        let setup = two_upstreams(&upstream, &other).env("OPENAI_API_KEY", "sk-env");
        let campus = Campus::around(&store, setup, upstream).await;
        campus.configure(BETA, json!({"upstream": "other", "api_key": "sk-beta"})).await;
        campus.configure(GAMMA, json!({"upstream": "other"})).await;
        let answer = |id: &str| super::campus::whole(&Script::text(&["Fine."]), id);
        other.enqueue(answer("resp_b"));
        other.enqueue(answer("resp_c"));
        campus.chat(&campus.user(ALPHA, "ana"), json!({"message": "alpha's"}), "Fine.").await;
        let told = campus.told(&campus.user(BETA, "ben"), json!({"message": "beta's"})).await;
        assert_eq!(told["response_id"], "resp_b");
        campus.told(&campus.user(GAMMA, "cleo"), json!({"message": "gamma's"})).await;
        let heard = |upstream: &Upstream| -> Vec<(String, String)> {
            let key = |request: &Request| request.header("authorization").unwrap_or_default().to_owned();
            let asked = upstream.requests().into_iter().filter(|request| request.method == "POST");
            asked.map(|request| (key(&request), said(&request.json())[0].1.clone())).collect()
        };
        let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        assert_eq!(heard(&campus.upstream), [pair("Bearer sk-env", "alpha's")]);
        assert_eq!(heard(&other), [pair("Bearer sk-beta", "beta's"), pair("Bearer sk-other", "gamma's")]);
        // A tenant's key is stored sealed and never shown.
        let shown = campus.admin(BETA).get("/admin/configs/2").await;
        assert_eq!(shown.json()["has_api_key"], true);
        assert!(!shown.text().contains("sk-beta"), "{}", shown.text());
        assert_ne!(store.holds("sk-beta"), Some(true));
        assert!(!campus.amalgam.stderr().contains("sk-beta"));
    }
}

#[tokio::test]
async fn a_user_is_known_upstream_by_a_salted_hash_or_not_at_all() {
    // RNCC-42
    for store in stores() {
        let campus = Campus::on(&store).await;
        let users = ["ana.maria@example.com", "ben@example.com"];
        let mut identifiers: Vec<Value> = Vec::new();
        for salt in [Value::Null, json!("one"), json!("one"), json!("two")] {
            campus.configure(ALPHA, json!({"safety_salt": salt})).await;
            for user in users {
                campus.says(&[detail("call_1"), Script::text(&["Fine."])]);
                campus.told(&campus.user(ALPHA, user), json!({"agent": "course-assistant", "message": "Hi"})).await;
                let asked = campus.asked();
                let [.., before, last] = asked.as_slice() else { panic!("the model was asked twice") };
                assert_eq!(before["safety_identifier"], last["safety_identifier"], "every call of a turn has it");
                identifiers.push(last["safety_identifier"].clone());
            }
        }
        let [none_a, none_b, one_a, one_b, again_a, again_b, two_a, two_b] = identifiers.as_slice() else { panic!() };
        assert_eq!((none_a, none_b), (&Value::Null, &Value::Null));
        assert_eq!((one_a, one_b), (again_a, again_b), "the same user is the same");
        assert!(one_a != one_b && one_a != two_a && one_b != two_b, "{identifiers:?}");
        assert_eq!(*one_a, safety_identifier("one", 1, users[0]));
        for request in campus.upstream.requests() {
            let headers: Vec<String> = request.headers.values().map(|value| format!("{value:?}")).collect();
            let all = format!("{} {} {}", request.path, headers.join(" "), String::from_utf8_lossy(&request.body));
            for user in users {
                assert!(!all.contains(user), "{all}");
            }
            assert!(!all.contains("am_alpha"), "{all}");
        }
    }
}
