//! MCP servers as tools: listed and run by the server, for every kind of upstream.

use amalgam_testkit::{Reply, Request, Upstream, check};
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, MCP_TOOLS, Said, Script, WIRES, Wire, Workshop, asking, asks, assert_calm, assert_refused,
    calls, checked_events, error_of, id_of, last_response, mcp_answer, mcp_requests, named, put_tool, response_of,
    retrieved, serve_mcp, setup, shown, stores, text_of, told, types,
};

const AUTHORIZATION: &str = "hush-mcp-authorization-0123456789";
const HEADER: &str = "hush-mcp-header-0123456789";

/// The server as a request names it; `extra` is said about it besides.
fn server(workshop: &Workshop, extra: Value) -> Value {
    let url = format!("{}/mcp", workshop.service.url());
    let mut tool = json!({"type": "mcp", "server_label": "city", "server_url": url, "require_approval": "never"});
    for (key, value) in extra.as_object().expect("fields are an object") {
        tool[key] = value.clone();
    }
    tool
}

fn request(tool: Value) -> Value {
    json!({"input": "What about Oslo?", "tools": [tool]})
}

#[tokio::test]
async fn a_server_is_listed_called_and_shown_on_every_wire() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        serve_mcp(&workshop.service);
        for wire in WIRES {
            for delivery in DELIVERIES {
                for path in ["mcp", "mcp-stream"] {
                    let place = format!("{} {wire:?} {delivery:?} {path}", store.name);
                    let url = format!("{}/{path}", workshop.service.url());
                    let request = request(server(&workshop, json!({"server_url": url})));
                    let scripts = [calls("call_1", "city__lookup", "Oslo"), Script::text(&["Found."])];
                    let response = workshop.turn(wire, delivery, &scripts, &request).await;
                    assert_eq!(
                        shown(&response),
                        ["mcp_list_tools", r#"city/lookup({"city":"Oslo"}) completed"#, "message"],
                        "{place}"
                    );
                    let listed: Vec<_> = response["output"][0]["tools"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|tool| tool["name"].as_str().unwrap())
                        .collect();
                    assert_eq!(listed, MCP_TOOLS, "{place}");
                    assert_eq!(response["output"][1]["output"], r#"lookup {"city":"Oslo"}"#, "{place}");
                    assert_eq!(
                        told(&workshop.world.sent(wire))[1..],
                        [
                            ("call".to_owned(), r#"city__lookup{"city":"Oslo"}"#.to_owned()),
                            ("output".to_owned(), r#"lookup {"city":"Oslo"}"#.to_owned()),
                        ],
                        "{place}"
                    );
                    assert_eq!(retrieved(&workshop.client(), id_of(&response)).await, response);
                    // What was listed is not listed once more, and the next model receives the pair.
                    let mut more = request.clone();
                    more["previous_response_id"] = response["id"].clone();
                    more["input"] = json!("And now?");
                    let response = workshop.turn(Wire::Chat, delivery, &[Script::text(&["Still."])], &more).await;
                    assert_eq!(shown(&response), ["message"], "{place}");
                    assert_eq!(workshop.told(Wire::Chat)[1].1, r#"city__lookup{"city":"Oslo"}"#, "{place}");
                }
            }
        }
        // One session for all of it.
        assert_eq!(mcp_requests(&workshop.service, "initialize").len(), 2, "one for each address");
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn a_streamed_turn_begins_with_the_list() {
    let workshop = Workshop::on(&stores()[0]).await;
    serve_mcp(&workshop.service);
    for wire in WIRES {
        workshop.script(wire, Delivery::Stream, &[calls("call_1", "city__broken", "Oslo"), Script::text(&["Sorry."])]);
        let asked = asking(wire, Delivery::Stream, &request(server(&workshop, json!({}))));
        let answer = workshop.client().post_json("/v1/responses", &asked).await;
        let events = checked_events(&answer);
        let expected = [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.completed",
            "response.output_item.done",
            "response.output_item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.failed",
            "response.output_item.done",
        ];
        assert_eq!(types(&events)[..expected.len()], expected, "{wire:?}");
        let call = last_response(&events)["output"][1].clone();
        assert_eq!((&call["status"], &call["name"]), (&json!("failed"), &json!("broken")));
        assert!(call["error"].to_string().contains("it is broken"), "{call}");
    }
}

#[tokio::test]
async fn only_what_the_request_allows_is_offered() {
    let workshop = Workshop::on(&stores()[0]).await;
    serve_mcp(&workshop.service);
    let cases = [
        (json!(["book"]), vec!["book"]),
        (json!({"tool_names": ["lookup", "book"]}), vec!["lookup", "book"]),
        (json!({"read_only": true}), vec!["lookup"]),
    ];
    for (allowed, expected) in cases {
        let request = request(server(&workshop, json!({"allowed_tools": allowed})));
        // A model that calls another one all the same calls a tool that was not offered.
        let scripts = [calls("call_1", "city__broken", "Oslo"), Script::text(&["x"])];
        let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &request).await;
        let listed: Vec<_> =
            response["output"][0]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(json!(listed), json!(expected), "{allowed}");
        let offered = workshop.world.sent(Wire::Chat)["tools"].to_string();
        for name in MCP_TOOLS {
            assert_eq!(offered.contains(&format!("city__{name}")), expected.contains(&name), "{allowed}: {offered}");
        }
        let record = workshop.turn_record(id_of(&response)).await;
        assert_eq!(record["tool_calls"][0]["error"], "unknown_tool", "{record}");
    }
    assert_eq!(mcp_requests(&workshop.service, "tools/call").len(), 0);
    let nothing = asking(Wire::Chat, Delivery::Whole, &request(server(&workshop, json!({"allowed_tools": []}))));
    let answer = workshop.client().post_json("/v1/responses", &nothing).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[tokio::test]
async fn a_choice_of_a_server_is_a_choice_of_its_tools() {
    let workshop = Workshop::on(&stores()[0]).await;
    serve_mcp(&workshop.service);
    let mut request = request(server(&workshop, json!({})));
    request["tool_choice"] = json!({"type": "mcp", "server_label": "city", "name": "book"});
    let scripts = [calls("call_1", "city__book", "Oslo"), Script::text(&["Booked."])];
    let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &request).await;
    assert_eq!(shown(&response)[1], r#"city/book({"city":"Oslo"}) completed"#);
    let sent = workshop.world.upstream(Wire::Chat).request(0).json();
    // It has to call something, and there is nothing else.
    assert_eq!((&sent["tool_choice"], sent["tools"].as_array().map(Vec::len)), (&json!("required"), Some(1)), "{sent}");
    assert_eq!(sent["tools"][0]["function"]["name"], "city__book", "{sent}");
    request["tool_choice"]["name"] = json!("nothing");
    let asked = asking(Wire::Chat, Delivery::Whole, &request);
    let answer = workshop.client().post_json("/v1/responses", &asked).await;
    assert_refused(&answer, 400, Some("tool_choice"), "invalid_value");
}

#[tokio::test]
async fn calls_wait_for_an_approval_unless_the_request_says_otherwise() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        serve_mcp(&workshop.service);
        let always = server(&workshop, json!({"require_approval": null}));
        let some = server(&workshop, json!({"require_approval": {"never": {"tool_names": ["lookup"]}}}));
        for (wire, tool) in WIRES.into_iter().zip([&always, &some, &always]) {
            for delivery in DELIVERIES {
                let before = mcp_requests(&workshop.service, "tools/call").len();
                let asking = request(tool.clone());
                let first = workshop.turn(wire, delivery, &[calls("call_1", "city__book", "Oslo")], &asking).await;
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                assert_eq!(first["status"], "completed", "{place}");
                assert_eq!(shown(&first), ["mcp_list_tools", "mcp_approval_request"], "{place}");
                let asked = &first["output"][1];
                assert_eq!(
                    [&asked["server_label"], &asked["name"], &asked["arguments"]],
                    ["city", "book", r#"{"city":"Oslo"}"#],
                    "{place}"
                );
                assert_eq!(mcp_requests(&workshop.service, "tools/call").len(), before, "{place}");
                let word =
                    json!({"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": true});
                let granted = json!({"input": [word], "previous_response_id": id_of(&first), "tools": [tool]});
                let second = workshop.turn(wire, delivery, &[Script::text(&["Booked."])], &granted).await;
                assert_eq!(shown(&second), [r#"city/book({"city":"Oslo"}) completed"#, "message"], "{place}");
                assert_eq!(second["output"][0]["approval_request_id"], asked["id"]);
                assert_eq!(mcp_requests(&workshop.service, "tools/call").len(), before + 1, "{place}");
            }
        }
        // What needs no approval runs at once, beside what does.
        let both = Script::new([asks("call_1", "city__lookup", "Oslo"), asks("call_2", "city__book", "Oslo")]);
        let mixed = workshop.turn(Wire::Chat, Delivery::Stream, &[both], &request(some.clone())).await;
        assert_eq!(
            shown(&mixed),
            ["mcp_list_tools", r#"city/lookup({"city":"Oslo"}) completed"#, "mcp_approval_request"]
        );
    }
}

#[tokio::test]
async fn the_credentials_of_a_request_go_to_its_server_and_nowhere_else() {
    // P12
    for store in stores() {
        let workshop = Workshop::with(&store, setup().env("AMALGAM_LOG", "trace")).await;
        serve_mcp(&workshop.service);
        let tool = server(&workshop, json!({"authorization": AUTHORIZATION, "headers": {"x-city-key": HEADER}}));
        let mut said: Vec<(String, Vec<u8>)> = Vec::new();
        for wire in WIRES {
            for (delivery, background) in
                [(Delivery::Whole, false), (Delivery::Stream, false), (Delivery::Stream, true)]
            {
                let mut asked = asking(wire, delivery, &request(tool.clone()));
                asked["background"] = json!(background);
                workshop.script(wire, delivery, &[calls("call_1", "city__lookup", "Oslo"), Script::text(&["x"])]);
                let answer = workshop.client().post_json("/v1/responses", &asked).await;
                let response = response_of(delivery, &answer);
                said.push((format!("{wire:?} {delivery:?}"), answer.body.to_vec()));
                for path in ["/v1/responses", "/admin/turns"] {
                    let answer = workshop.client().get(&format!("{path}/{}", id_of(&response))).await;
                    assert_eq!(answer.status, 200);
                    said.push((path.to_owned(), answer.body.to_vec()));
                }
            }
            said.extend(
                workshop.world.upstream(wire).requests().iter().map(|sent| (format!("{wire:?}"), sent.body.to_vec())),
            );
        }
        let called = mcp_requests(&workshop.service, "tools/call");
        assert!(called.len() >= 6);
        for request in called {
            assert_eq!(request.header("authorization"), Some(format!("Bearer {AUTHORIZATION}").as_str()));
            assert_eq!(request.header("x-city-key"), Some(HEADER));
            // Never the caller's own.
            assert!(request.headers.values().all(|value| !value.to_str().unwrap().contains("am_workshop")));
        }
        assert_ne!(store.holds("What about Oslo?"), Some(false));
        for secret in [AUTHORIZATION, HEADER] {
            assert_ne!(store.holds(secret), Some(true), "{secret}");
        }
        for entry in std::fs::read_dir(workshop.world.amalgam.folder().join("data")).unwrap() {
            let path = entry.unwrap().path();
            said.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
        said.push(("log".to_owned(), workshop.world.amalgam.terminate().await.stderr.into_bytes()));
        for (place, bytes) in said {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(AUTHORIZATION) && !text.contains(HEADER), "{} {place}: {text}", store.name);
        }
    }
}

#[tokio::test]
async fn callers_with_credentials_of_their_own_never_share_one() {
    let workshop = Workshop::on(&stores()[0]).await;
    serve_mcp(&workshop.service);
    let headers = |token: &str| json!({"x-city-key": token});
    let credentials = [
        json!({}),
        json!({"authorization": "first"}),
        json!({"authorization": "second"}),
        json!({"headers": headers("third")}),
        json!({"headers": headers("fourth")}),
        json!({"authorization": "first"}),
        json!({}),
    ];
    for (number, extra) in credentials.iter().enumerate() {
        let scripts = [calls("call_1", "city__lookup", "Oslo"), Script::text(&["x"])];
        let request = request(server(&workshop, extra.clone()));
        workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &request).await;
        let sent = mcp_requests(&workshop.service, "tools/call").pop().unwrap();
        let token = extra["authorization"].as_str().map(|token| format!("Bearer {token}"));
        let found = (sent.header("authorization"), sent.header("x-city-key"));
        assert_eq!(found, (token.as_deref(), extra["headers"]["x-city-key"].as_str()), "{number}");
    }
    // What a server lists may depend on who asks, so each of the five was asked.
    assert_eq!(mcp_requests(&workshop.service, "tools/list").len(), 5);
}

#[tokio::test]
async fn a_server_that_cannot_be_asked_is_named_before_any_model_is() {
    let workshop = Workshop::on(&stores()[0]).await;
    let cases = [
        ("connection closed", Reply::close()),
        ("another thing", Reply::html(200, "hello")),
        ("an error", Reply::status(500)),
        ("too old", Reply::json(json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "1999-01-01"}}))),
    ];
    for (name, reply) in cases {
        workshop.service.always_for("/mcp", reply);
        for delivery in DELIVERIES {
            let asked = asking(Wire::Chat, delivery, &request(server(&workshop, json!({}))));
            let answer = workshop.client().post_json("/v1/responses", &asked).await;
            let error = error_of(&answer);
            assert_eq!(answer.status, 424, "{name}: {error}");
            assert_eq!(error["code"], "tool_server_unavailable", "{name}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("'city'") && !message.contains("127.0.0.1"), "{name}: {message}");
        }
    }
    for (extra, status) in [
        (json!({"server_url": null}), 400),
        (json!({"server_url": "nowhere"}), 400),
        (json!({"server_label": "two words"}), 400),
        // The bank's own: an approval of one would pass for one of the other.
        (json!({"server_label": "bank"}), 400),
        (json!({"server_label": "Bank"}), 400),
        (json!({"require_approval": "sometimes"}), 400),
    ] {
        let asked = asking(Wire::Chat, Delivery::Whole, &request(server(&workshop, extra.clone())));
        let answer = workshop.client().post_json("/v1/responses", &asked).await;
        assert_eq!(answer.status, status, "{extra}: {}", answer.text());
    }
    assert_eq!(workshop.world.upstream(Wire::Chat).requests().len(), 0);
}

#[tokio::test]
async fn a_server_of_the_operators_is_named_by_its_label_and_by_tools_of_the_bank() {
    for store in stores() {
        let remote = Upstream::start();
        serve_mcp(&remote);
        let place = |name: &str| format!("[mcp.{name}]\nurl = \"{}/mcp\"\n", remote.url());
        let (town, others) = (place("town"), place("others"));
        let config = format!("{town}authorization = \"env:TOWN_TOKEN\"\n\n{others}tenants = [7]");
        let workshop = Workshop::with(&store, setup().extra(&config).env("TOWN_TOKEN", AUTHORIZATION)).await;
        let label = json!({"type": "mcp", "server_label": "town", "require_approval": "never"});
        let bank = json!({
            "description": "Books a room.", "kind": "mcp", "settings": {"server": "town", "tool": "book"},
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        });
        let put = put_tool(&workshop.client(), "reserve", &bank).await;
        assert!(put.status.is_success(), "{}", put.text());
        for wire in WIRES {
            let scripts = [
                Script::new([asks("call_1", "town__lookup", "Oslo"), asks("call_2", "reserve", "Rome")]),
                Script::text(&["Done."]),
            ];
            let request = json!({"input": "Hi", "tools": [label, named("reserve")]});
            let response = workshop.turn(wire, Delivery::Stream, &scripts, &request).await;
            assert_eq!(
                shown(&response),
                [
                    "mcp_list_tools",
                    r#"town/lookup({"city":"Oslo"}) completed"#,
                    r#"bank/reserve({"city":"Rome"}) completed"#,
                    "message",
                ],
                "{} {wire:?}",
                store.name
            );
            assert_eq!(response["output"][2]["output"], r#"book {"city":"Rome"}"#);
            assert_eq!(check::response(&response), Vec::<String>::new());
            assert_eq!(text_of(&response), "Done.");
        }
        for request in mcp_requests(&remote, "tools/call") {
            assert_eq!(request.header("authorization"), Some(format!("Bearer {AUTHORIZATION}").as_str()));
        }
        // Another tenant's, an unknown one, and one with credentials that are not the operator's.
        for tool in [
            json!({"type": "mcp", "server_label": "others"}),
            json!({"type": "mcp", "server_label": "unknown"}),
            json!({"type": "mcp", "server_label": "town", "authorization": "mine"}),
        ] {
            let asked = asking(Wire::Chat, Delivery::Whole, &request(tool.clone()));
            let answer = workshop.client().post_json("/v1/responses", &asked).await;
            assert_eq!(answer.status, 400, "{tool}: {}", answer.text());
        }
        // A model's own words about a call are no call: text stays text.
        let response = workshop
            .turn(
                Wire::Chat,
                Delivery::Whole,
                &[Script::new([Said::text(&["town__lookup()"])])],
                &request(label.clone()),
            )
            .await;
        assert_eq!(shown(&response), ["mcp_list_tools", "message"]);
    }
}

/// How a call ends at a server that behaves as its argument says.
fn misbehave(request: &Request) -> Reply {
    if request.method != "POST" || request.json()["method"] != "tools/call" {
        return mcp_answer(request);
    }
    let message = request.json();
    let whole = |result: Value| Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    match message["params"]["arguments"]["city"].as_str().unwrap_or_default() {
        "hangs" => Reply::hang(),
        "hangs in a stream" => Reply::stream().comment("soon").hang_after(1),
        "closes" => Reply::close(),
        "is gone" => Reply::status(500),
        "is large" => {
            let megabyte = bytes::Bytes::from(vec![b' '; 1 << 20]);
            (0..100).fold(Reply::status(200).header("content-type", "application/json"), |reply, _| {
                reply.send(megabyte.clone())
            })
        }
        "is larger than is kept" => whole(text(&"x".repeat(300 * 1024))),
        "is no JSON" => Reply::bytes("application/json", "{"),
        "is no UTF-8" => Reply::bytes("application/json", &b"{\"a\":\"\xff\"}"[..]),
        "answers another request" => Reply::json(json!({"jsonrpc": "2.0", "id": 424_242, "result": text("x")})),
        "says nothing" => whole(json!({})),
        "says no" => {
            Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "no"}}))
        }
        "fails" => whole(json!({"content": [{"type": "text", "text": "it failed"}], "isError": true})),
        other => whole(text(other)),
    }
}

#[tokio::test]
async fn a_server_that_misbehaves_is_a_result_like_any_other() {
    for store in stores() {
        let remote = Upstream::start();
        remote.answer_for("/mcp", misbehave);
        let config = format!("[mcp.town]\nurl = \"{}/mcp\"\ntimeout = \"300ms\"", remote.url());
        let workshop = Workshop::with(&store, setup().extra(&config)).await;
        let label = json!({"type": "mcp", "server_label": "town", "require_approval": "never"});
        for (city, expected) in [
            ("hangs", "timed_out"),
            ("hangs in a stream", "timed_out"),
            ("closes", "broken"),
            ("is gone", "broken"),
            ("is large", "too_large"),
            ("is larger than is kept", "too_large"),
            ("is no JSON", "broken"),
            ("is no UTF-8", "broken"),
            ("answers another request", "broken"),
            ("says nothing", "broken"),
            ("says no", "refused"),
            ("fails", "refused"),
            ("is well", "-"),
        ] {
            let scripts = [calls("call_1", "town__book", city), Script::text(&["Done."])];
            let response = workshop.turn(Wire::Chat, Delivery::Stream, &scripts, &request(label.clone())).await;
            let place = format!("{} {city}: {}", store.name, response["output"][1]["output"]);
            assert_eq!((&response["status"], text_of(&response).as_str()), (&json!("completed"), "Done."), "{place}");
            let record = workshop.turn_record(id_of(&response)).await;
            assert_eq!(record["tool_calls"][0]["error"].as_str().unwrap_or("-"), expected, "{place}");
            assert!(!response["output"][1].to_string().contains("127.0.0.1"), "{place}");
        }
        assert_calm(&workshop.world.amalgam);
    }
}

#[tokio::test]
async fn a_server_on_the_legacy_transport_is_refused_by_the_name_of_that_transport() {
    // right A9
    let workshop = Workshop::on(&stores()[0]).await;
    workshop.service.answer_for("/sse", |request| match request.method.as_str() {
        "GET" => Reply::stream().frame("endpoint", "/messages?session_id=1").hang_after(1),
        _ => Reply::status(405),
    });
    let url = format!("{}/sse", workshop.service.url());
    let request = request(server(&workshop, json!({"server_url": url})));
    let answer = workshop.client().post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await;
    let error = error_of(&answer);
    assert_eq!((answer.status.as_u16(), &error["param"]), (424, &json!("tools")), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("'city'") && message.contains("legacy HTTP+SSE transport"), "{message}");
}
