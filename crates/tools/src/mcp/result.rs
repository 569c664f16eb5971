//! Maps the result of an MCP call to a tool output.

use amalgam_core::{ToolError, ToolOutput};
use amalgam_protocol::{Json, Raw, Shape, Writer};

use super::rpc::broken;
use crate::text;

const MAX_REASON_CHARS: usize = 2_000;

/// Structured content takes precedence; texts are joined; anything else stays a list.
pub(super) fn output(result: Raw<'_>) -> Result<ToolOutput, ToolError> {
    let content = result.get("content").unwrap_or(Raw::NULL);
    if result.get("isError").and_then(Raw::as_bool) == Some(true) {
        let words = texts(content).join("\n");
        return Err(ToolError::Refused(match words.trim() {
            "" => "the tool failed and gave no reason".to_owned(),
            words => text::printable(words, MAX_REASON_CHARS),
        }));
    }
    let structured = result.get("structuredContent").filter(|value| value.shape() == Shape::Object);
    if let Some(structured) = structured {
        return Ok(ToolOutput { output: Json::from(structured) });
    }
    if content.shape() != Shape::Array {
        return Err(broken("the result of the MCP tool has no content"));
    }
    let texts = texts(content);
    if texts.len() < content.elements().count() {
        return Ok(ToolOutput { output: Json::from(content) });
    }
    let mut writer = Writer::default();
    writer.string(&texts.join("\n"));
    Ok(ToolOutput { output: Json::from_writer(writer) })
}

fn texts(content: Raw<'_>) -> Vec<String> {
    let is_text = |part: &Raw<'_>| part.get_str("type").as_deref() == Some("text");
    let words = |part: Raw<'_>| part.get_str("text").map(std::borrow::Cow::into_owned);
    content.elements().filter(is_text).filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(result: &str) -> Result<String, ToolError> {
        output(Raw::parse(result.as_bytes()).unwrap()).map(|given| given.output.raw().text().to_owned())
    }

    #[test]
    fn results_become_one_value() {
        let text = r#"{"content":[{"type":"text","text":"a\"é"},{"type":"text","text":"b"}]}"#;
        assert_eq!(given(text).unwrap(), r#""a\"é\nb""#);
        assert_eq!(given(r#"{"content":[],"structuredContent":{"n":1}}"#).unwrap(), r#"{"n":1}"#);
        assert_eq!(given(r#"{"content":[]}"#).unwrap(), r#""""#);
        let mixed = r#"[{"type":"text","text":"a"},{"type":"image","data":"AA==","mimeType":"image/png"}]"#;
        assert_eq!(given(&format!(r#"{{"content":{mixed}}}"#)).unwrap(), mixed);
    }

    #[test]
    fn a_failure_of_the_tool_is_told_in_its_words_and_bounded() {
        let failed =
            r#"{"isError":true,"content":[{"type":"text","text":"no such\u001b[2J city"}],"structuredContent":{}}"#;
        assert_eq!(given(failed), Err(ToolError::Refused("no such [2J city".into())));
        let long = format!(r#"{{"isError":true,"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(9_000));
        let Err(ToolError::Refused(reason)) = given(&long) else { panic!("not refused") };
        assert_eq!(reason.chars().count(), MAX_REASON_CHARS + 1);
        assert!(matches!(given(r#"{"isError":true}"#), Err(ToolError::Refused(_))));
        assert!(matches!(given("{}"), Err(ToolError::Broken { .. })));
    }
}
