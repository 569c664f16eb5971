//! The tool with which a model changes the mode of its session. O-35
//!
//! Every turn offers it. It changes the session; the running turn continues as it was composed.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    ArgumentCheck, BoxFuture, CallDisplay, Clock, Handler, OWN_LABEL, Policy, ServerTool, Store, ToolCall, ToolError,
    ToolOutput,
    store::{AgentSession, ExecuteStore, Mode, ModeChange},
};
use amalgam_protocol::{Json, Raw, Shape, Writer};
use tokio::sync::Mutex;

use super::composer::CHANGE_MODE;
use crate::app::Application;

/// The maximum length of a stored reason, in characters.
const MAX_REASON_CHARS: usize = 1_000;
/// The tool makes one write.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The tool for one turn of a session, whose tenant has these modes.
pub(super) fn change_mode(app: &Arc<Application>, session: &AgentSession, turn_id: &str, modes: &[Mode]) -> ServerTool {
    let store: Arc<dyn Store> = Arc::clone(&app.store);
    tool(ChangeMode::new(store, Arc::clone(&app.clock), session, turn_id, modes), modes)
}

fn tool(handler: ChangeMode, modes: &[Mode]) -> ServerTool {
    ServerTool {
        name: CHANGE_MODE.to_owned(),
        label: OWN_LABEL.to_owned(),
        own_name: CHANGE_MODE.to_owned(),
        description: Some(description(modes)),
        parameters: parameters(modes),
        guidance: None,
        // Changing to the same mode twice changes nothing.
        policy: Policy { timeout: TIMEOUT, idempotent: true, ..Policy::default() },
        shown: CallDisplay::McpCall,
        check: Arc::new(Arguments),
        handler: Arc::new(handler),
    }
}

fn description(modes: &[Mode]) -> String {
    let mut text =
        "Changes the mode of this session. Use it when the work at hand belongs to another mode; the new mode's \
                    instructions and tools apply from the next request on. The modes are:"
            .to_owned();
    for mode in modes {
        text.push_str(&format!("\n- {}: {}", mode.name, mode.display_name));
    }
    text
}

fn parameters(modes: &[Mode]) -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("type").string("object");
        writer.key("properties").object(|writer| {
            writer.key("mode").object(|writer| {
                writer.key("type").string("string");
                writer.key("enum").array(|writer| modes.iter().for_each(|mode| writer.string(&mode.name)));
                writer.key("description").string("The mode to change to.");
            });
            writer.key("reason").object(|writer| {
                writer.key("type").string("string");
                writer.key("description").string("Why, in one sentence.");
            });
        });
        writer.key("required").array(|writer| ["mode", "reason"].iter().for_each(|name| writer.string(name)));
        writer.key("additionalProperties").bool(false);
    });
    Json::from_writer(writer)
}

/// Checks what the schema says, except the names of modes: the handler lists them in its error.
struct Arguments;

impl ArgumentCheck for Arguments {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        if arguments.shape() != Shape::Object {
            return Err(format!("the arguments are {}; they have to be an object", arguments.shape().name()));
        }
        for name in ["mode", "reason"] {
            match arguments.get(name).map(Raw::as_str) {
                Some(Some(text)) if !text.decode().trim().is_empty() => {}
                Some(Some(_)) => return Err(format!("/{name}: must not be blank")),
                Some(None) => return Err(format!("/{name}: must be a string")),
                None => return Err(format!("/{name}: is required")),
            }
        }
        match arguments.fields().find(|(key, _)| !key.is("mode") && !key.is("reason")) {
            Some((key, _)) => Err(format!("/{}: is not known", key.decode().chars().take(64).collect::<String>())),
            None => Ok(()),
        }
    }
}

struct ChangeMode {
    store: Arc<dyn ExecuteStore>,
    clock: Arc<dyn Clock>,
    session_id: String,
    turn_id: String,
    modes: Vec<String>,
    /// The current mode of the session. Locked during a change: of several calls in one answer the last one wins, and
    /// each sees the result of the one before.
    current: Mutex<String>,
}

impl ChangeMode {
    fn new(
        store: Arc<dyn ExecuteStore>,
        clock: Arc<dyn Clock>,
        session: &AgentSession,
        turn_id: &str,
        modes: &[Mode],
    ) -> Self {
        Self {
            store,
            clock,
            session_id: session.id.clone(),
            turn_id: turn_id.to_owned(),
            modes: modes.iter().map(|mode| mode.name.clone()).collect(),
            current: Mutex::new(session.mode.clone()),
        }
    }

    async fn change(&self, call: ToolCall<'_>) -> Result<ToolOutput, ToolError> {
        let argument = |name| call.arguments.get_str(name).unwrap_or_default();
        let (requested, reason) = (argument("mode"), argument("reason"));
        let Some(mode) = self.modes.iter().find(|mode| mode.eq_ignore_ascii_case(requested.trim())) else {
            let shown: String = requested.trim().chars().take(64).collect();
            return Err(ToolError::Refused(format!(
                "There is no mode `{shown}`. The modes are: {}.",
                self.modes.join(", ")
            )));
        };
        let mut current = self.current.lock().await;
        if current.eq_ignore_ascii_case(mode) {
            return Ok(mode_output(mode, mode, "The session is in this mode already; nothing has changed."));
        }
        let change = ModeChange {
            previous: current.clone(),
            mode: mode.clone(),
            reason: reason.trim().chars().take(MAX_REASON_CHARS).collect(),
            turn_id: self.turn_id.clone(),
            at_ms: self.clock.now_ms(),
        };
        match self.store.change_mode(call.scope, &self.session_id, change).await {
            Ok(true) => {
                let previous = std::mem::replace(&mut *current, mode.clone());
                let message = "The mode has changed. Its instructions and tools apply from the next request on.";
                Ok(mode_output(&previous, mode, message))
            }
            Ok(false) => Err(ToolError::Refused("The session is not there any more.".to_owned())),
            Err(error) => Err(ToolError::Broken { detail: error.to_string() }),
        }
    }
}

impl Handler for ChangeMode {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.change(call))
    }
}

fn mode_output(previous: &str, mode: &str, message: &str) -> ToolOutput {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("mode").string(mode);
        writer.key("previous_mode").string(previous);
        writer.key("changed").bool(previous != mode);
        writer.key("message").string(message);
    });
    ToolOutput { output: Json::from_writer(writer) }
}

#[cfg(test)]
#[path = "change_mode_tests.rs"]
mod tests;
