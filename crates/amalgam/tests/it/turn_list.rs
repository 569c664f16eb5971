//! The list of turns and the usage: every turn of every wire, stored or not, while it runs and after it.

use amalgam_testkit::{Client, Gate, Reply};
use serde_json::{Value, json};

use crate::support::{
    Cli, Delivery, SOON, Script, Wire, World, asking, eventually, id_of, last_response, setup, stores,
};

/// The rows of the list for a query.
async fn rows(client: &Client, query: &str) -> Vec<Value> {
    let list = client.get(&format!("/admin/turns?{query}")).await;
    assert_eq!(list.status, 200, "{}", list.text());
    list.json()["data"].as_array().expect("a list has data").clone()
}

async fn usage(client: &Client, query: &str) -> Value {
    let report = client.get(&format!("/admin/usage?{query}")).await;
    assert_eq!(report.status, 200, "{}", report.text());
    report.json()
}

/// The one row of a turn, once it has ended: turns that are not stored are written a moment after their answer.
async fn ended_row(client: &Client, id: &str) -> Value {
    eventually("the turn is listed with its end", SOON, async || {
        let rows = rows(client, "limit=200").await;
        rows.into_iter().find(|row| row["id"] == id && !row["duration_ms"].is_null())
    })
    .await
}

#[tokio::test]
async fn every_turn_is_listed_with_where_it_came_from_and_what_it_used() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        for delivery in [Delivery::Whole, Delivery::Stream] {
            for stored in [true, false] {
                let what = format!("{} {delivery:?} {stored}", store.name);
                let request_id = format!("req-{delivery:?}-{stored}");
                world.upstream(Wire::Chat).enqueue(Script::text(&["All ", "well."]).reply(Wire::Chat, delivery));
                let request = asking(Wire::Chat, delivery, &json!({"input": "Hi there", "store": stored}));
                let caller = client.clone().with_header("x-request-id", &request_id);
                let answer = caller.post_json("/v1/responses", &request).await;
                let response = match delivery {
                    Delivery::Whole => answer.json(),
                    Delivery::Stream => last_response(&answer.json_events()),
                };
                let row = ended_row(&client, id_of(&response)).await;
                let facts = json!({
                    "object": "turn.row", "tenant_id": 1, "request_id": request_id, "door": "responses",
                    "status": "completed", "error": null, "requested_model": request["model"], "calls": 1,
                    "retries": 0, "stored": stored, "cost_usd": null, "tools": [],
                });
                for (name, value) in facts.as_object().expect("an object") {
                    assert_eq!(&row[name], value, "{what}: {name} of {row}");
                }
                assert_eq!(row["input_tokens"], response["usage"]["input_tokens"], "{what}");
                assert_eq!(row["output_tokens"], response["usage"]["output_tokens"], "{what}");
                assert!(row["upstream"].is_string() && row["model"].is_string(), "{what}: {row}");
                let turn = client.get(&format!("/admin/turns/{request_id}")).await.json();
                assert_eq!((&turn["id"], &turn["summary"]), (&response["id"], &row), "{what}: found by its request");
                assert_eq!(turn["response"].is_null(), !stored, "{what}: {turn}");
                assert_eq!(turn["calls"].as_array().map(Vec::len), Some(usize::from(stored)), "{what}");
            }
        }
        let found = rows(&client, "q=hi%20THERE&door=responses&status=completed&user=key%3Aconfig").await;
        assert_eq!(found.len(), 2, "{}: the text of stored turns is searched", store.name);
        assert_eq!(rows(&client, "status=failed").await, Vec::<Value>::new());

        // The usage is the sum of the turns.
        let all = rows(&client, "limit=200").await;
        let sum = |name: &str| all.iter().map(|row| row[name].as_u64().unwrap_or_default()).sum::<u64>();
        let report = usage(&client, "group_by=tenant,door,model,day").await;
        let [total] = report["data"].as_array().expect("data").as_slice() else { panic!("{report}") };
        assert_eq!((&total["tenant"], &total["door"], &total["turns"]), (&json!(1), &json!("responses"), &json!(4)));
        for name in ["input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "calls"] {
            assert_eq!(total[name], sum(name), "{}: {name}", store.name);
        }
        assert_eq!((&total["cost_usd"], &total["unpriced_calls"]), (&Value::Null, &json!(4)), "no price is known");
        let csv = client.clone().with_header("accept", "text/csv").get("/admin/usage?group_by=model").await;
        assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
        let lines: Vec<String> = csv.text().lines().map(ToOwned::to_owned).collect();
        assert!(lines.len() == 2 && lines[0].starts_with("model,turns,failed_turns,calls,"), "{lines:?}");

        let cli = Cli::beside(&world.amalgam, &store);
        let listed = cli.json(&["turns", "list"]);
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(4), "{}", store.name);
        let shown = cli.json(&["turns", "show", "req-Whole-true"]);
        assert_eq!(shown["summary"]["request_id"], "req-Whole-true");
        assert_eq!(cli.json(&["usage"])["data"][0]["turns"], 4);
    }
}

