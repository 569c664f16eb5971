//! Enforces `allowed_tools`: a call of another tool fails the turn, even if the upstream ignores the choice.
//!
//! Upstreams with plain functions are offered only the allowed tools. A Responses upstream receives the choice as the
//! caller wrote it, and not every such server enforces it.

use amalgam_core::{CallHead, CallKind, Fault, FaultKind, ModelEvent, wire_name};
use amalgam_protocol::{ClientTool, ToolChoice};

/// The tools that the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Any tool.
    All,
    /// Only these tools.
    Only(Vec<Tool>),
}

/// A tool as `tool_choice` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tool {
    /// A function or custom tool, with or without its namespace.
    Named(String),
    /// A tool that the client runs.
    Client(ClientTool),
    /// Everything in a namespace.
    Namespace(String),
}

impl Allowed {
    /// Reads the choice of a request.
    pub(crate) fn by(choice: Option<&ToolChoice<'_>>) -> Self {
        let Some(ToolChoice::Allowed(allowed)) = choice else { return Self::All };
        let tool = |choice: &ToolChoice<'_>| match choice {
            ToolChoice::Function(name, _) | ToolChoice::Custom(name, _) => Some(Tool::Named(name.to_string())),
            ToolChoice::Client(tool, _) => Some(Tool::Client(*tool)),
            ToolChoice::Hosted(name, _) => Some(Tool::Namespace(name.to_string())),
            ToolChoice::Mcp { .. }
            | ToolChoice::None
            | ToolChoice::Auto
            | ToolChoice::Required
            | ToolChoice::Allowed(_) => None,
        };
        Self::Only(allowed.tools.iter().filter_map(tool).collect())
    }

    /// Refuses an event that begins a call of a tool that is not allowed.
    pub(crate) fn check(&self, event: &ModelEvent) -> Result<(), Fault> {
        let (Self::Only(tools), ModelEvent::CallStart { call, .. }) = (self, event) else { return Ok(()) };
        match tools.iter().any(|tool| tool.is(call)) {
            true => Ok(()),
            false => {
                let name: String = call.name.chars().take(64).collect();
                let message = format!("The model called `{name}`, which `tool_choice` does not allow.");
                Err(Fault::new(FaultKind::UpstreamBroken, message))
            }
        }
    }
}

impl Tool {
    fn is(&self, call: &CallHead) -> bool {
        match self {
            Self::Named(name) => *name == call.name || *name == wire_name(call.namespace.as_deref(), &call.name),
            Self::Client(tool) => call.kind == CallKind::Client(*tool),
            Self::Namespace(name) => call.namespace.as_ref() == Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::ResponseParameters;

    use super::*;

    fn allowed(choice: &str) -> Allowed {
        let text = format!(r#"{{"tool_choice":{choice}}}"#);
        let parameters = text.parse::<ResponseParameters>().unwrap();
        let request = parameters.view().unwrap();
        Allowed::by(request.tool_choice.as_ref())
    }

    fn call(kind: CallKind, namespace: Option<&str>, name: &str) -> ModelEvent {
        let call = CallHead { kind, call_id: None, name: name.to_owned(), namespace: namespace.map(str::to_owned) };
        ModelEvent::CallStart { key: 0, call }
    }

    #[test]
    fn only_allowed_calls_pass() {
        let choice = r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"look"},
            {"type":"function","name":"crm__find"},{"type":"custom","name":"patch"},{"type":"shell"},{"type":"files"}]}"#;
        let allowed = allowed(choice);
        for passes in [
            call(CallKind::Function, None, "look"),
            call(CallKind::Function, Some("crm"), "find"),
            call(CallKind::Custom, None, "patch"),
            call(CallKind::Client(ClientTool::Shell), None, "shell"),
            call(CallKind::Function, Some("files"), "any"),
        ] {
            assert_eq!(allowed.check(&passes), Ok(()), "{passes:?}");
        }
        for stopped in [
            call(CallKind::Function, None, "delete"),
            call(CallKind::Function, None, "find"),
            call(CallKind::Client(ClientTool::ApplyPatch), None, "apply_patch"),
        ] {
            let fault = allowed.check(&stopped).unwrap_err();
            assert_eq!(fault.kind, FaultKind::UpstreamBroken, "{stopped:?}");
        }
    }

    #[test]
    fn every_other_choice_leaves_the_model_free() {
        for choice in ["null", "\"auto\"", "\"none\"", "\"required\"", r#"{"type":"function","name":"look"}"#] {
            assert_eq!(allowed(choice).check(&call(CallKind::Function, None, "other")), Ok(()), "{choice}");
        }
    }
}
