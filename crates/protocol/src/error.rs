//! The error object of the OpenAI APIs.

use crate::json::{Json, Raw, Writer};

/// `{"message", "type", "param", "code"}`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// A message for the user.
    pub message: String,
    /// The category, such as `invalid_request_error`.
    pub kind: String,
    /// The parameter that caused it.
    pub param: Option<String>,
    /// The exact error, such as `missing_required_parameter`.
    pub code: Option<String>,
}

impl ErrorObject {
    /// Writes the fields inside an open object.
    pub fn write_fields(&self, writer: &mut Writer) {
        writer.key("message").string(&self.message);
        writer.key("type").string(&self.kind);
        write_optional(writer.key("param"), self.param.as_deref());
        write_optional(writer.key("code"), self.code.as_deref());
    }

    /// The object for the store.
    pub fn to_json(&self) -> Json {
        let mut writer = Writer::with_capacity(128 + self.message.len());
        writer.object(|writer| self.write_fields(writer));
        Json::from_writer(writer)
    }

    /// Reads a stored object; missing fields are empty.
    pub fn read(raw: Raw<'_>) -> Self {
        let text = |name: &str| raw.get_str(name).map(std::borrow::Cow::into_owned);
        Self {
            message: text("message").unwrap_or_default(),
            kind: text("type").unwrap_or_default(),
            param: text("param"),
            code: text("code"),
        }
    }

    /// The body of an HTTP answer: `{"error": {…}}`.
    pub fn envelope(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(128 + self.message.len());
        writer.object(|writer| {
            writer.key("error").object(|writer| self.write_fields(writer));
        });
        writer.into_bytes()
    }
}

pub(crate) fn write_optional(writer: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => writer.string(text),
        None => writer.null(),
    }
}
