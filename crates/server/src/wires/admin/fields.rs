//! The body of an administrative request: a small object whose fields are all known.
//!
//! A field that nobody knows is refused: whoever sends one believes that it does something.

use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{Json, Raw, Writer};
use axum::extract::Request;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    app::App,
    body::{BodyLimits, read_json},
};

/// The largest body of an administrative request.
const LARGEST: usize = 64 * 1024;

/// The most tools that something can have.
const TOOLS: usize = 128;
/// The longest name of a tool.
const TOOL: usize = 64;

/// An object that was read whole.
pub(super) struct Fields {
    values: Map<String, Value>,
    /// The same as it was written: what is kept word for word is taken from here.
    whole: Json,
}

impl Fields {
    /// Reads the body of a request that may have these fields.
    pub(super) async fn read(app: &App, request: Request, known: &[&str]) -> Result<Self, Fault> {
        Self::parse(&body(app, request, LARGEST).await?, known)
    }

    /// Reads an object that may have these fields.
    pub(super) fn parse(body: &Bytes, known: &[&str]) -> Result<Self, Fault> {
        let unreadable =
            || Fault::new(FaultKind::Invalid, "We could not parse the JSON body of your request.").code("invalid_json");
        let whole = Json::parse(body).map_err(|_| unreadable())?;
        let Value::Object(values) = serde_json::from_slice(body).map_err(|_| unreadable())? else {
            return Err(Fault::invalid("body", "Invalid type for 'body': expected an object.").code("invalid_type"));
        };
        match values.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(Self { values, whole }),
            Some(unknown) => {
                let shown: String = unknown.chars().take(64).collect();
                let message = format!("Unknown parameter: '{shown}'. Known are: {}.", known.join(", "));
                Err(Fault::invalid(shown, message).code("unknown_parameter"))
            }
        }
    }

    /// A text of a bounded number of visible or blank characters, not empty.
    pub(super) fn text(&self, name: &'static str, longest: usize) -> Result<Option<&str>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_plain(text, longest) => Ok(Some(text)),
            Some(Value::String(_)) => {
                Err(wrong(name, &format!("must have 1 to {longest} characters and none that cannot be seen")))
            }
            Some(_) => Err(mistyped(name, "a string")),
        }
    }

    pub(super) fn boolean(&self, name: &'static str) -> Result<Option<bool>, Fault> {
        self.get(name).map(|value| value.as_bool().ok_or_else(|| mistyped(name, "a boolean"))).transpose()
    }

    /// A whole number from 1.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<i64>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(value) if !value.is_number() => Err(mistyped(name, "an integer")),
            Some(value) => match value.as_i64() {
                Some(number) if number >= 1 => Ok(Some(number)),
                _ => Err(wrong(name, "must be a whole number from 1")),
            },
        }
    }

    pub(super) fn texts(&self, name: &'static str) -> Result<Option<Vec<&str>>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let texts = value.as_array().map(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        texts.flatten().map(Some).ok_or_else(|| mistyped(name, "a list of strings"))
    }

    /// A text of several lines and a bounded number of characters, not blank.
    pub(super) fn prose(&self, name: &'static str, longest: usize) -> Result<Option<&str>, Fault> {
        let is_fine = |text: &str| {
            let odd = |character: char| character.is_control() && !matches!(character, '\n' | '\r' | '\t');
            !text.trim().is_empty() && text.chars().count() <= longest && !text.chars().any(odd)
        };
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_fine(text) => Ok(Some(text)),
            Some(Value::String(_)) => {
                Err(wrong(name, &format!("must have 1 to {longest} characters and none that cannot be written")))
            }
            Some(_) => Err(mistyped(name, "a string")),
        }
    }

    /// Names that tools could have, each once; the bank need not have them yet.
    pub(super) fn tool_names(&self, name: &'static str) -> Result<Vec<String>, Fault> {
        let named = self.texts(name)?.unwrap_or_default();
        if named.len() > TOOLS {
            return Err(wrong(name, &format!("at most {TOOLS} tools")));
        }
        let mut tools: Vec<String> = Vec::with_capacity(named.len());
        for tool in named {
            if !is_tool_name(tool) {
                return Err(mistyped(name, &format!("names of 1 to {TOOL} letters, digits, dashes and underscores")));
            }
            if !tools.iter().any(|known| known.eq_ignore_ascii_case(tool)) {
                tools.push(tool.to_owned());
            }
        }
        Ok(tools)
    }

    /// The name that a tool could have; blank counts as none.
    pub(super) fn tool_name(&self, name: &'static str) -> Result<Option<String>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(tool)) if tool.trim().is_empty() => Ok(None),
            Some(Value::String(tool)) if is_tool_name(tool) => Ok(Some(tool.clone())),
            Some(_) => Err(mistyped(name, &format!("a name of 1 to {TOOL} letters, digits, dashes and underscores"))),
        }
    }

    /// An object, word for word as it was written.
    pub(super) fn object(&self, name: &'static str) -> Result<Option<Json>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(_)) => Ok(self.raw(name).map(|value| Json::within(self.whole.bytes(), value))),
            Some(_) => Err(mistyped(name, "an object")),
        }
    }

    /// The value as it was written. Null counts as not said.
    pub(super) fn raw(&self, name: &str) -> Option<Raw<'_>> {
        // Of several fields of one name the last is the one that counts, here as everywhere.
        let named = self.whole.raw().fields().filter(|(key, _)| key.is(name)).last();
        named.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// The same object without some of its fields, each of the others as it was written.
    pub(super) fn without(&self, names: &[&str]) -> Json {
        let mut writer = Writer::with_capacity(self.whole.bytes().len());
        writer.object(|writer| {
            for (key, value) in self.whole.raw().fields().filter(|(key, _)| !names.iter().any(|name| key.is(name))) {
                writer.key_text(&key.decode()).raw(value);
            }
        });
        Json::from_writer(writer)
    }

    /// The value itself, null too.
    pub(super) fn said(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The value itself. Null counts as not said.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }
}

