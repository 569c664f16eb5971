//! Requests as seeds and real clients write them, and errors that name the path.

use amalgam_protocol::{
    CreateResponse, Effective, Input, ItemKind, Nulls, Provenance, Raw, ReportedUsage, RequestError,
    ResponseParameters, ResponseSettings, Snapshot, Status, TextFormat, ToolChoice, Usage, Writer,
};
use serde_json::{Value, json};

fn read<T>(body: &Value, look: impl FnOnce(CreateResponse<'_>) -> T) -> T {
    let text = body.to_string();
    let parameters: ResponseParameters = text.parse().unwrap_or_else(|error| panic!("{body}: {error:?}"));
    look(parameters.view().unwrap_or_else(|error| panic!("{body}: {error:?}")))
}

fn path_of(body: Value) -> (String, String) {
    let text = body.to_string();
    let error = match text.parse::<ResponseParameters>() {
        Ok(parameters) => parameters.view().unwrap_err(),
        Err(RequestError::Shape(error)) => error,
        Err(error) => panic!("{error}"),
    };
    (error.path.clone(), error.to_string())
}

#[test]
fn an_error_names_the_path_of_the_field() {
    let cases = [
        (
            json!({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "user", "content": [{"type": "input_text", "text": 3}]}]}),
            "input[2].content[0].text",
            "expected a string, but got a number instead",
        ),
        (json!({"input": 5}), "input", "expected a string or an array of items, but got a number instead"),
        (
            json!({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}),
            "input[0].call_id",
            "is required",
        ),
        (json!({"input": [{"type": "message", "content": "x"}]}), "input[0].role", "is required"),
        (json!({"input": [{"role": "user"}]}), "input[0].content", "is required"),
        (json!({"input": ["text"]}), "input[0]", "expected an object, but got a string instead"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name", "is required"),
        (
            json!({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": 1}]}]}),
            "tools[0].tools[0].name",
            "expected a string, but got a number instead",
        ),
        (
            json!({"tool_choice": "sometimes"}),
            "tool_choice",
            "must be `none`, `auto`, `required` or an object, but is `sometimes`",
        ),
        (
            json!({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function"}]}}),
            "tool_choice.tools[0].name",
            "is required",
        ),
        (json!({"text": {"format": {"type": "json_schema", "name": "x"}}}), "text.format.schema", "is required"),
        (json!({"temperature": 3}), "temperature", "must be between 0 and 2"),
        (json!({"max_output_tokens": 0}), "max_output_tokens", "must be at least 1"),
        (json!({"max_output_tokens": "many"}), "max_output_tokens", "expected an integer, but got a string instead"),
        (json!({"truncation": "maybe"}), "truncation", "must be one of `auto`, `disabled`, but is `maybe`"),
        (json!([]), "", "expected an object, but got an array instead"),
    ];
    for (body, path, message) in cases {
        assert_eq!(path_of(body.clone()), (path.to_owned(), message.to_owned()), "{body}");
    }
}

#[test]
fn all_nine_forms_of_tool_choice_are_read() {
    // C-04: `tool` is `function`.
    let kept = [
        json!("none"),
        json!("auto"),
        json!("required"),
        json!({"type": "function", "name": "f"}),
        json!({"type": "function", "name": "f", "namespace": "n"}),
        json!({"type": "custom", "name": "f", "own": [1.50]}),
        json!({"type": "mcp", "server_label": "s"}),
        json!({"type": "mcp", "server_label": "s", "name": "f", "own": null}),
        json!({"type": "shell", "own": 1}),
        json!({"type": "apply_patch"}),
        json!({"type": "computer_use_preview"}),
        json!({"type": "web_search_preview"}),
        json!({"type": "file_search", "vector_store_ids": ["a"]}),
        json!({"type": "acme:tool", "deep": {"er": true}}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}, {"type": "acme:tool", "x": 1}]}),
    ];
    let function = json!({"type": "function", "name": "f"});
    let mended = [
        (json!({"type": "tool", "name": "f"}), function.clone()),
        (json!({"type": "function", "function": {"name": "f"}}), function),
        (json!("any"), json!("required")),
        (json!({"type": "auto"}), json!("auto")),
    ];
    for (form, echo) in kept.into_iter().map(|form| (form.clone(), form)).chain(mended) {
        read(&json!({"tool_choice": form}), |request| {
            let mut writer = Writer::default();
            request.tool_choice.as_ref().unwrap().write(&mut writer);
            assert_eq!(serde_json::from_slice::<Value>(writer.bytes()).unwrap(), echo, "{form}");
        });
    }
    read(&json!({"tool_choice": {"type": "tool", "name": "f"}}), |request| {
        assert!(matches!(&request.tool_choice, Some(ToolChoice::Function(name, _)) if name == "f"));
    });
}

#[test]
fn nulls_count_as_not_said_and_unknown_fields_are_kept_in_order() {
    let body = json!({"model": null, "input": null, "tools": null, "text": null, "temperature": null, "include": null, "a_new_field": {"x": 1}, "client_metadata": "y"});
    read(&body, |request| {
        assert_eq!((request.model.as_deref(), request.tools.len(), request.temperature), (None, 0, None));
        let extra: Vec<_> = request.extra.iter().map(|(key, value)| (key.escaped(), value.text())).collect();
        assert_eq!(extra, [("a_new_field", r#"{"x":1}"#), ("client_metadata", "\"y\"")]);
    });
}

#[test]
fn messages_without_type_and_null_items_are_fine() {
    // RAM-14, RAM-17
    let body =
        json!({"input": [null, {"role": "user", "content": "x"}, null], "tools": [{"type": "web_search"}, null]});
    read(&body, |request| {
        let Some(Input::Items(items)) = request.input else { panic!() };
        assert!(matches!(items.as_slice(), [item] if matches!(item.kind, ItemKind::Message(_))));
        let nulls = [("input", Nulls { first: 0, count: 2 }), ("tools", Nulls { first: 1, count: 1 })];
        assert_eq!(request.nulls, nulls);
    });
    // right A5
    let body = json!({"input": [null, {"role": "critic", "content": "x"}]}).to_string();
    let error = body.parse::<ResponseParameters>().unwrap().view().unwrap_err();
    assert_eq!(error.path, "input[1].role");
}

#[test]
fn formats_are_read_in_either_nesting() {
    for format in [
        json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}),
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}}),
    ] {
        read(&json!({"text": {"format": format, "verbosity": "low"}}), |request| {
            let TextFormat::JsonSchema(schema) = request.text.format else { panic!() };
            assert_eq!((&*schema.name, schema.strict, schema.schema.text()), ("n", Some(true), r#"{"type":"object"}"#));
        });
    }
}

// right C3
#[test]
fn a_sum_of_usage_tells_what_was_reported_of_it() {
    let call = |tokens, estimated| Usage { input_tokens: tokens, output_tokens: 1, estimated, ..Usage::default() };
    let sum = |calls: &[Usage]| calls.iter().copied().reduce(Usage::plus).unwrap();
    assert_eq!(sum(&[call(1, false), call(2, false)]).reported, None);
    assert_eq!(sum(&[call(1, true), call(2, true)]).reported, None);
    let mixed = sum(&[call(1, true), call(2, false), call(4, true), call(8, false)]);
    assert_eq!((mixed.input_tokens, mixed.output_tokens, mixed.estimated), (15, 4, true));
    assert_eq!(mixed.reported, Some(ReportedUsage { input_tokens: 10, output_tokens: 2, total_tokens: 12 }));
    let mut writer = Writer::default();
    mixed.write(&mut writer);
    let read = Usage::read_stored(Raw::parse(writer.bytes()).unwrap());
    assert_eq!(read, Usage { total_tokens: Some(19), ..mixed });
}

#[test]
fn a_response_object_has_all_its_keys_and_repeats_the_request() {
    let body = json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "tool", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "metadata": {"a": "b"}, "temperature": 0.5});
    read(&body, |request| {
        let settings = ResponseSettings::new(&request, Effective { model: "m", stored: true, background: false });
        let provenance = Provenance {
            model: Some("up/m".into()),
            losses: vec!["top_k: unknown".into()],
            provider_id: Some("up_1".into()),
        };
        let snapshot = Snapshot {
            id: "resp_1",
            created_at: 1,
            completed_at: Some(2),
            status: Status::Completed,
            error: None,
            incomplete_reason: None,
            output: &[],
            usage: Some(Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() }),
            provenance: &provenance,
            settings: &settings,
        };
        let mut writer = Writer::default();
        snapshot.write(&mut writer);
        let value: Value = serde_json::from_slice(writer.bytes()).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 32);
        assert_eq!(value["amalgam"], json!({"model": "up/m", "losses": ["top_k: unknown"]}));
        assert_eq!(value["tool_choice"], json!({"type": "function", "name": "f"}));
        assert_eq!(
            value["tools"],
            json!([{"type": "function", "name": "f", "description": null, "parameters": null, "strict": null}])
        );
        assert_eq!(
            value["usage"],
            json!({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 7})
        );
        assert_eq!(
            json!([value["temperature"], value["store"], value["metadata"], value["reasoning"]]),
            json!([0.5, true, {"a": "b"}, {"effort": null, "summary": null}])
        );
    });
}

