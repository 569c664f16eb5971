//! The check agrees with serde_json, and walking gives back what was written.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 4.0)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn rebuild(raw: Raw<'_>) -> Value {
    match raw.shape() {
        Shape::Null => Value::Null,
        Shape::Bool => raw.as_bool().unwrap().into(),
        Shape::Number => serde_json::from_str(raw.text()).unwrap(),
        Shape::String => raw.as_str().unwrap().decode().into_owned().into(),
        Shape::Array => raw.elements().map(rebuild).collect(),
        Shape::Object => Value::Object(raw.fields().map(|(k, v)| (k.decode().into_owned(), rebuild(v))).collect()),
    }
}

fn write(writer: &mut Writer, value: &Value) {
    match value {
        Value::Null => writer.null(),
        Value::Bool(value) => writer.bool(*value),
        Value::Number(number) => writer.valid(number.to_string().as_bytes()),
        Value::String(text) => writer.string(text),
        Value::Array(list) => writer.array(|writer| list.iter().for_each(|value| write(writer, value))),
        Value::Object(map) => writer.object(|writer| {
            for (key, value) in map {
                write(writer.key_text(key), value);
            }
        }),
    }
}

proptest! {
    #[test]
    fn walking_gives_back_every_value(value in values()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            prop_assert_eq!(&rebuild(Raw::parse(text.as_bytes()).unwrap()), &value);
            let mut ends = ValueIndex::default();
            prop_assert_eq!(&rebuild(Raw::parse_large(text.as_bytes(), DEFAULT_DEPTH, &mut ends).unwrap()), &value);
        }
    }

    #[test]
    fn what_is_written_reads_back(value in values()) {
        let mut writer = Writer::default();
        write(&mut writer, &value);
        prop_assert_eq!(serde_json::from_slice::<Value>(writer.bytes()).unwrap(), value);
    }

    #[test]
    fn the_check_accepts_what_serde_json_accepts(value in values(), cut in any::<prop::sample::Index>(), put in any::<u8>()) {
        let mut text = value.to_string().into_bytes();
        let at = cut.index(text.len());
        text[at] = put;
        let ours = Raw::parse(&text).is_ok();
        let theirs = std::str::from_utf8(&text).is_ok_and(|text| serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok());
        prop_assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn no_bytes_make_the_check_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(raw) = Raw::parse(&bytes) {
            rebuild(raw);
        }
    }

    #[test]
    fn a_plain_run_ends_at_the_first_special_byte(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let expected = bytes.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\').unwrap_or(bytes.len());
        prop_assert_eq!(check::plain_run(&bytes), expected);
    }
}

#[test]
fn depth_is_bounded_and_the_place_is_named() {
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let error = Raw::parse(deep.as_bytes()).unwrap_err();
    assert_eq!((error.message, error.offset), ("nesting is too deep", 64));
    assert!(Raw::parse_within(deep.as_bytes(), 65).is_ok());
}

#[test]
fn long_values_are_found_by_where_they_end() {
    let long = "x\\n\"".repeat(60);
    let value =
        serde_json::json!({"a": [long, [1, {"b": long}], []], "c": {"d": [long]}, "e": "short", "f": [[[long]]]});
    let text = value.to_string();
    let mut ends = ValueIndex::default();
    let raw = Raw::parse_large(text.as_bytes(), DEFAULT_DEPTH, &mut ends).unwrap();
    assert_eq!(rebuild(raw), value);
    assert!(raw.index.is_some());
}

#[test]
fn a_text_of_nothing_but_tiny_values_is_walked_without_notes() {
    let text = format!("[{}0]", "0,".repeat(5000));
    let mut ends = ValueIndex::default();
    let raw = Raw::parse_large(text.as_bytes(), DEFAULT_DEPTH, &mut ends).unwrap();
    assert!(raw.index.is_none());
    assert_eq!(raw.elements().count(), 5001);
    // The same notes serve another text.
    let raw = Raw::parse_large(b" [1, [2, 3], 4] ", DEFAULT_DEPTH, &mut ends).unwrap();
    let texts: Vec<&str> = raw.elements().map(Raw::text).collect();
    assert_eq!((raw.index.is_some(), texts), (true, vec!["1", "[2, 3]", "4"]));
}

