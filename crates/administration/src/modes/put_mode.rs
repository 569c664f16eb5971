//! The body of `PUT /admin/modes/{name}`.

use amalgam_core::{ComparisonOperator, Fault, no_items, store::Mode};
use amalgam_execute::modes;
use amalgam_protocol::{Json, Shape};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    fields::{Ignored, Line, ProseOrBlank, ToolName, ToolNames, Verbatim},
    request::{self, mistyped, wrong},
};

/// The maximum length of a name.
const NAME: usize = 64;

/// A mode to store. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is shown of a mode can be sent back: some fields are accepted and not used")]
pub(crate) struct PutMode {
    /// If present, it must equal the name in the path.
    name: Option<Line<NAME>>,
    /// A display name; the name of the mode by default.
    display_name: Option<Line<200>>,
    /// The system prompt of the mode.
    system_prompt: Option<ProseOrBlank<100_000>>,
    /// The names of the tools, in order.
    tools: Option<ToolNames>,
    /// The tool that the model must call first in each turn that offers it, instead of the profile's.
    tool_choice: Option<ToolName>,
    /// Retrieval conditions for turns that send none.
    #[schemars(with = "Option<Vec<ScopeCondition>>")]
    rag_scope: Option<Verbatim>,
    object: Option<Ignored>,
    seeded: Option<Ignored>,
    unknown_tools: Option<Ignored>,
    created_at: Option<Ignored>,
    updated_at: Option<Ignored>,
}

/// A retrieval condition.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "the execute contract reads conditions; this is their shape")]
pub(crate) struct ScopeCondition {
    /// The attribute to compare: `path`, `language`, `repo`, or a custom key.
    key: String,
    #[schemars(extend("enum" = ComparisonOperator::ALL.map(ComparisonOperator::name)))]
    operator: String,
    /// For `==` and `contains` one match is enough; for the other operators none may match.
    #[schemars(length(min = 1))]
    values: Vec<String>,
}

/// Reads a mode. Absent fields get their defaults.
pub(super) fn read(body: &Bytes, in_path: Option<&str>, now_ms: u64) -> Result<Mode, Fault> {
    let put: PutMode = request::parse(body)?;
    let name = name(put.name, in_path)?;
    Ok(Mode {
        display_name: put.display_name.map_or_else(|| name.clone(), |name| name.0),
        system_prompt: put.system_prompt.unwrap_or_default().0,
        tools: put.tools.unwrap_or_default().0,
        tool_choice: put.tool_choice.unwrap_or_default().0,
        rag_scope: put.rag_scope.map_or_else(|| Ok(no_items()), |scope| rag_scope(&scope.0))?,
        name,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
    })
}

/// The name; if path and body both have one, they must be the same mode.
fn name(in_body: Option<Line<NAME>>, in_path: Option<&str>) -> Result<String, Fault> {
    let name = match (in_path, in_body) {
        (Some(name), Some(Line(in_body))) if !name.eq_ignore_ascii_case(&in_body) => {
            return Err(wrong("name", "must be the name in the path"));
        }
        (_, Some(Line(name))) => name,
        (Some(name), None) => name.to_owned(),
        (None, None) => return Err(request::missing("name")),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match !name.is_empty() && name.len() <= NAME && name.bytes().all(plain) {
        true => Ok(name),
        false => Err(wrong("name", &format!("must have 1 to {NAME} letters, digits, dashes and underscores"))),
    }
}

/// Conditions in the syntax of the execute contract.
fn rag_scope(scope: &Json) -> Result<Json, Fault> {
    if scope.raw().shape() != Shape::Array {
        return Err(mistyped("rag_scope", "a list of conditions"));
    }
    match modes::conditions(scope.raw()) {
        Ok(conditions) => Ok(modes::rag_scope(&conditions)),
        Err(faults) => {
            let first = faults.list().first().map_or_else(|| "rag_scope".to_owned(), |fault| fault.field.clone());
            Err(Fault::invalid(first, format!("Invalid value for 'rag_scope': {faults}.")).code("invalid_value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mode(body: &Value) -> Result<Mode, Fault> {
        read(&body.to_string().into(), Some("Review"), 7)
    }

    #[test]
    fn absent_fields_get_their_defaults() {
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
