//! Decides whether two calls are the same. O-29

use amalgam_protocol::{Raw, Shape};

/// The tool and its arguments in canonical form: keys sorted and case-insensitive, lists unchanged. If the tool's
/// schema says integer, `28`, `28.0` and `"28"` are equal. Invalid JSON is compared as text.
pub(super) fn signature(name: &str, arguments: &str, schema: Raw<'_>) -> String {
    let mut signature = format!("{name} ");
    match Raw::parse(arguments.as_bytes()) {
        Ok(raw) => spell(raw, Some(schema), &mut signature),
        Err(_) => signature.push_str(arguments.trim()),
    }
    signature
}

fn spell(raw: Raw<'_>, schema: Option<Raw<'_>>, out: &mut String) {
    match raw.shape() {
        Shape::Object => {
            let properties = schema.and_then(|schema| schema.get("properties"));
            let mut fields: Vec<_> = raw.fields().map(|(key, value)| (key.decode().into_owned(), value)).collect();
            fields.sort_by(|(one, _), (other, _)| one.to_lowercase().cmp(&other.to_lowercase()).then(one.cmp(other)));
            out.push('{');
            for (key, value) in fields {
                out.push_str(&format!("{key:?}:"));
                spell(value, properties.and_then(|properties| properties.get(&key)), out);
                out.push(',');
            }
            out.push('}');
        }
        Shape::Array => {
            let items = schema.and_then(|schema| schema.get("items"));
            out.push('[');
            for element in raw.elements() {
                spell(element, items, out);
                out.push(',');
            }
            out.push(']');
        }
        shape => {
            let text = raw.as_str().map(|text| text.decode());
            let integer = schema.filter(|schema| says_integer(*schema)).and_then(|_| match &text {
                Some(text) => text.parse::<i64>().ok().filter(|number| number.to_string() == **text),
                None => whole_number(raw.text()),
            });
            match (integer, shape) {
                (Some(integer), _) => out.push_str(&integer.to_string()),
                (None, Shape::String) => out.push_str(&format!("{:?}", text.unwrap_or_default())),
                (None, _) => out.push_str(raw.text()),
            }
        }
    }
}

/// Whether a schema allows integers: its `type` is `integer`, or a list with it.
fn says_integer(schema: Raw<'_>) -> bool {
    let is_integer = |kind: Raw<'_>| kind.as_str().is_some_and(|kind| kind.decode() == "integer");
    schema.get("type").is_some_and(|kind| match kind.shape() {
        Shape::Array => kind.elements().any(is_integer),
        _ => is_integer(kind),
    })
}

/// The integer value of a number, which may have a fraction of zero.
fn whole_number(text: &str) -> Option<i64> {
    let fraction_is_zero = |(_, fraction): &(&str, &str)| fraction.bytes().all(|digit| digit == b'0');
    let whole = text.split_once('.').filter(fraction_is_zero).map_or(text, |(whole, _)| whole);
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(name: &str, arguments: &str) -> String {
        signature(name, arguments, Raw::parse(b"{}").unwrap())
    }

    #[test]
    fn the_order_and_the_spelling_of_a_call_do_not_make_it_another_one() {
        // O-29
        let one = plain("look", r#"{"b": [1, 2], "A": {"x": "é"}}"#);
        assert_eq!(one, plain("look", r#" {"A":{"x":"\u00e9"},"b":[1,2]}"#));
        assert_ne!(one, plain("look", r#"{"b": [2, 1], "A": {"x": "é"}}"#));
        assert_ne!(one, plain("find", r#"{"b": [1, 2], "A": {"x": "é"}}"#));
        assert_eq!(plain("look", " {not json "), plain("look", "{not json"));
    }

    #[test]
    fn a_number_and_its_text_are_one_value_where_the_schema_says_integer() {
        // right B2
        let schema = br#"{"properties": {"id": {"type": ["integer", "string"]}, "name": {"type": "string"},
            "ids": {"type": "array", "items": {"type": "integer"}}}}"#;
        let of = |arguments: &str| signature("look", arguments, Raw::parse(schema).unwrap());
        let one = of(r#"{"id": 28}"#);
        assert_eq!(one, of(r#"{"id": "28"}"#));
        assert_eq!(one, of(r#"{"id": 28.0}"#));
        assert_eq!(of(r#"{"ids": [1, 2]}"#), of(r#"{"ids": ["1", 2.00]}"#));
        for other in [r#"{"id": 29}"#, r#"{"id": "028"}"#, r#"{"id": "28 "}"#, r#"{"id": 28.5}"#, r#"{"id": null}"#] {
            assert_ne!(one, of(other), "{other}");
        }
        assert_ne!(of(r#"{"name": 28}"#), of(r#"{"name": "28"}"#), "a text is a text");
        assert_ne!(plain("look", r#"{"id": 28}"#), plain("look", r#"{"id": "28"}"#), "no schema, no integer");
    }
}
