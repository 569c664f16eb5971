//! The tool bank over HTTP: tools are put, shown, tried and taken away; what they hold back stays back.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

mod approvals;
mod commands;

use amalgam_testkit::{Client, HttpAnswer, Reply, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Cli, Delivery, Said, Script, TestStore, Wire, World, asking, assert_refused, error_of, stores};

const BOOT: &str = "boot-0123456789";
const SECRET: &str = "hush-service-key-0123456789";
const TENANTS: &str =
    "[tenants.a]\nid = 1\nkeys = [\"am_a-0123456789\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b-0123456789\"]\n";

/// A server with two tenants, and a service that its tools may reach.
struct Shop {
    world: World,
    service: Upstream,
}

impl Shop {
    async fn open(store: &TestStore) -> Self {
        Self::with(store, "").await
    }

    /// The same with this in its configuration.
    async fn with(store: &TestStore, toml: &str) -> Self {
        let service = Upstream::start();
        let reach = format!("[egress]\nallow_private = [\"{}\"]\n", service.address());
        let setup = Setup::new().env("AMALGAM_BOOTSTRAP_KEY", BOOT).extra(TENANTS).extra(&reach).extra(toml);
        Self { world: World::with(store.setup(setup), &[]).await, service }
    }

    fn client(&self, key: &str) -> Client {
        Client::new(self.world.amalgam.url()).with_key(key)
    }

    fn a(&self) -> Client {
        self.client("am_a-0123456789")
    }

    fn b(&self) -> Client {
        self.client("am_b-0123456789")
    }

    fn operator(&self) -> Client {
        self.client(BOOT)
    }

    /// A tool that asks the service.
    fn lookup(&self) -> Value {
        json!({
            "kind": "http",
            "description": "Looks up an order.",
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}},
                "required": ["order_id"],
                "additionalProperties": false,
            },
            "settings": {
                "method": "POST",
                "url": format!("{}/orders/{{order_id}}", self.service.url()),
                "headers": {"x-api-key": {"secret": SECRET}, "x-version": "2"},
            },
            "timeout": "10s",
        })
    }

    /// A turn of a model that calls the tool once and then answers.
    async fn turn(&self, client: &Client, name: &str, arguments: &str) -> Value {
        let call = Script::new([Said::call("call_1", name, &[arguments])]);
        for script in [call, Script::text(&["Done."])] {
            self.world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
        }
        let request = json!({"input": "Where is it?", "tools": [{"type": "function", "name": name}]});
        let answer = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json")];
    client.request(method, path, &headers, body.to_string().into()).await
}

async fn put(client: &Client, path: &str, body: &Value) -> HttpAnswer {
    send(client, Method::PUT, path, body).await
}

/// Puts a tool and wants that to succeed.
async fn kept(client: &Client, path: &str, body: &Value) -> Value {
    let answer = put(client, path, body).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    answer.json()
}

fn names(page: &Value) -> Vec<(&str, bool)> {
    let tools = page["data"].as_array().unwrap().iter();
    tools.map(|tool| (tool["name"].as_str().unwrap(), tool["common"].as_bool().unwrap())).collect()
}

