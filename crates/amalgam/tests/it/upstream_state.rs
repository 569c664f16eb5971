//! Upstreams that keep state: a turn says what is new there and names the answer before, and everything wherever that would
//! not be exactly the same.

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{
    BINARY, DELIVERIES, Delivery, Said, Script, TestStore, Wire, checked_events, last_response, put_tool, setup, stores,
};

/// A server over three upstreams: one stores state, one does not, and one stores it and has the literal dialect.
struct House {
    amalgam: Amalgam,
    keeper: Upstream,
    other: Upstream,
    literal: Upstream,
}

impl House {
    async fn on(store: &TestStore) -> Self {
        Self::with(store.setup(Setup::new())).await
    }

    async fn with(setup: Setup) -> Self {
        let [keeper, other, literal] = [Upstream::start(), Upstream::start(), Upstream::start()];
        let upstream = |setup: Setup, name: &str, at: &Upstream| {
            let setup = setup.upstream(name, "responses", &at.base_url());
            setup.option("models", &json!([name]).to_string())
        };
        let setup = upstream(setup, "keeper", &keeper).option("keeps_state", "true");
        let setup = upstream(setup, "other", &other);
        let setup = upstream(setup, "literal", &literal).option("keeps_state", "true").option("dialect", "\"agn003\"");
        let narrow = "[models.narrow]\nupstream = \"keeper\"\nmodel = \"keeper\"\ncontext_window = 300\n";
        let amalgam = Amalgam::start(BINARY, setup.extra(narrow)).await;
        Self { amalgam, keeper, other, literal }
    }

    fn client(&self) -> Client {
        self.amalgam.client()
    }

    fn upstream(&self, model: &str) -> &Upstream {
        match model {
            "other" => &self.other,
            "literal" => &self.literal,
            _ => &self.keeper,
        }
    }

    /// A turn of this model, whose upstream says these; the response's id.
    async fn turn(&self, model: &str, delivery: Delivery, replies: &[Reply], request: Value) -> String {
        replies.iter().for_each(|reply| self.upstream(model).enqueue(reply.clone()));
        let mut request = request;
        request["model"] = json!(model);
        request["stream"] = json!(delivery == Delivery::Stream);
        let answer = self.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let response = match delivery {
            Delivery::Whole => answer.json(),
            Delivery::Stream => last_response(&checked_events(&answer)),
        };
        assert_eq!(response["status"], "completed", "{response}");
        assert_eq!(response["previous_response_id"], request["previous_response_id"], "ours, not the upstream's");
        response["id"].as_str().expect("a response has an id").to_owned()
    }

    /// A whole turn of the upstream that keeps state, which says this under this id.
    async fn kept(&self, id: &str, said: Said, request: Value) -> String {
        self.turn("keeper", Delivery::Whole, &[reply(id, Delivery::Whole, said)], request).await
    }
}

/// What an upstream answers under an id of its own.
fn reply(id: &str, delivery: Delivery, said: Said) -> Reply {
    let frames = Script::new([said]).frames(Wire::Responses);
    let frames = frames.iter().map(|frame| frame.to_string().replace("resp_up_1", id));
    let frames: Vec<Value> = frames.map(|frame| serde_json::from_str(&frame).expect("a frame is JSON")).collect();
    match delivery {
        Delivery::Stream => Reply::sse_typed(frames),
        Delivery::Whole => Reply::json(last_response(&frames)),
    }
}

fn hello() -> Said {
    Said::text(&["Hello"])
}

/// The last request to the upstream: the answer that it continues, the texts and kinds of its items, and `store`.
fn sent(upstream: &Upstream) -> (Value, Vec<String>, Value) {
    let body = upstream.requests().last().expect("the upstream was asked").json();
    let said = body["input"].as_array().expect("an input is a list").iter().map(|item| {
        let text = item["content"].as_str().or_else(|| item["content"][0]["text"].as_str());
        text.or_else(|| item["type"].as_str()).unwrap_or_default().to_owned()
    });
    (body["previous_response_id"].clone(), said.collect(), body["store"].clone())
}

fn told(previous: Option<&str>, said: &[&str]) -> (Value, Vec<String>, Value) {
    (json!(previous), said.iter().map(|text| (*text).to_owned()).collect(), json!(true))
}

