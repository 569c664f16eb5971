//! A profile as it is written by its author.

use amalgam_core::{Fault, store::AgentProfile};
use bytes::Bytes;
use serde_json::Value;

use crate::wires::admin::fields::{Fields, wrong};

/// The largest profile that is read: a prompt may be long, and written in escapes.
pub(super) const LARGEST: usize = 1024 * 1024;

/// The longest slug, in characters.
const SLUG: usize = 100;
/// The longest prompt, in characters.
const PROMPT: usize = 100_000;
/// The longest name of a model.
const MODEL: usize = 200;

/// What may be said. The last ones change nothing: what is shown may be sent back.
const KNOWN: [&str; 12] = [
    "slug",
    "prompt",
    "tools",
    "model",
    "tool_choice",
    "active",
    "object",
    "version",
    "prompt_hash",
    "unknown_tools",
    "created_at",
    "updated_at",
];

/// Reads a profile for this slug. What is not said is as it usually is; its version is the store's to count.
pub(super) fn read(body: &Bytes, slug: &str, now_ms: u64) -> Result<AgentProfile, Fault> {
    let fields = Fields::parse(body, &KNOWN)?;
    if !is_slug(slug) {
        return Err(wrong("slug", &format!("must have 1 to {SLUG} letters, digits, dots, dashes and underscores")));
    }
    if fields.text("slug", SLUG)?.is_some_and(|said| said != slug) {
        return Err(wrong("slug", "must be the one in the path"));
    }
    Ok(AgentProfile {
        slug: slug.to_owned(),
        prompt: prompt(&fields)?,
        tools: fields.tool_names("tools")?,
        model: fields.text("model", MODEL)?.map(str::to_owned),
        tool_choice: fields.tool_name("tool_choice")?,
        active: fields.boolean("active")?.unwrap_or(true),
        version: 1,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    })
}

/// It may stand where the name of a model does.
fn is_slug(slug: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !slug.is_empty() && slug.len() <= SLUG && slug.bytes().all(plain)
}

/// A profile without words has the tenant's alone.
fn prompt(fields: &Fields) -> Result<String, Fault> {
    match fields.get("prompt") {
        None => Ok(String::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(String::new()),
        Some(_) => Ok(fields.prose("prompt", PROMPT)?.unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(body: &Value) -> Result<AgentProfile, Fault> {
        read(&body.to_string().into(), "sales-assistant", 7)
    }

    #[test]
    fn what_is_not_said_is_as_it_usually_is() {
        let expected = AgentProfile {
            slug: "sales-assistant".to_owned(),
            prompt: String::new(),
            tools: Vec::new(),
            model: None,
            tool_choice: None,
            active: true,
            version: 1,
            created_at_ms: 7,
            updated_at_ms: 7,
        };
        for body in [json!({}), json!({"prompt": null, "tools": null, "active": null}), json!({"prompt": " "})] {
            assert_eq!(profile(&body).map_err(|fault| fault.into_parts().message).unwrap(), expected, "{body}");
        }
        let body = json!({"slug": "sales-assistant", "prompt": "Sell.\nKindly.", "tools": ["a", "B", "b", "a"],
            "model": "fast", "active": false, "version": 9, "unknown_tools": ["a"]});
        let expected = AgentProfile {
            prompt: "Sell.\nKindly.".to_owned(),
            tools: vec!["a".to_owned(), "B".to_owned()],
            model: Some("fast".to_owned()),
            active: false,
            ..expected
        };
        assert_eq!(profile(&body).map_err(|fault| fault.into_parts().message).unwrap(), expected);
    }

    #[test]
    fn faults_name_the_field() {
        for (body, param) in [
            (json!({"slug": "other"}), "slug"),
            (json!({"prompt": 5}), "prompt"),
            (json!({"prompt": "x".repeat(100_001)}), "prompt"),
            (json!({"prompt": "a\u{0}b"}), "prompt"),
            (json!({"tools": "a"}), "tools"),
            (json!({"tools": ["a b"]}), "tools"),
            (json!({"tools": vec!["a"; 129]}), "tools"),
            (json!({"model": ""}), "model"),
            (json!({"active": "yes"}), "active"),
            (json!({"tool": []}), "tool"),
        ] {
            let fault = profile(&body).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param), "{}", fault.message);
        }
        for slug in ["", "a b", "ä", "a/b", &"x".repeat(101)] {
            assert_eq!(read(&"{}".into(), slug, 0).unwrap_err().param.as_deref(), Some("slug"), "{slug}");
        }
    }
}