#[tokio::test]
async fn a_tool_is_put_shown_replaced_and_taken_away_and_its_secret_stays_where_it_is() {
    // S14, P12
    for store in stores() {
        let shop = Shop::open(&store).await;
        let a = shop.a();
        let made = put(&a, "/admin/tools/lookup_order", &shop.lookup()).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let mut expected = shop.lookup();
        expected["settings"]["headers"]["x-api-key"] = json!({"secret": "***"});
        for (name, value) in [
            ("name", json!("lookup_order")),
            ("object", json!("tool")),
            ("common", json!(false)),
            ("active", json!(true)),
            ("guidance", Value::Null),
            ("timeout", json!(10)),
            ("on_error", json!("continue")),
            ("idempotent", json!(false)),
            ("after_call_instruction", Value::Null),
            ("requires_approval", json!(false)),
            ("created_at", made["created_at"].clone()),
            ("updated_at", made["updated_at"].clone()),
        ] {
            expected[name] = value;
        }
        assert_eq!(made, expected);
        assert_eq!(a.get("/admin/tools/lookup_order").await.json(), made);
        assert_eq!(a.get("/admin/tools/LOOKUP_ORDER").await.json(), made, "names have no case");

        // What is shown may be sent back: the service still gets the secret.
        let mut again = made.clone();
        again["description"] = json!("Looks up one order.");
        let replaced = put(&a, "/admin/tools/lookup_order", &again).await;
        assert_eq!(replaced.status, 200, "{}", replaced.text());
        let replaced = replaced.json();
        assert_eq!(
            [&replaced["description"], &replaced["settings"], &replaced["created_at"]],
            [&again["description"], &made["settings"], &made["created_at"]]
        );
        shop.service.enqueue(Reply::json(json!({"status": "sent"})));
        let tried =
            a.post_json("/admin/tools/lookup_order/try", &json!({"arguments": {"order_id": "A 17"}})).await.json();
        assert_eq!([&tried["output"], &tried["error"]], [&json!({"status": "sent"}), &Value::Null], "{tried}");
        let request = shop.service.request(0);
        assert_eq!((request.path.as_str(), request.header("x-api-key")), ("/orders/A%2017", Some(SECRET)));
        assert!(request.header("idempotency-key").unwrap().starts_with("try_"), "{request:?}");

        // A tool whose address changes does not keep its secret.
        let mut elsewhere = made.clone();
        elsewhere["settings"]["url"] = json!("https://elsewhere.example.com/");
        let refused = put(&a, "/admin/tools/lookup_order", &elsewhere).await;
        assert_refused(&refused, 400, Some("settings.headers.x-api-key"), "invalid_value");
        let copied = json!({"kind": "http", "description": "x", "settings": made["settings"]});
        let refused = put(&a, "/admin/tools/another", &copied).await;
        assert_refused(&refused, 400, Some("settings.headers.x-api-key"), "invalid_value");

        // What is not said is as it usually is.
        let plain = kept(&a, "/admin/tools/lookup_order", &json!({"kind": "client", "description": "x"})).await;
        assert_eq!([&plain["timeout"], &plain["settings"]], [&json!(30), &json!({})]);
        let gone = send(&a, Method::DELETE, "/admin/tools/lookup_order", &Value::Null).await.json();
        assert_eq!(gone, json!({"id": "lookup_order", "object": "tool.deleted", "deleted": true}));
        for method in [Method::GET, Method::DELETE] {
            assert_refused(&send(&a, method, "/admin/tools/lookup_order", &Value::Null).await, 404, None, "not_found");
        }
        assert!(!shop.world.amalgam.stderr().contains(SECRET));
    }
}

