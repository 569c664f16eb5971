use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const LIMITS: RespondLimits = RespondLimits { max_input_chars: 10, metadata_max_bytes: 40 };

/// The request, or the body of the answer that refuses it.
fn given(body: &Value) -> Result<RespondRequest, Value> {
    given_text(&body.to_string())
}

fn given_text(body: &str) -> Result<RespondRequest, Value> {
    read(Raw::parse(body.as_bytes()).unwrap(), LIMITS).map_err(|faults| {
        let mut writer = Writer::default();
        faults.write(&mut writer);
        serde_json::from_slice(writer.bytes()).unwrap()
    })
}

fn request(agent: Option<&str>, message: &str, course_id: Option<i64>) -> Result<RespondRequest, Value> {
    Ok(RespondRequest { agent: agent.map(str::to_owned), message: message.to_owned(), course_id, new_session: false })
}

#[test]
fn a_request_has_a_message_and_perhaps_an_agent_and_metadata() {
    // RNCC-03
    let whole = json!({"agent": "course-assistant", "message": "Rangkumin", "metadata": {"course_id": 28}, "other": 1});
    assert_eq!(given(&whole), request(Some("course-assistant"), "Rangkumin", Some(28)));
    assert_eq!(given(&whole).unwrap().metadata().raw().text(), r#"{"course_id":28}"#);
    assert_eq!(given(&json!({"message": " hi\n"})), request(None, "hi", None));
    assert_eq!(given(&json!({"message": "hi", "metadata": {}})), request(None, "hi", None));
    assert_eq!(given(&json!({"message": "hi"})).unwrap().metadata().raw().text(), "{}");
}

#[test]
fn a_new_session_is_asked_for_with_a_boolean() {
    let asked =
        |value: Value| given(&json!({"message": "hi", "new_session": value})).map(|request| request.new_session);
    assert_eq!([asked(json!(true)), asked(json!(false)), asked(json!(null))], [Ok(true), Ok(false), Ok(false)]);
    for wrong in [json!("true"), json!(1), json!([])] {
        assert_eq!(asked(wrong), Err(json!({"new_session": ["Must be a valid boolean."]})));
    }
}

#[test]
fn an_agent_is_a_text_of_at_most_a_hundred_characters() {
    // RNCC-04
    let asked = |agent: Value| given(&json!({"agent": agent, "message": "hi"}));
    assert_eq!(asked(json!("é".repeat(100))), request(Some(&"é".repeat(100)), "hi", None));
    for absent in [json!(null), json!(""), json!("  ")] {
        assert_eq!(asked(absent), request(None, "hi", None));
    }
    let refused = |fault: &str| Err(json!({"agent": [fault]}));
    assert_eq!(asked(json!("é".repeat(101))), refused("Ensure this field has no more than 100 characters."));
    assert_eq!(asked(json!("a\0b")), refused("Null characters are not allowed."));
    for wrong in [json!(1), json!(true), json!(["a"]), json!({})] {
        assert_eq!(asked(wrong), refused("Not a valid string."));
    }
}

#[test]
fn a_message_is_neither_missing_nor_null_nor_blank_nor_anything_else() {
    // RNCC-07
    let refused = |fault: &str| Err(json!({"message": [fault]}));
    assert_eq!(given(&json!({})), refused("This field is required."));
    assert_eq!(given(&json!({"message": null})), refused("This field may not be null."));
    for blank in ["", "   ", "\u{a0}\n\t\u{3000}"] {
        assert_eq!(given(&json!({"message": blank})), refused("This field may not be blank."));
    }
    for wrong in [json!(7), json!(false), json!([]), json!({"text": "hi"})] {
        assert_eq!(given(&json!({"message": wrong})), refused("Not a valid string."));
    }
}

#[test]
fn a_message_is_measured_in_characters_without_the_space_around_it() {
    // RNCC-08
    assert_eq!(given(&json!({"message": "  éééééééééé  "})), request(None, "éééééééééé", None));
    let fault = "Ensure this field has no more than 10 characters.";
    assert_eq!(given(&json!({"message": "elevenchars"})), Err(json!({"message": [fault]})));
    // Escapes are not counted, what they stand for is.
    assert_eq!(given_text(r#"{"message": "\u00e9\u00e9\u00e9\u00e9\ud83d\ude00"}"#), request(None, "éééé😀", None));
    let both = json!({"message": [fault, "Null characters are not allowed."]});
    assert_eq!(given(&json!({"message": "elevencha\0rs"})), Err(both));
}

#[test]
fn metadata_is_an_object() {
    // RNCC-09
    for (wrong, name) in
        [(json!([]), "list"), (json!("x"), "str"), (json!(1), "int"), (json!(1.5), "float"), (json!(true), "bool")]
    {
        let fault = format!("Expected a dictionary of items but got type \"{name}\".");
        assert_eq!(given(&json!({"message": "hi", "metadata": wrong})), Err(json!({"metadata": [fault]})));
    }
    let refused = Err(json!({"metadata": ["This field may not be null."]}));
    assert_eq!(given(&json!({"message": "hi", "metadata": null})), refused);
}

#[test]
fn unknown_keys_of_metadata_are_told_in_order() {
    // RNCC-10, C-28
    let given = |metadata: Value| given(&json!({"message": "hi", "metadata": metadata}));
    assert_eq!(given(json!({"foo": 1})), Err(json!({"metadata": ["Unknown metadata keys: foo."]})));
    let several = json!({"zoo": 1, "course_id": 1, "foo": 2});
    assert_eq!(given(several), Err(json!({"metadata": ["Unknown metadata keys: foo, zoo."]})));
}

#[test]
fn a_course_is_a_positive_whole_number_also_as_text() {
    // RNCC-11
    let given =
        |course_id: &str| given_text(&format!(r#"{{"message": "hi", "metadata": {{"course_id": {course_id}}}}}"#));
    for (text, expected) in [("28", 28), (r#""28""#, 28), (r#"" 028 ""#, 28), ("9223372036854775807", i64::MAX)] {
        assert_eq!(given(text), request(None, "hi", Some(expected)), "{text}");
    }
    for wrong in [
        "0",
        "-1",
        "-0",
        "1.5",
        "28.0",
        "1e3",
        "true",
        "null",
        "[]",
        "{}",
        r#""""#,
        r#""x""#,
        r#""+28""#,
        r#""-1""#,
        r#""٢٨""#,
        "9223372036854775808",
    ] {
        let refused = json!({"metadata": ["course_id must be a positive integer."]});
        assert_eq!(given(wrong), Err(refused), "{wrong}");
    }
}

#[test]
fn metadata_is_measured_in_bytes_as_short_as_it_can_be_written() {
    // RNCC-12
    let refused = |fault: &str| Err(json!({"metadata": [fault]}));
    let too_large = "Metadata is too large: it may have at most 40 bytes.";
    // {"k":"…"} is eight bytes around what is inside, and é is two.
    let fits = json!({"message": "hi", "metadata": {"k": "é".repeat(16)}});
    assert_eq!(given(&fits), refused("Unknown metadata keys: k."));
    let large = json!({"message": "hi", "metadata": {"k": "é".repeat(17)}});
    assert_eq!(given(&large), refused(too_large));
    let spaced = format!(r#"{{"message": "hi", "metadata": {{ {} "course_id" : 1 }} }}"#, " ".repeat(100));
    assert_eq!(given_text(&spaced), request(None, "hi", Some(1)));
    let escaped = format!(r#"{{"message": "hi", "metadata": {{"k": "{}"}}}}"#, "\\u00e9".repeat(16));
    assert_eq!(given_text(&escaped), refused("Unknown metadata keys: k."));
}

#[test]
fn one_answer_tells_everything_that_is_wrong() {
    let body = json!({"metadata": {"foo": 1, "course_id": 0}, "agent": 5});
    let refused = json!({
        "agent": ["Not a valid string."],
        "message": ["This field is required."],
        "metadata": ["Unknown metadata keys: foo.", "course_id must be a positive integer."],
    });
    assert_eq!(given(&body), Err(refused));
}

#[test]
fn a_body_that_is_no_object_is_refused_whole() {
    for (body, fault) in [
        (json!([]), "Invalid data. Expected a dictionary, but got list."),
        (json!("hi"), "Invalid data. Expected a dictionary, but got str."),
        (json!(null), "No data provided"),
    ] {
        assert_eq!(given(&body), Err(json!({"non_field_errors": [fault]})));
    }
}

proptest! {
    #[test]
    fn any_strings_are_either_taken_within_the_limits_or_refused(agent in "\\PC{0,120}", message in "\\PC{0,20}", key in "\\PC{0,20}") {
        let body = json!({"agent": agent, "message": message, "metadata": {key.clone(): 5}});
        match given(&body) {
            Ok(request) => {
                prop_assert!(request.message.chars().count() <= 10 && !request.message.is_empty());
                prop_assert!(request.agent.is_none_or(|agent| agent.chars().count() <= AGENT_CHARS));
                prop_assert_eq!(key, "course_id");
            }
            Err(faults) => prop_assert!(!faults.as_object().unwrap().is_empty()),
        }
    }

    #[test]
    fn sizes_are_those_of_another_writer(text in "[a-zé\"\\\\\n]{0,20}", number in any::<i32>()) {
        let value = json!({"a": [text, number, null, true], "b": {text.clone(): {}}});
        let spaced = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(compact_len(Raw::parse(spaced.as_bytes()).unwrap()), value.to_string().len());
    }
}
