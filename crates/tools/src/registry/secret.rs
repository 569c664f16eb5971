//! The forms of a secret in settings: as sent, as stored, and as returned.

use std::borrow::Cow;

use amalgam_core::BankFault;
use amalgam_protocol::{Json, Raw, Shape, Writer};

use super::wrong;

/// Replaces a secret in answers; in requests it means the stored secret.
pub(super) const HIDDEN: &str = "***";

/// A value that may be a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SecretInput<'a> {
    /// Text: a secret if its field contains only secrets.
    Text(Cow<'a, str>),
    /// `{"secret": "…"}`
    Secret(Cow<'a, str>),
    /// `{"secret": "***"}`: the stored secret.
    Unchanged,
    /// `{"sealed": "…"}`: the stored form.
    Sealed(Cow<'a, str>),
}

/// Reads a value; the error does not quote it.
pub(super) fn read<'a>(value: Raw<'a>, path: &str) -> Result<SecretInput<'a>, BankFault> {
    let malformed = || wrong(path, "it is a text, or a secret such as {\"secret\": \"…\"}");
    if let Some(text) = value.as_str() {
        return Ok(SecretInput::Text(text.decode()));
    }
    let mut fields = value.fields();
    let (Shape::Object, Some((key, inner)), None) = (value.shape(), fields.next(), fields.next()) else {
        return Err(malformed());
    };
    let inner = inner.as_str().ok_or_else(malformed)?.decode();
    if key.is("sealed") {
        return Ok(SecretInput::Sealed(inner));
    }
    match key.is("secret") {
        false => Err(malformed()),
        true if inner == HIDDEN => Ok(SecretInput::Unchanged),
        true if inner.is_empty() => Err(wrong(path, "the secret is empty")),
        true => Ok(SecretInput::Secret(inner)),
    }
}

/// `{"sealed": "…"}`
pub(super) fn sealed(text: &str) -> Json {
    pair("sealed", text)
}

/// `{"secret": "***"}`
pub(super) fn hidden() -> Json {
    pair("secret", HIDDEN)
}

fn pair(key: &'static str, text: &str) -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| writer.key(key).string(text));
    Json::from_writer(writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<SecretInput<'_>, BankFault> {
        read(Raw::parse(text.as_bytes()).unwrap(), "settings.authorization")
    }

    #[test]
    fn a_value_is_read_in_each_of_its_forms_and_in_no_other() {
        assert_eq!(parsed(r#""a\u0062""#), Ok(SecretInput::Text("ab".into())));
        assert_eq!(parsed(r#"{"secret": "ab"}"#), Ok(SecretInput::Secret("ab".into())));
        assert_eq!(parsed(r#"{"secret": "***"}"#), Ok(SecretInput::Unchanged));
        assert_eq!(parsed(r#"{"sealed": "ams2.x"}"#), Ok(SecretInput::Sealed("ams2.x".into())));
        for text in
            ["1", "null", "[]", "{}", r#"{"secret": 1}"#, r#"{"secret": "hush", "more": 1}"#, r#"{"Secret": "hush"}"#]
        {
            let fault = parsed(text).unwrap_err();
            assert_eq!(fault.field, "settings.authorization");
            assert!(!fault.reason.contains("hush"), "{}", fault.reason);
        }
        assert_eq!(parsed(r#"{"secret": ""}"#).unwrap_err().reason, "the secret is empty");
    }
}