#[test]
fn a_response_names_the_conversation_that_it_belongs_to() {
    for (said, told) in [
        (json!("conv_1"), Some(json!({"id": "conv_1"}))),
        (json!({"id": "conv_\"1\""}), Some(json!({"id": "conv_\"1\""}))),
        (json!(""), None),
        (json!({}), None),
        (Value::Null, None),
    ] {
        read(&json!({"model": "m", "conversation": said}), |request| {
            let settings = ResponseSettings::new(&request, Effective { model: "m", stored: true, background: false });
            let text = format!("{{{}}}", str::from_utf8(settings.bytes()).unwrap());
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.get("conversation"), told.as_ref(), "{said}");
        });
    }
}

#[test]
fn usage_is_read_in_the_words_of_either_wire() {
    // C-08
    let read = |value: Value| Usage::read(Raw::parse(value.to_string().as_bytes()).unwrap());
    let chat = read(
        json!({"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 0, "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 3}}),
    );
    assert_eq!(
        (chat.input_tokens, chat.cached_tokens, chat.output_tokens, chat.reasoning_tokens, chat.total()),
        (5, 2, 6, 3, 0)
    );
    assert_eq!(read(json!({"input_tokens": 5, "output_tokens": 6})).total(), 11);
}

#[test]
fn whatever_a_request_sets_its_response_repeats() {
    let set = json!({
        "temperature": 0.5,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "tool_choice": "none",
        "tools": [{"type": "function", "name": "f", "description": null, "parameters": null, "strict": true}],
        "top_logprobs": 3,
        "top_p": 0.25,
        "truncation": "auto",
        "presence_penalty": 0.5,
        "frequency_penalty": 0.75,
        "metadata": {"a": "b"},
    });
    let repeated = |body: &Value| -> Value {
        read(body, |request| {
            let settings = ResponseSettings::new(&request, Effective { model: "m", stored: true, background: false });
            serde_json::from_str(&format!("{{{}}}", str::from_utf8(settings.bytes()).unwrap())).unwrap()
        })
    };
    let usual = repeated(&json!({}));
    for (key, value) in set.as_object().unwrap() {
        let mut expected = usual.clone();
        expected[key] = value.clone();
        assert_eq!(repeated(&json!({key: value})), expected, "{key}");
    }
}

#[test]
fn a_sum_of_tokens_past_every_number_stays_at_the_largest() {
    let usage = Usage::read(Raw::parse(br#"{"prompt_tokens":18446744073709551615,"completion_tokens":5}"#).unwrap());
    assert_eq!((usage.total(), usage.plus(usage).total()), (u64::MAX, u64::MAX));
}