#[tokio::test]
async fn a_turn_that_goes_on_says_what_is_new_and_names_the_answer_before() {
    for store in stores() {
        for delivery in DELIVERIES {
            let house = House::on(&store).await;
            let turn = async |id: &str, request: Value| {
                house.turn("keeper", delivery, &[reply(id, delivery, hello())], request).await
            };
            let first = turn("up_1", json!({"input": "One", "instructions": "Be brief."})).await;
            assert_eq!(sent(&house.keeper), told(None, &["One"]), "{} {delivery:?}", store.name);
            // Instructions are sent with every call, also when they have changed.
            let request = json!({"input": "Two", "instructions": "Be long.", "previous_response_id": first});
            let second = turn("up_2", request).await;
            assert_eq!(sent(&house.keeper), told(Some("up_1"), &["Two"]), "{} {delivery:?}", store.name);
            let body = house.keeper.requests().last().expect("the upstream was asked").json();
            assert_eq!(body["instructions"], "Be long.");
            turn("up_3", json!({"input": "Three", "previous_response_id": second})).await;
            assert_eq!(sent(&house.keeper), told(Some("up_2"), &["Three"]), "{} {delivery:?}", store.name);
            // A fork continues the response that it forks from.
            turn("up_4", json!({"input": "Two again", "previous_response_id": first})).await;
            assert_eq!(sent(&house.keeper), told(Some("up_1"), &["Two again"]), "{} {delivery:?}", store.name);
        }
    }
}

#[tokio::test]
async fn results_of_the_clients_tools_are_all_that_is_sent() {
    let house = House::with(Setup::new()).await;
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
    let call = Said::call("call_1", "look", &["{}"]);
    let first = house.kept("up_1", call.clone(), json!({"input": "One", "tools": tools})).await;
    let output = json!([{"type": "function_call_output", "call_id": "call_1", "output": "seen"}]);
    let request = json!({"input": output, "tools": tools, "previous_response_id": first});
    house.kept("up_2", hello(), request).await;
    assert_eq!(sent(&house.keeper), told(Some("up_1"), &["function_call_output"]));
    let body = house.keeper.requests().last().expect("the upstream was asked").json();
    assert_eq!(body["tools"][0]["name"], "look", "tools are told with every call: C-05");
    // The upstream waits for the output: without it, what it knows is not what is said here.
    let request = json!({"input": "Never mind.", "tools": tools, "previous_response_id": first});
    house.kept("up_3", hello(), request).await;
    let (previous, said, _) = sent(&house.keeper);
    assert_eq!((previous, said.first().map(String::as_str)), (json!(null), Some("One")));
    assert!(!said.contains(&"function_call".to_owned()), "{said:?}");
}

#[tokio::test]
async fn an_upstream_that_has_forgotten_is_told_everything_once_more() {
    for store in stores() {
        let house = House::on(&store).await;
        let refusals = [
            (404, json!({"message": "Previous response with id 'up_1' not found.", "type": "invalid_request_error"})),
            (400, json!({"message": "Gone.", "code": "previous_response_not_found", "param": "previous_response_id"})),
        ];
        for (status, error) in refusals {
            let first = house.kept("up_1", hello(), json!({"input": "One"})).await;
            let asked = house.keeper.requests().len();
            let replies =
                [Reply::json(json!({"error": error})).with_status(status), reply("up_2", Delivery::Whole, hello())];
            let request = json!({"input": "Two", "previous_response_id": first});
            let second = house.turn("keeper", Delivery::Whole, &replies, request).await;
            assert_eq!(house.keeper.requests().len(), asked + 2, "{}: once more, and no more", store.name);
            assert_eq!(sent(&house.keeper), told(None, &["One", "Hello", "Two"]), "{}", store.name);
            house.kept("up_3", hello(), json!({"input": "Three", "previous_response_id": second})).await;
            assert_eq!(sent(&house.keeper), told(Some("up_2"), &["Three"]), "{}", store.name);
        }
        // Any other refusal is returned to the caller.
        let first = house.kept("up_1", hello(), json!({"input": "One"})).await;
        let asked = house.keeper.requests().len();
        house
            .keeper
            .enqueue(Reply::json(json!({"error": {"message": "Bad tool.", "param": "tools"}})).with_status(400));
        let request = json!({"model": "keeper", "input": "Two", "previous_response_id": first});
        let refused = house.client().post_json("/v1/responses", &request).await;
        assert_eq!((refused.status.as_u16(), house.keeper.requests().len()), (400, asked + 1), "{}", refused.text());
    }
}

#[tokio::test]
async fn what_another_upstream_has_said_is_told_whole() {
    let house = House::with(Setup::new()).await;
    let first = house.kept("up_1", hello(), json!({"input": "One"})).await;
    let replies = [reply("up_2", Delivery::Whole, hello())];
    let request = json!({"input": "Two", "previous_response_id": first});
    let second = house.turn("other", Delivery::Whole, &replies, request).await;
    let (previous, said, stored) = sent(&house.other);
    assert_eq!(
        (previous, said.len(), stored),
        (json!(null), 3, json!(false)),
        "it keeps nothing, and is asked to keep nothing"
    );
    house.kept("up_3", hello(), json!({"input": "Three", "previous_response_id": second})).await;
    assert_eq!(sent(&house.keeper), told(None, &["One", "Hello", "Two", "Hello", "Three"]));
}

#[tokio::test]
async fn a_response_that_is_not_kept_here_is_not_kept_there() {
    let house = House::with(Setup::new()).await;
    let first = house.kept("up_1", hello(), json!({"input": "One"})).await;
    let request = json!({"input": "Two", "previous_response_id": first, "store": false});
    house.kept("up_2", hello(), request).await;
    let (previous, said, stored) = sent(&house.keeper);
    assert_eq!((previous, said.len(), stored), (json!(null), 3, json!(false)));
}

