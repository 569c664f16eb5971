//! The body of `PUT /admin/profiles/{slug}`.

use amalgam_core::{Fault, store::AgentProfile};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    fields::{Ignored, Line, ProseOrBlank, ToolName, ToolNames},
    request::{self, wrong},
};

/// The maximum length of a slug.
const SLUG: usize = 100;

/// A profile to store. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is shown of a profile can be sent back: some fields are accepted and not used")]
pub(crate) struct PutProfile {
    /// If present, it must equal the slug in the path.
    slug: Option<Line<SLUG>>,
    /// The prompt of the profile.
    prompt: Option<ProseOrBlank<100_000>>,
    /// The names of the tools, in order.
    tools: Option<ToolNames>,
    /// The model to use instead of the tenant's.
    model: Option<Line<200>>,
    /// The tool that the model must call first in each turn that offers it.
    tool_choice: Option<ToolName>,
    /// Whether the profile can be used.
    #[schemars(extend("default" = true))]
    active: Option<bool>,
    object: Option<Ignored>,
    version: Option<Ignored>,
    prompt_hash: Option<Ignored>,
    unknown_tools: Option<Ignored>,
    created_at: Option<Ignored>,
    updated_at: Option<Ignored>,
}

/// Reads a profile. Absent fields get their defaults; the store assigns the version.
pub(super) fn read(body: &Bytes, slug: &str, now_ms: u64) -> Result<AgentProfile, Fault> {
    let put: PutProfile = request::parse(body)?;
    if !is_slug(slug) {
        return Err(wrong("slug", &format!("must have 1 to {SLUG} letters, digits, dots, dashes and underscores")));
    }
    if put.slug.is_some_and(|Line(in_body)| in_body != slug) {
        return Err(wrong("slug", "must be the one in the path"));
    }
    Ok(AgentProfile {
        slug: slug.to_owned(),
        // Without a prompt, only the tenant's system prompt is used.
        prompt: put.prompt.unwrap_or_default().0,
        tools: put.tools.unwrap_or_default().0,
        model: put.model.map(|model| model.0),
        tool_choice: put.tool_choice.unwrap_or_default().0,
        active: put.active.unwrap_or(true),
        version: 1,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    })
}

/// A slug can be sent as `model`, so it is restricted to the characters of model names.
fn is_slug(slug: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !slug.is_empty() && slug.len() <= SLUG && slug.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn profile(body: &Value) -> Result<AgentProfile, Fault> {
        read(&body.to_string().into(), "sales-assistant", 7)
    }

    #[test]
    fn absent_fields_get_their_defaults() {
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