#[test]
fn a_fault_in_a_string_is_told_where_it_is() {
    for padding in [0, 1, 50, 63, 64, 200] {
        let before = format!("{{\"a\":\"{}\",\"b\":\"", "x\\n".repeat(padding));
        for (inner, message) in [
            ("\u{1}\"}", "control character in a string"),
            ("\\x\"}", "bad escape in a string"),
            ("\\u00g0\"}", "bad escape in a string"),
        ] {
            let text = format!("{before}{inner}");
            let error = Raw::parse(text.as_bytes()).unwrap_err();
            assert_eq!((error.message, error.offset), (message, before.len()), "{text}");
        }
        let error = Raw::parse(before.as_bytes()).unwrap_err();
        assert_eq!((error.message, error.offset), ("text ends inside a string", before.len()));
    }
}

#[test]
fn a_field_is_found_by_the_characters_of_its_key() {
    let text = r#"{"":0,"ab":1,"abc":[2],"\u0061bcd":{"ab":3},"a\/b":4,"ab":5}"#;
    let mut ends = ValueIndex::default();
    for raw in
        [Raw::parse(text.as_bytes()).unwrap(), Raw::parse_large(text.as_bytes(), DEFAULT_DEPTH, &mut ends).unwrap()]
    {
        let found = ["", "ab", "abc", "abcd", "a/b", "a", "abcde"].map(|name| raw.get(name).map(Raw::text));
        let expected = [Some("0"), Some("1"), Some("[2]"), Some(r#"{"ab":3}"#), Some("4"), None, None];
        assert_eq!(found, expected);
        assert_eq!(raw.get("abcd").and_then(|inner| inner.get("ab")).map(Raw::text), Some("3"));
        assert_eq!(raw.get("abc").and_then(|list| list.get("ab")), None);
    }
}

#[test]
fn a_syntax_error_names_its_line() {
    let error = Raw::parse(b"{\n  \"a\": 1,\n  oops\n}").unwrap_err();
    assert_eq!(error.to_string(), "expected a key in quotes at line 3 (byte 14)");
}

#[test]
fn surrogates_are_joined_and_lone_ones_replaced() {
    let text = Raw::parse(br#""\ud83d\ude00 \ud83d x \u00e9\/""#).unwrap().as_str().unwrap();
    assert_eq!(text.decode(), "😀 \u{fffd} x é/");
    assert_eq!(text.escaped(), r"\ud83d\ude00 \ud83d x \u00e9\/");
}

#[test]
fn a_literal_shares_the_message_it_came_from() {
    let whole = Bytes::from_static(br#"{"delta":"a\nb"}"#);
    let delta = Raw::parse(&whole).unwrap().get("delta").unwrap().as_str().unwrap();
    let literal = Literal::within(&whole, delta);
    assert_eq!(literal.escaped().as_ptr(), whole[10..].as_ptr());
    assert_eq!(literal.decode(), "a\nb");
}

#[test]
fn whole_numbers_are_read_whether_or_not_they_have_a_point() {
    let number = |text: &'static str| Raw::parse(text.as_bytes()).unwrap().as_u64();
    assert_eq!(
        [number("7"), number("7.0"), number("-7"), number("7.5"), number("1e3"), number("18446744073709551615")],
        [Some(7), Some(7), None, None, Some(1000), Some(u64::MAX)]
    );
}

#[test]
fn numbers_are_written_as_they_are() {
    for number in (0..1200).chain([9_999, 10_000, u64::from(u32::MAX), u64::MAX]) {
        let mut writer = Writer::default();
        writer.number(number);
        assert_eq!(writer.bytes(), number.to_string().as_bytes());
    }
}

#[test]
fn what_may_stand_between_quotes_is_told_whatever_its_length() {
    for byte in 0..=u8::MAX {
        for length in [1, 16, 17, 40] {
            let mut text = vec![b'a'; length];
            text[length / 2] = byte;
            let quoted = [b"\"", &text[..], b"\""].concat();
            assert_eq!(Literal::check(text.into()).is_some(), Raw::parse(&quoted).is_ok(), "{byte:#x} in {length}");
        }
    }
}
