//! A mode as it is written by its author.

use amalgam_core::{Fault, execute::modes, no_items, store::Mode};
use amalgam_protocol::Json;
use bytes::Bytes;
use serde_json::Value;

use crate::wires::admin::fields::{self, Fields, mistyped, wrong};

/// The largest mode that is read: a prompt may be long, and written in escapes.
pub(super) const LARGEST: usize = 1024 * 1024;

/// The longest name, in characters.
const NAME: usize = 64;
/// The longest name for people, in characters.
const DISPLAY_NAME: usize = 200;
/// The longest prompt, in characters.
const PROMPT: usize = 100_000;

/// What may be said. The last ones change nothing: what is shown may be sent back.
const KNOWN: [&str; 11] = [
    "name",
    "display_name",
    "system_prompt",
    "tools",
    "tool_choice",
    "rag_scope",
    "object",
    "seeded",
    "unknown_tools",
    "created_at",
    "updated_at",
];

/// Reads a mode of this name. What is not said is as it usually is.
pub(super) fn read(body: &Bytes, in_path: Option<&str>, now_ms: u64) -> Result<Mode, Fault> {
    let fields = Fields::parse(body, &KNOWN)?;
    let name = name(&fields, in_path)?;
    let prompt = match fields.get("system_prompt") {
        Some(Value::String(text)) if text.trim().is_empty() => "",
        _ => fields.prose("system_prompt", PROMPT)?.unwrap_or_default(),
    };
    Ok(Mode {
        display_name: fields.text("display_name", DISPLAY_NAME)?.unwrap_or(name).to_owned(),
        system_prompt: prompt.to_owned(),
        tools: fields.tool_names("tools")?,
        tool_choice: fields.tool_name("tool_choice")?,
        rag_scope: rag_scope(&fields)?,
        name: name.to_owned(),
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    })
}

/// The name in the path and the one in the body mean the same mode.
fn name<'a>(fields: &'a Fields, in_path: Option<&'a str>) -> Result<&'a str, Fault> {
    let name = match (in_path, fields.text("name", NAME)?) {
        (Some(name), Some(said)) if !name.eq_ignore_ascii_case(said) => {
            return Err(wrong("name", "must be the name in the path"));
        }
        (_, Some(name)) | (Some(name), None) => name,
        (None, None) => return Err(fields::missing("name")),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match !name.is_empty() && name.len() <= NAME && name.bytes().all(plain) {
        true => Ok(name),
        false => Err(wrong("name", &format!("must have 1 to {NAME} letters, digits, dashes and underscores"))),
    }
}

/// Conditions in the words that turns bring them in.
fn rag_scope(fields: &Fields) -> Result<Json, Fault> {
    let Some(raw) = fields.raw("rag_scope") else { return Ok(no_items()) };
    if !matches!(fields.get("rag_scope"), Some(Value::Array(_))) {
        return Err(mistyped("rag_scope", "a list of conditions"));
    }
    match modes::conditions(raw) {
        Ok(conditions) => Ok(modes::rag_scope(&conditions)),
        Err(faults) => {
            let first = faults.list().first().map_or_else(|| "rag_scope".to_owned(), |fault| fault.field.clone());
            Err(Fault::invalid(first, format!("Invalid value for 'rag_scope': {faults}.")).code("invalid_value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mode(body: &Value) -> Result<Mode, Fault> {
        read(&body.to_string().into(), Some("Review"), 7)
    }

    #[test]
    fn what_is_not_said_is_as_it_usually_is() {
        let expected = Mode {
            name: "Review".to_owned(),
            display_name: "Review".to_owned(),
            system_prompt: String::new(),
            tools: Vec::new(),
            tool_choice: None,
            rag_scope: no_items(),
            created_at_ms: 7,
            updated_at_ms: 7,
        };
        for body in [json!({}), json!({"display_name": null, "tools": null, "rag_scope": null, "system_prompt": " "})] {
            assert_eq!(mode(&body).map_err(|fault| fault.into_parts().message).unwrap(), expected, "{body}");
        }
        let body = json!({"name": "review", "display_name": "Reviewing", "system_prompt": "Look.\nTell.",
            "tools": ["a", "B", "b"], "rag_scope": [{"Key": "path", "Operator": "==", "Values": ["src"]}],
            "object": "mode", "seeded": false, "unknown_tools": [], "created_at": 1, "updated_at": 2});
        let scope = r#"[{"key":"path","operator":"==","values":["src"]}]"#;
        let expected = Mode {
            name: "review".to_owned(),
            display_name: "Reviewing".to_owned(),
            system_prompt: "Look.\nTell.".to_owned(),
            tools: vec!["a".to_owned(), "B".to_owned()],
            rag_scope: Json::parse(&scope.into()).unwrap(),
            ..expected
        };
        assert_eq!(mode(&body).map_err(|fault| fault.into_parts().message).unwrap(), expected);
    }

    #[test]
    fn faults_name_the_field() {
        for (body, param) in [
            (json!({"name": "other"}), "name"),
            (json!({"display_name": ""}), "display_name"),
            (json!({"system_prompt": 5}), "system_prompt"),
            (json!({"system_prompt": "a\u{0}b"}), "system_prompt"),
            (json!({"tools": ["a b"]}), "tools"),
            (json!({"rag_scope": {}}), "rag_scope"),
            (json!({"rag_scope": [1]}), "rag_scope[0]"),
            (json!({"rag_scope": [{"key": "path", "operator": "~", "values": ["x"]}]}), "rag_scope[0].operator"),
            (json!({"mode": 1}), "mode"),
        ] {
            let fault = mode(&body).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param), "{}", fault.message);
        }
        for name in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert_eq!(read(&"{}".into(), Some(name), 0).unwrap_err().param.as_deref(), Some("name"), "{name}");
        }
        assert_eq!(read(&"{}".into(), None, 0).unwrap_err().code.as_deref(), Some("missing_required_parameter"));
    }
}