/// The body of a request, at most this large.
pub(super) async fn body(app: &App, request: Request, largest: usize) -> Result<Bytes, Fault> {
    let limits = BodyLimits { bytes: largest.min(app.limits.body_bytes), ..app.text_body() };
    Ok(read_json(request, limits, &app.memory).await?.1)
}

fn is_plain(text: &str, longest: usize) -> bool {
    !text.trim().is_empty() && text.chars().count() <= longest && !text.chars().any(char::is_control)
}

pub(super) fn missing(name: &'static str) -> Fault {
    Fault::invalid(name, format!("Missing required parameter: '{name}'.")).code("missing_required_parameter")
}

fn is_tool_name(tool: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !tool.is_empty() && tool.len() <= TOOL && tool.bytes().all(plain)
}

pub(super) fn wrong(name: &'static str, why: &str) -> Fault {
    Fault::invalid(name, format!("Invalid value for '{name}': {why}.")).code("invalid_value")
}

pub(super) fn mistyped(name: &'static str, expected: &str) -> Fault {
    Fault::invalid(name, format!("Invalid type for '{name}': expected {expected}.")).code("invalid_type")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::parse(&value.to_string().into(), &["name", "id", "on", "list"])
            .map_err(|fault| fault.into_parts().message)
            .unwrap()
    }

    fn code<T>(result: Result<T, Fault>) -> Option<String> {
        result.err().and_then(|fault| fault.into_parts().code.map(std::borrow::Cow::into_owned))
    }

    #[test]
    fn fields_are_read_by_their_type_and_null_is_not_said() {
        let fields = fields(json!({"name": "Ünï code", "id": 3, "on": false, "list": ["a", "b"]}));
        assert_eq!(fields.text("name", 8).unwrap(), Some("Ünï code"));
        assert_eq!(fields.number("id").unwrap(), Some(3));
        assert_eq!(fields.boolean("on").unwrap(), Some(false));
        assert_eq!(fields.texts("list").unwrap(), Some(vec!["a", "b"]));
        let nothing = self::fields(json!({"name": null, "on": null}));
        assert_eq!((nothing.text("name", 8).unwrap(), nothing.boolean("on").unwrap()), (None, None));
    }

    #[test]
    fn what_nobody_knows_and_what_has_the_wrong_type_is_refused() {
        assert_eq!(code(Fields::parse(&r#"{"nmae": 1}"#.into(), &["name"])).as_deref(), Some("unknown_parameter"));
        assert_eq!(code(Fields::parse(&"[]".into(), &["name"])).as_deref(), Some("invalid_type"));
        let fields = fields(json!({"name": " ", "id": 0, "on": "yes", "list": [1]}));
        assert_eq!(code(fields.text("name", 8)).as_deref(), Some("invalid_value"));
        assert_eq!(code(fields.text("on", 2)).as_deref(), Some("invalid_value"));
        assert_eq!(code(fields.text("id", 2)).as_deref(), Some("invalid_type"));
        assert_eq!(code(fields.number("id")).as_deref(), Some("invalid_value"));
        assert_eq!(code(fields.number("name")).as_deref(), Some("invalid_type"));
        assert_eq!(code(fields.boolean("on")).as_deref(), Some("invalid_type"));
        assert_eq!(code(fields.texts("list")).as_deref(), Some("invalid_type"));
    }

    #[test]
    fn prose_may_have_lines_and_objects_stay_as_they_were_written() {
        let body =
            r#"{"name": {"z": 1}, "name": {"z":  1.50, "a": []}, "on": "two\nlines", "id": "\u0007", "list": " "}"#;
        let fields = Fields::parse(&body.into(), &["name", "id", "on", "list"])
            .map_err(|fault| fault.into_parts().message)
            .unwrap();
        assert_eq!(fields.object("name").unwrap().unwrap().raw().text(), r#"{"z":  1.50, "a": []}"#);
        assert_eq!(fields.get("name"), Some(&json!({"z": 1.5, "a": []})), "the same of two is read in both ways");
        assert_eq!(fields.object("nothing").unwrap(), None);
        assert_eq!(code(fields.object("on")).as_deref(), Some("invalid_type"));
        assert_eq!(fields.prose("on", 9).unwrap(), Some("two\nlines"));
        for name in ["on", "id", "list"] {
            assert_eq!(code(fields.prose(name, 8)).as_deref(), Some("invalid_value"), "{name}");
        }
        assert_eq!(code(fields.prose("name", 8)).as_deref(), Some("invalid_type"));
    }
}