#[tokio::test]
async fn rounds_with_tools_of_the_servers_are_known_with_their_last_answer() {
    for store in stores() {
        let house = House::with(store.setup(setup())).await;
        let tool = json!({"kind": "builtin", "settings": {"function": "current_time"}});
        let put = put_tool(&house.client(), "clock", &tool).await;
        assert_eq!(put.status, 201, "{}", put.text());
        let tools = json!([{"type": "function", "name": "clock"}]);
        let replies = [
            reply("up_1", Delivery::Whole, Said::call("call_1", "clock", &["{}"])),
            reply("up_2", Delivery::Whole, hello()),
        ];
        let request = json!({"input": "One", "tools": tools});
        let first = house.turn("keeper", Delivery::Whole, &replies, request).await;
        // The stored call has an id of this server, so the whole round is sent.
        assert_eq!(
            sent(&house.keeper),
            told(None, &["One", "function_call", "function_call_output"]),
            "{}",
            store.name
        );
        let replies = [
            reply("up_3", Delivery::Whole, Said::call("call_2", "clock", &["{}"])),
            reply("up_4", Delivery::Whole, hello()),
        ];
        let request = json!({"input": "Two", "tools": tools, "previous_response_id": first});
        let second = house.turn("keeper", Delivery::Whole, &replies, request).await;
        let expected = told(Some("up_2"), &["Two", "function_call", "function_call_output"]);
        assert_eq!(sent(&house.keeper), expected, "{}", store.name);
        house.kept("up_5", hello(), json!({"input": "Three", "previous_response_id": second})).await;
        assert_eq!(sent(&house.keeper), told(Some("up_4"), &["Three"]), "{}", store.name);
    }
}

#[tokio::test]
async fn what_was_shortened_is_told_as_it_is() {
    let house = House::with(Setup::new()).await;
    let long = ["word"; 150].join(" ");
    let replies = |id| [reply(id, Delivery::Whole, hello())];
    let ask = |input: &str, previous: Option<&str>| json!({"input": input, "truncation": "auto", "previous_response_id": previous});
    let first = house.turn("narrow", Delivery::Whole, &replies("up_1"), ask(&long, None)).await;
    let second = house.turn("narrow", Delivery::Whole, &replies("up_2"), ask("Two", Some(&first))).await;
    assert_eq!(sent(&house.keeper), told(Some("up_1"), &["Two"]), "it fits");
    let third = house.turn("narrow", Delivery::Whole, &replies("up_3"), ask(&long, Some(&second))).await;
    assert_eq!(sent(&house.keeper), told(None, &["Two", "Hello", &long]), "the oldest turn is left out");
    house.turn("narrow", Delivery::Whole, &replies("up_4"), ask("Four", Some(&third))).await;
    let (previous, said, _) = sent(&house.keeper);
    assert_eq!((previous, said.last().map(String::as_str)), (json!(null), Some("Four")), "it does not know everything");
}

#[tokio::test]
async fn the_literal_dialect_goes_on_with_the_results_as_text() {
    // C-05, C-06, C-07
    for store in stores() {
        let house = House::on(&store).await;
        let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]);
        let replies = [reply("up_1", Delivery::Whole, Said::call("call_1", "look", &["{\"a\":1}"]))];
        let request = json!({"input": "One", "instructions": "Be brief.", "tools": tools});
        let first = house.turn("literal", Delivery::Whole, &replies, request).await;
        let output = json!([{"type": "function_call_output", "call_id": "call_1", "output": "seen"}]);
        let ask = |input: Value, instructions: &str, previous: &str| json!({"input": input, "instructions": instructions, "tools": tools, "previous_response_id": previous});
        let replies = [reply("up_2", Delivery::Whole, hello())];
        let second = house.turn("literal", Delivery::Whole, &replies, ask(output, "Be brief.", &first)).await;
        let text = |text: &str| json!({"type": "text", "text": text});
        let results = "[TOOL_RESULTS]\n\n- CallId: call_1\n  Name: look\n  ArgumentsJson:\n    {\"a\":1}\n  ResultJson:\n    seen";
        let expected = json!({"model": "literal", "previous_response_id": "up_1", "input": [
            {"role": "user", "content": [text("[MODE: general]\n\n[INSTRUCTION]\n"), text(results)]},
        ]});
        assert_eq!(house.literal.requests().last().expect("it was asked").json(), expected, "{}", store.name);
        // The instructions were sent at the beginning: when they change, the whole history is sent again.
        let replies = [reply("up_3", Delivery::Whole, hello())];
        house.turn("literal", Delivery::Whole, &replies, ask(json!("Two"), "Be long.", &second)).await;
        let body = house.literal.requests().last().expect("it was asked").json();
        assert_eq!((&body["previous_response_id"], &body["input"][0]["role"]), (&json!(null), &json!("system")));
    }
}
