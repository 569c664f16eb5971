use amalgam_core::ComparisonOperator;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn given<T>(body: &Value, check: impl FnOnce(Result<ExecuteRequest<'_>, RequestFaults>) -> T) -> T {
    given_text(&body.to_string(), &Bounds::default(), check)
}

fn given_text<T>(body: &str, bounds: &Bounds, check: impl FnOnce(Result<ExecuteRequest<'_>, RequestFaults>) -> T) -> T {
    check(read(Raw::parse(body.as_bytes()).unwrap(), bounds))
}

/// Every fault as `code field`, or nothing if the request is taken.
fn faults(body: &Value) -> Vec<String> {
    faults_within(body, &Bounds::default())
}

fn faults_within(body: &Value, bounds: &Bounds) -> Vec<String> {
    let told = |fault: &FieldFault| format!("{} {}", fault.kind.code(), fault.field);
    given_text(&body.to_string(), bounds, |read| match read {
        Ok(_) => Vec::new(),
        Err(faults) => faults.list().iter().map(told).collect(),
    })
}

/// A user turn with these fields as well.
fn turn(more: Value) -> Value {
    with(json!({"SessionId": "s1", "TurnId": "t1", "Instruction": "Do it."}), more)
}

/// A continuation with these fields as well.
fn continuation(more: Value) -> Value {
    let result = json!({"ToolCallId": "c1", "ExecutionMs": 5, "ResultJson": "{}"});
    with(json!({"SessionId": "s1", "TurnId": "t1", "ToolResults": [result]}), more)
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn plain_turn() -> UserTurn<'static> {
    UserTurn {
        session_id: "s1".into(),
        turn_id: "t1".into(),
        instruction: Some("Do it.".into()),
        artifacts: Vec::new(),
        images: Vec::new(),
        file_ids: Vec::new(),
        scope: Vec::new(),
        hints: Hints::default(),
        solution_context: None,
        agent_context_id: None,
        conversation_context_id: None,
        role_id: None,
        delivery: Delivery::Whole,
    }
}

fn is_turn(body: &Value, expected: UserTurn<'_>) {
    given(body, |read| assert_eq!(read, Ok(ExecuteRequest::UserTurn(Box::new(expected)))));
}

#[test]
fn the_two_requests_are_told_apart_by_their_fields() {
    // R034-01, R034-02, R034-04, R034-13
    is_turn(&turn(json!({})), plain_turn());
    let results = vec![ToolResult { call_id: "c1".into(), execution_ms: 5.0, outcome: Outcome::Result("{}".into()) }];
    let expected = Continuation { session_id: "s1".into(), turn_id: "t1".into(), results };
    given(&continuation(json!({})), |read| assert_eq!(read, Ok(ExecuteRequest::Continuation(expected))));
}

#[test]
fn a_whole_user_turn_is_read() {
    // R034-10, R034-11, R034-12, R034-13, R034-21, R034-22, R034-23, R034-24
    let body = turn(json!({
        "InputArtifacts": [
            {"RelativePath": "src\\a.cs", "FileName": "a.cs", "Contents": "x", "Origin": "ide", "Language": "csharp"},
            {"RelativePath": "b.bin", "FileName": "b.bin", "Contents": "AAE=", "Origin": "user", "Encoding": "base64", "MimeType": "a/b"},
        ],
        "ClipboardImages": [{"Id": "i1", "MimeType": "image/png", "DataBase64": "AAAA"}],
        "FileIds": ["file_1", "file_2"],
        "RagScope": [
            {"Key": "path", "Operator": "==", "Values": ["src"]},
            {"Key": "path", "Operator": "!=", "Values": ["a", ""]},
            {"Key": "repo", "Operator": "contains", "Values": ["b"]},
            {"Key": "lang", "Operator": "does_not_contain", "Values": ["c"]},
        ],
        "WorkspaceId": "w", "Repo": "r", "Language": "l",
        "SolutionContextText": "", "AgentContextId": "a", "ConversationContextId": "k", "RoleId": "o",
        "Streaming": true,
    }));
    let condition = |key: &'static str, operator, values: &[&'static str]| Condition {
        key: key.into(),
        operator,
        values: values.iter().map(|value| Cow::Borrowed(*value)).collect(),
    };
    let expected = UserTurn {
        artifacts: vec![
            Artifact {
                relative_path: "src/a.cs".to_owned(),
                file_name: "a.cs".into(),
                contents: Contents::Text("x".into()),
                origin: ArtifactOrigin::Ide,
                mime_type: None,
                language: Some("csharp".into()),
            },
            Artifact {
                relative_path: "b.bin".to_owned(),
                file_name: "b.bin".into(),
                contents: Contents::Base64("AAE=".into()),
                origin: ArtifactOrigin::User,
                mime_type: Some("a/b".into()),
                language: None,
            },
        ],
        images: vec![ClipboardImage { id: "i1".into(), mime_type: "image/png".into(), data_base64: "AAAA".into() }],
        file_ids: vec!["file_1".into(), "file_2".into()],
        scope: vec![
            condition("path", ComparisonOperator::Equals, &["src"]),
            condition("path", ComparisonOperator::Differs, &["a", ""]),
            condition("repo", ComparisonOperator::Contains, &["b"]),
            condition("lang", ComparisonOperator::DoesNotContain, &["c"]),
        ],
        hints: Hints { workspace_id: Some("w".into()), repo: Some("r".into()), language: Some("l".into()) },
        solution_context: Some("".into()),
        agent_context_id: Some("a".into()),
        conversation_context_id: Some("k".into()),
        role_id: Some("o".into()),
        delivery: Delivery::Stream,
        ..plain_turn()
    };
    is_turn(&body, expected);
}

#[test]
fn an_instruction_is_kept_as_it_was_written_and_a_blank_one_is_none() {
    // R034-02, R034-09
    let said = "  # Title\r\n\té \u{1F600}\n";
    is_turn(&turn(json!({"Instruction": said})), UserTurn { instruction: Some(said.into()), ..plain_turn() });
    let files = json!({"Instruction": " \n", "FileIds": ["f"]});
    is_turn(&turn(files), UserTurn { instruction: None, file_ids: vec!["f".into()], ..plain_turn() });
    for blank in [json!(null), json!(""), json!(" \n\t")] {
        let body = turn(json!({"Instruction": blank, "InputArtifacts": [], "FileIds": null}));
        assert_eq!(faults(&body), ["missing_field Instruction"], "{body}");
    }
    assert_eq!(faults(&json!({"SessionId": "s", "TurnId": "t"})), ["missing_field Instruction"]);
    // An input that is wrong is an input: one fault, not two.
    assert_eq!(faults(&json!({"SessionId": "s", "TurnId": "t", "FileIds": [5]})), ["wrong_type FileIds[0]"]);
}

#[test]
fn both_ids_are_required_of_both_requests() {
    // R034-02, R034-04, R034-06
    assert_eq!(faults(&json!({"Instruction": "x"})), ["missing_field SessionId", "missing_field TurnId"]);
    for body in [turn(json!({})), continuation(json!({}))] {
        for (id, code) in [
            (json!(null), "missing_field"),
            (json!(5), "wrong_type"),
            (json!(" "), "invalid_value"),
            (json!("a\nb"), "invalid_value"),
            (json!("x".repeat(513)), "too_large"),
        ] {
            let body = with(body.clone(), json!({"TurnId": id}));
            assert_eq!(faults(&body), [format!("{code} TurnId")], "{body}");
        }
    }
}

#[test]
fn a_continuation_has_results_and_nothing_else() {
    // R034-05, C-29
    let mine = json!({
        "Instruction": "", "InputArtifacts": [], "ClipboardImages": [], "FileIds": [], "RagScope": [],
        "WorkspaceId": "w", "Repo": "r", "Language": "l", "SolutionContextText": "x",
        "AgentContextId": "a", "ConversationContextId": "c", "RoleId": "r", "Streaming": false,
    });
    for (name, value) in mine.as_object().unwrap() {
        assert_eq!(faults(&continuation(json!({name: value}))), [format!("forbidden_field {name}")]);
        // What was not set is not there.
        assert_eq!(faults(&continuation(json!({name: null}))), Vec::<String>::new());
    }
    assert_eq!(faults(&continuation(mine)).len(), 13);
}

#[test]
fn what_belongs_to_the_server_is_refused_by_name() {
    // R034-03, R034-07, C-01, C-02, C-12
    for name in [
        "Mode",
        "mode",
        "ResponseContinuationId",
        "previousResponseId",
        "RawResponseJson",
        "SystemPrompt",
        "ToolsJson",
        "ToolChoiceName",
        "ToolResultsJson",
        "ModelId",
        "CorrelationId",
        "Diagnostics",
        "ConversationId",
    ] {
        for body in [turn(json!({name: "x"})), continuation(json!({name: null}))] {
            assert_eq!(faults(&body), [format!("forbidden_field {name}")]);
        }
        let lenient = Bounds { unknown_fields: UnknownFields::Ignored, ..Bounds::default() };
        assert_eq!(faults_within(&turn(json!({name: "x"})), &lenient), [format!("forbidden_field {name}")]);
    }
}

#[test]
fn unknown_fields_are_refused_unless_they_are_ignored() {
    // R034-08
    let body = turn(json!({
        "Extra": 1, "sessionid": "x", "session_id": "y",
        "ClipboardImages": [{"Id": "i", "MimeType": "image/png", "DataBase64": "AAAA", "Width": 5}],
        "RagScope": {"Conditions": [{"Key": "k", "Operator": "==", "Values": ["v"], "Not": true}], "Any": []},
    }));
    let unknown =
        ["Extra", "session_id", "sessionid", "ClipboardImages[0].Width", "RagScope.Any", "RagScope.Conditions[0].Not"];
    assert_eq!(faults(&body), unknown.map(|name| format!("unknown_field {name}")));
    let lenient = Bounds { unknown_fields: UnknownFields::Ignored, ..Bounds::default() };
    assert_eq!(faults_within(&body, &lenient), Vec::<String>::new());
    let message = given(&turn(json!({"sessionid": "x"})), |read| read.unwrap_err().to_string());
    assert_eq!(message, "sessionid is not a field of this request; is `SessionId` meant?");
}

#[test]
fn names_may_be_in_camel_case_and_are_told_as_they_were_written() {
    let body = json!({"sessionId": "s1", "turnId": "t1", "instruction": "Do it.", "streaming": true});
    is_turn(&body, UserTurn { delivery: Delivery::Stream, ..plain_turn() });
    let body = json!({"sessionId": "s1", "turnId": 5, "toolResults": [{"toolCallId": " ", "executionMs": 1, "resultJson": "x"}]});
    assert_eq!(faults(&body), ["wrong_type turnId", "invalid_value toolResults[0].toolCallId"]);
}

#[test]
fn a_field_that_is_said_twice_is_a_fault() {
    let text =
        r#"{"SessionId":"s","sessionId":"s","TurnId":"t","TurnId":"u","Instruction":"x","Repo":"a","Repository":"b"}"#;
    let told = given_text(text, &Bounds::default(), |read| read.unwrap_err());
    let told: Vec<String> = told.list().iter().map(|fault| format!("{} {}", fault.kind.code(), fault.field)).collect();
    assert_eq!(told, ["repeated_field sessionId", "repeated_field TurnId", "repeated_field Repository"]);
}

#[test]
fn a_result_has_exactly_one_outcome() {
    // R034-14, R034-16, C-14
    let result = |more: Value| {
        let result = with(json!({"ToolCallId": "c", "ExecutionMs": 0.5}), more);
        continuation(json!({"ToolResults": [{"ToolCallId": "b", "ExecutionMs": 0, "ErrorMessage": "no"}, result]}))
    };
    for (outcome, expected) in [
        (json!({"ResultJson": ""}), Outcome::Result("".into())),
        (json!({"ResultJson": "{\"a\": 1}", "ErrorMessage": null}), Outcome::Result("{\"a\": 1}".into())),
        (json!({"ResultJson": {"a": [false]}}), Outcome::Result(r#"{"a":[false]}"#.into())),
        (json!({"ResultJson": false}), Outcome::Result("false".into())),
        (json!({"ErrorMessage": "boom"}), Outcome::Error("boom".into())),
    ] {
        given(&result(outcome), |read| match read {
            Ok(ExecuteRequest::Continuation(continuation)) => {
                let last = ToolResult { call_id: "c".into(), execution_ms: 0.5, outcome: expected };
                assert_eq!(continuation.results.last(), Some(&last));
            }
            other => panic!("{other:?}"),
        });
    }
    for (outcome, fault) in [
        (json!({}), "missing_field ToolResults[1].ResultJson"),
        (json!({"ResultJson": null, "ErrorMessage": null}), "missing_field ToolResults[1].ResultJson"),
        (json!({"ResultJson": "", "ErrorMessage": ""}), "invalid_value ToolResults[1].ErrorMessage"),
        (json!({"ErrorMessage": " "}), "invalid_value ToolResults[1].ErrorMessage"),
        (json!({"ErrorMessage": {"a": 1}}), "wrong_type ToolResults[1].ErrorMessage"),
        (json!({"ResultJson": "x", "ExecutionMs": -1}), "invalid_value ToolResults[1].ExecutionMs"),
        (json!({"ResultJson": "x", "ExecutionMs": "5"}), "wrong_type ToolResults[1].ExecutionMs"),
        (json!({"ResultJson": "x", "ExecutionMs": null}), "missing_field ToolResults[1].ExecutionMs"),
        (json!({"ResultJson": "x", "ToolCallId": null}), "missing_field ToolResults[1].ToolCallId"),
        (json!({"ResultJson": "x", "Name": "f"}), "unknown_field ToolResults[1].Name"),
    ] {
        assert_eq!(faults(&result(outcome)), [fault]);
    }
}

#[test]
fn results_are_a_list_of_at_least_one() {
    // R034-04
    for (results, fault) in [
        (json!([]), "invalid_value ToolResults"),
        (json!({}), "wrong_type ToolResults"),
        (json!("x"), "wrong_type ToolResults"),
        (json!([5]), "wrong_type ToolResults[0]"),
        (json!([null]), "wrong_type ToolResults[0]"),
    ] {
        assert_eq!(faults(&continuation(json!({"ToolResults": results}))), [fault]);
    }
}

#[test]
fn every_fault_of_a_request_is_told_at_once() {
    // R034-18, R034-25
    let body = json!({
        "TurnId": "t", "Mode": "QA", "Bogus": 1, "Streaming": "yes", "RoleId": "r",
        "InputArtifacts": [
            {"RelativePath": "/etc/passwd", "FileName": "a/b", "Origin": "web", "MimeType": "text"},
            {"RelativePath": "a", "FileName": "a", "Contents": "!", "Origin": "ide", "Encoding": "base64"},
            {"RelativePath": "a", "FileName": "a", "Contents": "x", "Origin": "ide", "Encoding": "latin1"},
        ],
        "ClipboardImages": [
            {"Id": "i", "MimeType": " ", "DataBase64": ""},
            {"Id": "j", "MimeType": "text/plain", "DataBase64": "AAAA"},
            {"Id": "k", "MimeType": "image/png", "DataBase64": "AAAA"},
            {"Id": "k", "MimeType": "image/png", "DataBase64": "AAAA"},
        ],
        "FileIds": ["f", "f", ""],
        "RagScope": [{"Key": "", "Operator": "=", "Values": []}, {"Operator": "==", "Values": [1]}],
    });
    let expected = [
        "unknown_field Bogus",
        "forbidden_field Mode",
        "missing_field SessionId",
        "invalid_value InputArtifacts[0].RelativePath",
        "invalid_value InputArtifacts[0].FileName",
        "missing_field InputArtifacts[0].Contents",
        "invalid_value InputArtifacts[0].Origin",
        "invalid_value InputArtifacts[0].MimeType",
        "invalid_value InputArtifacts[1].Contents",
        "invalid_value InputArtifacts[2].Encoding",
        "invalid_value ClipboardImages[0].MimeType",
        "invalid_value ClipboardImages[0].DataBase64",
        "invalid_value ClipboardImages[1].MimeType",
        "repeated_field ClipboardImages[3].Id",
        "repeated_field FileIds[1]",
        "invalid_value FileIds[2]",
        "invalid_value RagScope[0].Key",
        "invalid_value RagScope[0].Operator",
        "invalid_value RagScope[0].Values",
        "missing_field RagScope[1].Key",
        "wrong_type RagScope[1].Values[0]",
        "invalid_value RoleId",
        "wrong_type Streaming",
    ];
    assert_eq!(faults(&body), expected);
}

#[test]
fn a_scope_without_conditions_is_no_filter() {
    // R034-11
    for scope in [json!(null), json!([]), json!({}), json!({"Conditions": []}), json!({"Conditions": null})] {
        is_turn(&turn(json!({"RagScope": scope})), plain_turn());
    }
    assert_eq!(faults(&turn(json!({"RagScope": "src"}))), ["wrong_type RagScope"]);
}

#[test]
fn hints_do_not_change_whether_a_request_is_taken() {
    // R034-12
    let hints = json!({"WorkspaceId": "w", "Repo": "r", "Language": "l"});
    for body in [turn(json!({})), turn(json!({"Instruction": ""})), turn(json!({"TurnId": 5}))] {
        assert_eq!(faults(&with(body.clone(), hints.clone())), faults(&body));
    }
}

#[test]
fn everything_is_bounded() {
    let bounds = Bounds {
        name_bytes: 8,
        instruction_bytes: 6,
        solution_context_bytes: 1,
        artifacts: 1,
        artifact_bytes: 3,
        images: 1,
        image_bytes: 3,
        file_ids: 1,
        conditions: 1,
        condition_values: 1,
        results: 1,
        result_bytes: 2,
        unknown_fields: UnknownFields::Refused,
    };
    let artifact = |contents: &str, encoding: &str| json!({"RelativePath": "a", "FileName": "a", "Contents": contents, "Origin": "ide", "Encoding": encoding});
    let image = |data: &str| json!({"Id": "i", "MimeType": "image/x", "DataBase64": data});
    let condition = |values: Value| json!({"Key": "k", "Operator": "==", "Values": values});
    for (more, fault) in [
        (json!({"SessionId": "123456789"}), "too_large SessionId"),
        (json!({"Instruction": "seven b"}), "too_large Instruction"),
        (json!({"SolutionContextText": "ab"}), "too_large SolutionContextText"),
        (json!({"InputArtifacts": [1, 2]}), "too_large InputArtifacts"),
        (json!({"InputArtifacts": [artifact("éé", "utf8")]}), "too_large InputArtifacts[0].Contents"),
        (json!({"InputArtifacts": [artifact("AAAAAA==", "base64")]}), "too_large InputArtifacts[0].Contents"),
        (json!({"ClipboardImages": [1, 2]}), "too_large ClipboardImages"),
        (json!({"ClipboardImages": [image("AAAAAAAAAAAAAAAA")]}), "too_large ClipboardImages[0].DataBase64"),
        (json!({"FileIds": ["a", "b"]}), "too_large FileIds"),
        (json!({"RagScope": [1, 2]}), "too_large RagScope"),
        (json!({"RagScope": [condition(json!(["a", "b"]))]}), "too_large RagScope[0].Values"),
    ] {
        assert_eq!(faults_within(&turn(more), &bounds), [fault]);
    }
    for (results, fault) in [
        (json!([1, 2]), "too_large ToolResults"),
        (json!([{"ToolCallId": "c", "ExecutionMs": 1, "ResultJson": "abc"}]), "too_large ToolResults[0].ResultJson"),
        (json!([{"ToolCallId": "c", "ExecutionMs": 1, "ResultJson": 123}]), "too_large ToolResults[0].ResultJson"),
        (
            json!([{"ToolCallId": "c", "ExecutionMs": 1, "ErrorMessage": "abc"}]),
            "too_large ToolResults[0].ErrorMessage",
        ),
    ] {
        assert_eq!(faults_within(&continuation(json!({"ToolResults": results})), &bounds), [fault]);
    }
    let exact = turn(json!({"InputArtifacts": [artifact("AAAA", "base64")], "ClipboardImages": [image("AAAA")]}));
    assert_eq!(faults_within(&exact, &bounds), Vec::<String>::new());
}

#[test]
fn an_answer_is_not_longer_than_a_hundred_faults() {
    let body: serde_json::Map<String, Value> = (0..250).map(|number| (format!("Bogus{number}"), json!(1))).collect();
    given(&turn(Value::Object(body)), |read| {
        let faults = read.unwrap_err();
        assert_eq!((faults.list().len(), faults.omitted()), (MAX_FAULTS, 150));
    });
}

#[test]
fn a_body_that_is_no_object_is_one_fault() {
    for body in [json!([]), json!("x"), json!(null), json!(5)] {
        assert_eq!(faults(&body), ["wrong_type body"]);
    }
}

proptest! {
    #[test]
    fn what_is_taken_has_an_input_or_results_and_two_ids(
        session in "[ a]{0,2}", instruction in prop::option::of("[ a]{0,2}"), results in prop::option::of(0_usize..3),
    ) {
        let mut body = json!({"SessionId": session, "TurnId": "t"});
        if let Some(instruction) = &instruction {
            body = with(body, json!({"Instruction": instruction}));
        }
        if let Some(count) = results {
            let result = json!({"ToolCallId": "c", "ExecutionMs": 1, "ResultJson": "x"});
            body = with(body, json!({"ToolResults": vec![result; count]}));
        }
        let well_named = !session.trim().is_empty();
        let said = instruction.as_deref().is_some_and(|text| !text.trim().is_empty());
        given(&body, |read| -> Result<(), TestCaseError> {
            match read {
                Ok(ExecuteRequest::UserTurn(turn)) => prop_assert!(turn.instruction.is_some() && said && well_named && results.is_none()),
                Ok(ExecuteRequest::Continuation(continuation)) => {
                    prop_assert_eq!(Some(continuation.results.len()), results);
                    prop_assert!(instruction.is_none() && well_named && results != Some(0));
                }
                Err(faults) => {
                    prop_assert!(!faults.list().is_empty());
                    let fine = match results {
                        Some(count) => count > 0 && instruction.is_none(),
                        None => said,
                    };
                    prop_assert!(!(well_named && fine));
                }
            }
            Ok(())
        })?;
    }
}