#[tokio::test]
async fn a_failed_turn_is_listed_with_its_error_and_counted_as_failed() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[("retries", "0")]).await;
        let client = world.amalgam.client();
        for stored in [true, false] {
            world.upstream(Wire::Chat).enqueue(Reply::status(500));
            let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "store": stored}));
            assert_eq!(client.post_json("/v1/responses", &request).await.status, 502);
        }
        let failed = eventually("both are listed", SOON, async || {
            let rows = rows(&client, "status=failed").await;
            (rows.len() == 2).then_some(rows)
        })
        .await;
        assert!(failed.iter().all(|row| row["error"].is_string() && row["calls"] == 1), "{}: {failed:?}", store.name);
        let report = usage(&client, "").await;
        assert_eq!((&report["data"][0]["turns"], &report["data"][0]["failed_turns"]), (&json!(2), &json!(2)));
    }
}

#[tokio::test]
async fn a_running_turn_is_listed_and_followed_live() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        for stored in [true, false] {
            let what = format!("{} {stored}", store.name);
            let gate = Gate::new();
            let reply = Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).behind(&gate);
            world.upstream(Wire::Chat).enqueue(reply);
            let mut tail = client
                .try_stream(
                    http::Method::GET,
                    &format!("/admin/turns/tail?user=key%3Aconfig&request_id=live-{stored}"),
                    &[],
                    bytes::Bytes::new(),
                )
                .await
                .expect("the live list opens");
            let caller = client.clone().with_header("x-request-id", &format!("live-{stored}"));
            let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi", "store": stored}));
            let mut stream = caller.post_stream("/v1/responses", &request).await;
            let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
            let running = rows(&client, "status=in_progress").await;
            assert_eq!(running.iter().map(|row| &row["id"]).collect::<Vec<_>>(), [&json!(id)], "{what}");
            let seen = tail.next_event().await.expect("an event").json();
            assert_eq!((&seen["id"], &seen["status"]), (&json!(id), &json!("in_progress")), "{what}");
            gate.open();
            stream.rest().await;
            let seen = tail.next_event().await.expect("an event").json();
            assert_eq!((&seen["id"], &seen["status"]), (&json!(id), &json!("completed")), "{what}");
        }
    }
}

#[tokio::test]
async fn callers_list_their_own_stored_responses() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let anna = client.clone().with_header("x-amalgam-user", "anna");
        let mut ids = Vec::new();
        for (user, stored) in [("anna", true), ("bert", true), ("anna", false), ("anna", true), ("anna", true)] {
            world.upstream(Wire::Chat).enqueue(Script::text(&["a"]).reply(Wire::Chat, Delivery::Whole));
            let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "store": stored}));
            let caller = client.clone().with_header("x-amalgam-user", user);
            let response = caller.post_json("/v1/responses", &request).await.json();
            if user == "anna" && stored {
                ids.insert(0, id_of(&response).to_owned());
            }
        }
        let first = anna.get("/v1/responses?limit=2").await.json();
        let listed = |page: &Value| -> Vec<String> {
            let data = page["data"].as_array().expect("data").iter();
            data.map(|response| id_of(response).to_owned()).collect()
        };
        assert_eq!((listed(&first), &first["has_more"]), (ids[..2].to_vec(), &json!(true)), "{}", store.name);
        let last = first["last_id"].as_str().expect("an id");
        let second = anna.get(&format!("/v1/responses?after={last}")).await.json();
        assert_eq!((listed(&second), &second["has_more"]), (ids[2..].to_vec(), &json!(false)), "{}", store.name);
        let path = format!("/v1/responses/{}", ids[0]);
        let deleted = anna.request(http::Method::DELETE, &path, &[], bytes::Bytes::new());
        assert_eq!(deleted.await.status, 200);
        assert_eq!(listed(&anna.get("/v1/responses").await.json()), ids[1..], "{}", store.name);
        assert_eq!(anna.get("/v1/responses?after=resp_x").await.status, 400);
    }
}