#[tokio::test]
async fn a_tool_that_could_not_work_is_refused_and_its_field_is_named() {
    let shop = Shop::open(&stores()[0]).await;
    let a = shop.a();
    let changed = |change: fn(&mut Value)| {
        let mut tool = shop.lookup();
        change(&mut tool);
        tool
    };
    for (body, param) in [
        (changed(|tool| tool["parameters"] = json!({"type": 7})), "parameters"),
        (changed(|tool| tool["parameters"] = json!({"$ref": "https://example.com/schema.json"})), "parameters"),
        (changed(|tool| tool["settings"]["url"] = json!("ftp://example.com")), "settings.url"),
        (changed(|tool| tool["settings"]["url"] = json!("https://{order_id}/")), "settings.url"),
        (changed(|tool| tool["settings"]["command"] = json!("rm")), "settings.command"),
        (
            changed(|tool| tool["settings"]["headers"]["x-api-key"] = json!({"sealed": "x"})),
            "settings.headers.x-api-key",
        ),
        (changed(|tool| tool["timeout"] = json!("1ms")), "timeout"),
        (changed(|tool| tool["timeout"] = json!(601)), "timeout"),
        (changed(|tool| tool["kind"] = json!("stdio")), "kind"),
        (changed(|tool| tool["description"] = Value::Null), "description"),
        (changed(|tool| tool["name"] = json!("another")), "name"),
        (changed(|tool| tool["common"] = json!(true)), "common"),
        (changed(|tool| tool["tenant_id"] = json!(2)), "tenant_id"),
        (json!({"kind": "builtin"}), "settings.function"),
    ] {
        let answer = put(&a, "/admin/tools/lookup_order", &body).await;
        assert_eq!((answer.status.as_u16(), error_of(&answer)["param"].as_str()), (400, Some(param)), "{body}");
    }
    let answer = put(&a, "/admin/tools/look%20up", &shop.lookup()).await;
    assert_refused(&answer, 400, Some("name"), "invalid_value");
    for (text, status) in [("{", 400), ("[]", 400), (&"x".repeat(300_000), 413)] {
        let headers = [("content-type", "application/json")];
        let answer = a.request(Method::PUT, "/admin/tools/lookup_order", &headers, text.to_owned().into()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    assert_eq!(a.get("/admin/tools").await.json()["data"], json!([]), "nothing of it was kept");
}

#[tokio::test]
async fn a_trial_runs_a_tool_outside_of_any_turn_and_tells_how_it_went() {
    let shop = Shop::open(&stores()[0]).await;
    let a = shop.a();
    let mut tool = shop.lookup();
    tool["active"] = json!(false);
    tool["timeout"] = json!(0.5);
    kept(&a, "/admin/tools/lookup_order", &tool).await;
    let good = json!({"arguments": {"order_id": "1"}});
    let tried = async |body: &Value| a.post_json("/admin/tools/lookup_order/try", body).await.json();

    let wrong = tried(&json!({"arguments": {"order_id": 1}})).await;
    assert_eq!([&wrong["output"], &wrong["error"]["code"]], [&Value::Null, &json!("invalid_arguments")]);
    assert!(wrong["error"]["message"].as_str().unwrap().contains("order_id"), "{wrong}");
    assert_eq!(tried(&json!({})).await["error"]["code"], "invalid_arguments");
    assert_eq!(shop.service.requests().len(), 0, "nothing runs before its arguments are checked");
    for (reply, code) in [
        (Reply::json(json!([1])), Value::Null),
        (Reply::status(404), json!("refused")),
        (Reply::status(302).header("location", "http://127.0.0.1/"), json!("refused")),
        (Reply::close(), json!("broken")),
        (Reply::bytes("text/plain", vec![b'x'; 2_000_000]), json!("too_large")),
        (Reply::hang(), json!("timed_out")),
    ] {
        shop.service.enqueue(reply);
        let told = tried(&good).await;
        assert_eq!(told["error"].get("code").unwrap_or(&Value::Null), &code, "{told}");
        assert!(told["duration_ms"].is_u64(), "{told}");
    }

    kept(&a, "/admin/tools/ask_user", &json!({"kind": "client", "description": "Asks."})).await;
    assert_eq!(a.post_json("/admin/tools/ask_user/try", &json!({})).await.status, 400);
    assert_eq!(a.post_json("/admin/tools/unknown/try", &good).await.status, 404);
    assert_refused(
        &a.post_json("/admin/tools/lookup_order/try", &json!({"argument": {}})).await,
        400,
        Some("argument"),
        "unknown_parameter",
    );
}

#[tokio::test]
async fn common_tools_are_there_for_every_tenant_and_changed_by_operators_alone() {
    // P10
    for store in stores() {
        let shop = Shop::open(&store).await;
        let (a, b, operator) = (shop.a(), shop.b(), shop.operator());
        kept(&operator, "/admin/tools/current_time?common=true", &json!({"kind": "builtin"})).await;
        kept(&operator, "/admin/tools/shared?common=true", &json!({"kind": "client", "description": "Common."})).await;
        kept(&a, "/admin/tools/Alpha", &json!({"kind": "client", "description": "x"})).await;
        let own = kept(&a, "/admin/tools/shared", &json!({"kind": "client", "description": "Own."})).await;
        assert_eq!(own["common"], json!(false));

        let expected = [("Alpha", false), ("current_time", true), ("shared", false)];
        assert_eq!(names(&a.get("/admin/tools").await.json()), expected, "{}", store.name);
        let first = a.get("/admin/tools?limit=2").await.json();
        assert_eq!((names(&first), &first["has_more"]), (expected[..2].to_vec(), &json!(true)));
        let rest = a.get("/admin/tools?limit=2&after=current_time").await.json();
        assert_eq!((names(&rest), &rest["has_more"]), (expected[2..].to_vec(), &json!(false)));
        assert_eq!(names(&b.get("/admin/tools").await.json()), [("current_time", true), ("shared", true)]);
        let common = a.get("/admin/tools/shared?common=true").await.json();
        assert_eq!([&common["description"], &common["common"]], [&json!("Common."), &json!(true)]);
        assert_eq!(a.get("/admin/tools/shared").await.json()["description"], "Own.");
        assert_eq!(b.get("/admin/tools/shared").await.json(), common);
        assert_eq!(names(&b.get("/admin/tools?common=true").await.json()), [("current_time", true), ("shared", true)]);

        // The built-in tool has defaults for what the request leaves out.
        let time = b.get("/admin/tools/current_time").await.json();
        assert!(time["parameters"]["type"] == "object" && time["description"].is_string(), "{time}");
        let tried = b.post_json("/admin/tools/current_time/try", &json!({})).await.json();
        assert!(tried["error"].is_null() && !tried["output"].is_null(), "{tried}");

        for method in [Method::PUT, Method::DELETE] {
            let body = json!({"kind": "client", "description": "Mine now."});
            let refused = send(&b, method, "/admin/tools/shared?common=true", &body).await;
            assert_refused(&refused, 403, None, "insufficient_permissions");
        }
        let missing = send(&b, Method::DELETE, "/admin/tools/shared", &Value::Null).await;
        assert_refused(&missing, 404, None, "not_found");
        assert_eq!(b.get("/admin/tools/shared").await.json(), common, "nothing of this changed anything");
        assert_eq!(send(&operator, Method::DELETE, "/admin/tools/shared?common=true", &Value::Null).await.status, 200);
        assert_eq!(b.get("/admin/tools/shared").await.status, 404);
        assert_eq!(a.get("/admin/tools/shared").await.json(), own);
    }
}

#[tokio::test]
async fn guidance_on_tools_becomes_one_block_in_the_order_of_their_names() {
    // R003-20, R003-21, R003-22, R003-23
    for store in stores() {
        let shop = Shop::open(&store).await;
        let a = shop.a();
        for (name, guidance) in
            [("zeta", Some(" First.\nThen. \n")), ("alpha", Some("Second.")), ("mute", None), ("away", Some("Gone."))]
        {
            let body = json!({"kind": "client", "description": "x", "guidance": guidance, "active": name != "away"});
            kept(&a, &format!("/admin/tools/{name}"), &body).await;
        }
        let block = a.get("/admin/tools/usage?names=zeta,mute,away,unknown,alpha").await.json();
        let expected = "<<<APTIX_SERVER_TOOL_USAGE_METADATA_BEGIN>>>\n\
            <<<APTIX_TOOL_USAGE_BEGIN name='zeta'>>>\nFirst.\nThen.\n<<<APTIX_TOOL_USAGE_END name='zeta'>>>\n\n\
            <<<APTIX_TOOL_USAGE_BEGIN name='alpha'>>>\nSecond.\n<<<APTIX_TOOL_USAGE_END name='alpha'>>>\n\n\
            <<<APTIX_SERVER_TOOL_USAGE_METADATA_END>>>\n";
        assert_eq!(block["block"], expected, "{}", store.name);
        assert_eq!(a.get("/admin/tools/usage?names=mute").await.json()["block"], Value::Null);
        assert_eq!(shop.b().get("/admin/tools/usage?names=zeta").await.json()["block"], Value::Null, "not theirs");
        assert_refused(&a.get("/admin/tools/usage").await, 400, Some("names"), "missing_required_parameter");
        assert_eq!(put(&a, "/admin/tools/usage", &json!({"kind": "client", "description": "x"})).await.status, 405);
    }
}

#[tokio::test]
async fn the_calls_of_a_turn_are_shown_with_it_and_counted() {
    for store in stores() {
        let shop = Shop::open(&store).await;
        let a = shop.a();
        kept(&a, "/admin/tools/lookup_order", &shop.lookup()).await;
        let none = a.get("/admin/tools/lookup_order/statistics").await.json();
        assert_eq!(
            none,
            json!({"name": "lookup_order", "object": "tool.statistics", "calls": 0, "failed": 0, "unknown": 0,
                "average_ms": null, "longest_ms": null, "last_called_at": null})
        );
        shop.service.enqueue(Reply::json(json!({"status": "sent"})));
        let good = shop.turn(&a, "lookup_order", r#"{"order_id": "1"}"#).await;
        shop.service.enqueue(Reply::status(500));
        shop.turn(&a, "lookup_order", r#"{"order_id": "2"}"#).await;

        let turn = a.get(&format!("/admin/turns/{}", good["id"].as_str().unwrap())).await.json();
        let [call] = turn["tool_calls"].as_array().unwrap().as_slice() else { panic!("{turn}") };
        let expected = json!({
            "number": 0, "item_id": call["item_id"], "call_id": call["call_id"], "label": "bank", "name": "lookup_order",
            "arguments": "{\"order_id\": \"1\"}", "idempotent": false, "started_at": call["started_at"], "unknown": false,
            "duration_ms": call["duration_ms"], "output": {"status": "sent"}, "error": null, "detail": null,
        });
        assert_eq!(call, &expected);
        let shown = good["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_call").unwrap();
        assert_eq!(shown["id"], call["item_id"], "{good}");

        let counted = a.get("/admin/tools/lookup_order/statistics?since=1700000000").await.json();
        assert_eq!([&counted["calls"], &counted["failed"], &counted["unknown"]], [2, 1, 0], "{counted}");
        assert!(counted["average_ms"].is_u64() && counted["longest_ms"].is_u64(), "{counted}");
        assert!(counted["last_called_at"].as_u64() >= call["started_at"].as_u64(), "{counted}");
        let told = Cli::beside(&shop.world.amalgam, &store).json(&[
            "tools",
            "statistics",
            "lookup_order",
            "--company-id",
            "1",
        ]);
        assert_eq!(told, counted, "{}: the terminal tells the same", store.name);
        let later = a.get("/admin/tools/lookup_order/statistics?since=4102444800").await.json();
        assert_eq!([&later["calls"], &later["last_called_at"]], [&json!(0), &Value::Null]);
        assert_eq!(shop.b().get("/admin/tools/lookup_order/statistics").await.status, 404);
    }
}
