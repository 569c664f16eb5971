//! Bodies as clients write them, read into a type with every kind of field.

use amalgam_core::TenantState;
use serde::Deserialize;
use serde_json::json;

use super::{
    super::fields::{
        Ignored, Line, Object, Positive, Prose, ProseOrBlank, Texts, ToolName, ToolNames, Vocabulary, Word,
    },
    *,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    name: Line<8>,
    id: Option<Positive>,
    on: Option<bool>,
    list: Option<Texts>,
    prose: Option<Prose<9>>,
    blank: Option<ProseOrBlank<9>>,
    state: Option<Word<TenantState>>,
    object: Option<Object>,
    tools: Option<ToolNames>,
    tool: Option<ToolName>,
    ignored: Option<Ignored>,
}

fn read(body: &str) -> Result<Example, Fault> {
    parse(&body.to_owned().into())
}

#[track_caller]
fn good(body: &str) -> Example {
    read(body).map_err(|fault| fault.into_parts().message).unwrap()
}

#[test]
fn fields_are_read_by_their_type_and_null_counts_as_absent() {
    let body = json!({"name": "Ünï code", "id": 3, "on": false, "list": ["a", "b"], "prose": "two\nlines", "blank": " ",
        "state": "stateless", "tools": ["a", "B", "b"], "tool": "x", "ignored": {"any": ["thing"]}});
    let read = good(&body.to_string());
    assert_eq!((read.name.0.as_str(), read.id, read.on), ("Ünï code", Some(Positive(3)), Some(false)));
    assert_eq!(read.list.unwrap().0, ["a", "b"]);
    assert_eq!((read.prose.unwrap().0.as_str(), read.blank.unwrap().0.as_str()), ("two\nlines", ""));
    assert_eq!(read.state, Some(Word(TenantState::Stateless)));
    assert_eq!(read.tools.unwrap().0, ["a", "B"]);
    assert_eq!(read.tool.unwrap().0.as_deref(), Some("x"));
    assert!(read.ignored.is_some());
    let nothing = good(r#"{"name": "x", "id": null, "on": null, "list": null, "tool": "  "}"#);
    assert_eq!((nothing.id, nothing.on, nothing.list.is_none()), (None, None, true));
    assert_eq!(nothing.tool.unwrap().0, None, "a blank name is none");
}

#[test]
fn of_several_fields_of_one_name_the_last_counts_and_objects_stay_as_they_were_written() {
    let body = r#"{"name": 5, "name": "x", "object": {"z": 1}, "object": {"z":  1.50, "a": []}}"#;
    assert_eq!(good(body).object.unwrap().into_json().raw().text(), r#"{"z":  1.50, "a": []}"#);
}

#[test]
fn what_is_wrong_is_told_with_its_field_and_code() {
    let cases = [
        (
            r#"{"name": "x", "nmae": 1}"#,
            "nmae",
            "unknown_parameter",
            "Unknown parameter: 'nmae'. Known are: name, id, on,",
        ),
        ("{}", "name", "missing_required_parameter", "Missing required parameter: 'name'."),
        (r#"{"name": null}"#, "name", "missing_required_parameter", "Missing required parameter: 'name'."),
        (r#"{"name": 5}"#, "name", "invalid_type", "Invalid type for 'name': expected a string."),
        (
            r#"{"name": " "}"#,
            "name",
            "invalid_value",
            "Invalid value for 'name': must have 1 to 8 characters and none that cannot be seen.",
        ),
        (r#"{"name": "123456789"}"#, "name", "invalid_value", "Invalid value for 'name': must have 1 to 8"),
        (r#"{"name": "x", "id": "3"}"#, "id", "invalid_type", "Invalid type for 'id': expected an integer."),
        (r#"{"name": "x", "id": 0}"#, "id", "invalid_value", "Invalid value for 'id': must be a whole number from 1."),
        (
            r#"{"name": "x", "id": 1.0}"#,
            "id",
            "invalid_value",
            "Invalid value for 'id': must be a whole number from 1.",
        ),
        (
            r#"{"name": "x", "id": 18446744073709551615}"#,
            "id",
            "invalid_value",
            "Invalid value for 'id': must be a whole",
        ),
        (r#"{"name": "x", "on": "yes"}"#, "on", "invalid_type", "Invalid type for 'on': expected a boolean."),
        (
            r#"{"name": "x", "list": [1]}"#,
            "list",
            "invalid_type",
            "Invalid type for 'list': expected a list of strings.",
        ),
        (
            r#"{"name": "x", "list": "a"}"#,
            "list",
            "invalid_type",
            "Invalid type for 'list': expected a list of strings.",
        ),
        (
            r#"{"name": "x", "prose": " "}"#,
            "prose",
            "invalid_value",
            "Invalid value for 'prose': must have 1 to 9 characters and none that cannot be written.",
        ),
        (
            r#"{"name": "x", "blank": "a\u0007"}"#,
            "blank",
            "invalid_value",
            "Invalid value for 'blank': must have 1 to 9",
        ),
        (
            r#"{"name": "x", "state": "on"}"#,
            "state",
            "invalid_value",
            "Invalid value for 'state': `stored` or `stateless`.",
        ),
        (
            r#"{"name": "x", "object": "{}"}"#,
            "object",
            "invalid_type",
            "Invalid type for 'object': expected an object.",
        ),
        (
            r#"{"name": "x", "tools": ["a b"]}"#,
            "tools",
            "invalid_type",
            "Invalid type for 'tools': expected names of 1 to 64 letters, digits, dashes and underscores.",
        ),
        (r#"{"name": "x", "tool": []}"#, "tool", "invalid_type", "Invalid type for 'tool': expected a name of 1 to 64"),
        ("[]", "body", "invalid_type", "Invalid type for 'body': expected an object."),
    ];
    for (body, param, code, message) in cases {
        let fault = read(body).err().unwrap();
        assert_eq!((fault.param.as_deref(), fault.code.as_deref()), (Some(param), Some(code)), "{body}");
        assert!(fault.message.starts_with(message), "{body}: {}", fault.message);
    }
    for body in ["", "{", r#"{"name": "\ud800"}"#, r#"{"id": 1e999}"#] {
        assert_eq!(read(body).err().unwrap().code.as_deref(), Some("invalid_json"), "{body}");
    }
}

#[test]
fn every_word_of_a_vocabulary_is_known_by_its_type() {
    fn check<T: Vocabulary>() {
        for word in T::WORDS {
            assert_eq!(T::of_word(word).map(T::word), Some(*word));
        }
    }
    check::<TenantState>();
    check::<amalgam_core::store::BankKind>();
    check::<amalgam_core::OnError>();
    check::<amalgam_core::Decider>();
}