#[tokio::test]
async fn the_list_and_the_usage_refuse_what_they_cannot_read_and_whom_they_must_not_show() {
    let world = World::with(setup(), &[]).await;
    let client = world.amalgam.client();
    for (path, param) in [
        ("/admin/turns?door=window", "door"),
        ("/admin/turns?from=yesterday", "from"),
        ("/admin/turns?limit=0", "limit"),
        ("/admin/usage?group_by=colour", "group_by"),
        ("/admin/usage?format=xml", "format"),
    ] {
        let answer = client.get(path).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (400, &json!(param)), "{path}");
    }
    // A key of the configuration administers its own tenant only.
    for path in
        ["/admin/turns?tenant=2", "/admin/turns?tenant=all", "/admin/usage?tenant=all", "/admin/turns/tail?tenant=2"]
    {
        assert_eq!(client.get(path).await.status, 403, "{path}");
    }
}

#[tokio::test]
async fn a_turn_costs_what_its_model_is_configured_to_cost() {
    for store in stores() {
        let (upstream, model) = (Wire::Chat.kind(), Wire::Chat.model());
        let priced = format!(
            "[models.priced]\nupstream = \"{upstream}\"\nmodel = \"{model}\"\n\
             [models.priced.price]\ninput = 2.5\ncached_input = 1\noutput = 10"
        );
        let world = World::with(store.setup(setup().extra(&priced)), &[]).await;
        let client = world.amalgam.client();
        for name in ["priced".to_owned(), format!("{upstream}/{model}")] {
            world.upstream(Wire::Chat).enqueue(Script::text(&["All ", "well."]).reply(Wire::Chat, Delivery::Whole));
            let answer = client.post_json("/v1/responses", &json!({"model": name, "input": "Hi"})).await;
            let row = ended_row(&client, id_of(&answer.json())).await;
            let tokens = |name: &str| row[name].as_f64().expect("a count");
            let plain = tokens("input_tokens") - tokens("cached_input_tokens");
            let micro_usd = plain * 2.5 + tokens("cached_input_tokens") + tokens("output_tokens") * 10.0;
            let cost = row["cost_usd"].as_f64().expect("the price is known");
            assert!(micro_usd > 0.0 && (cost - micro_usd / 1e6).abs() < 1e-12, "{} {name}: {row}", store.name);
        }
        let report = usage(&client, "group_by=model").await;
        let total = &report["data"][0];
        assert_eq!((&total["turns"], &total["unpriced_calls"]), (&json!(2), &json!(0)), "{}: {report}", store.name);
        assert!(total["cost_usd"].as_f64() > Some(0.0), "{}: {report}", store.name);
        let dear = rows(&client, "min_cost_usd=0.000001").await;
        assert_eq!((dear.len(), rows(&client, "min_cost_usd=1").await.len()), (2, 0), "{}", store.name);
        let counts = [
            rows(&client, "max_cost_usd=1").await.len(),
            rows(&client, "max_cost_usd=0.0000001").await.len(),
            rows(&client, "max_duration_ms=600000").await.len(),
            rows(&client, "min_duration_ms=600000").await.len(),
        ];
        assert_eq!(counts, [2, 0, 2, 0], "{}", store.name);
        let cli = Cli::beside(&world.amalgam, &store);
        let listed = |flags: &[&str]| {
            let listed = cli.json(&[&["turns", "list"], flags].concat());
            listed["data"].as_array().map(Vec::len)
        };
        assert_eq!(listed(&["--min-cost-usd", "0.000001", "--max-cost-usd", "1"]), Some(2), "{}", store.name);
        assert_eq!(listed(&["--max-cost-usd", "0"]), Some(0), "{}", store.name);
        assert_eq!(listed(&["--min-duration-ms", "0", "--max-duration-ms", "600000"]), Some(2), "{}", store.name);
    }
}
