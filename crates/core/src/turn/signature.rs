//! What makes two calls the same. O-29

use amalgam_protocol::{Raw, Shape};

/// The tool and its arguments in one spelling: keys in order whatever their case, lists as they are. What is no JSON is
/// taken as text.
pub(super) fn signature(name: &str, arguments: &str) -> String {
    let mut signature = format!("{name} ");
    match Raw::parse(arguments.as_bytes()) {
        Ok(raw) => spell(raw, &mut signature),
        Err(_) => signature.push_str(arguments.trim()),
    }
    signature
}

fn spell(raw: Raw<'_>, out: &mut String) {
    match raw.shape() {
        Shape::Object => {
            let mut fields: Vec<_> = raw.fields().map(|(key, value)| (key.decode().into_owned(), value)).collect();
            fields.sort_by(|(one, _), (other, _)| one.to_lowercase().cmp(&other.to_lowercase()).then(one.cmp(other)));
            out.push('{');
            for (key, value) in fields {
                out.push_str(&format!("{key:?}:"));
                spell(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Shape::Array => {
            out.push('[');
            for element in raw.elements() {
                spell(element, out);
                out.push(',');
            }
            out.push(']');
        }
        Shape::String => out.push_str(&format!("{:?}", raw.as_str().map(|text| text.decode()).unwrap_or_default())),
        _ => out.push_str(raw.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_and_the_spelling_of_a_call_do_not_make_it_another_one() {
        // O-29
        let one = signature("look", r#"{"b": [1, 2], "A": {"x": "é"}}"#);
        assert_eq!(one, signature("look", r#" {"A":{"x":"\u00e9"},"b":[1,2]}"#));
        assert_ne!(one, signature("look", r#"{"b": [2, 1], "A": {"x": "é"}}"#));
        assert_ne!(one, signature("find", r#"{"b": [1, 2], "A": {"x": "é"}}"#));
        assert_eq!(signature("look", " {not json "), signature("look", "{not json"));
    }
}
