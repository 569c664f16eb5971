//! The answer to a step of a turn, built from what is stored.

use amalgam_core::{
    Fault, RawAnswer, Scope,
    store::{AgentSession, AgentStep, AgentTurn, StepState, StoredResponse},
};
use amalgam_engine::FinishedTurn;
use amalgam_execute::{
    context::SourceRef,
    envelope::{AgentExecuteResponse, Casing, ExecuteIdentity, RawResponses, UncountedUsage},
};
use amalgam_protocol::{DEFAULT_DEPTH, Json, Raw, Status, ValueIndex, Writer};

use super::composer::{AgentInMode, CHANGE_MODE};
use crate::app::Application;

/// The maximum number of mode changes that a session shows.
pub const MODE_CHANGES: usize = 100;

/// The parts of a step's answer that its response does not have.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Notes {
    pub(super) agent_context_id: Option<String>,
    pub(super) conversation_context_id: Option<String>,
    /// The knowledge sources that were sent to the model.
    pub(super) sources: Vec<SourceRef>,
    pub(super) warnings: Vec<String>,
    /// Whether the raw response is withheld from the caller.
    pub(super) hides_raw: bool,
}

impl Notes {
    /// Serializes the notes for the store.
    pub(super) fn write(&self) -> Json {
        let mut writer = Writer::default();
        let write_optional = |writer: &mut Writer, name: &'static str, value: &Option<String>| {
            if let Some(value) = value {
                writer.key(name).string(value);
            }
        };
        writer.object(|writer| {
            write_optional(writer, "agent_context_id", &self.agent_context_id);
            write_optional(writer, "conversation_context_id", &self.conversation_context_id);
            writer.key("sources").array(|writer| {
                for source in &self.sources {
                    writer.object(|writer| {
                        writer.key("id").string(&source.id);
                        writer.key("path").string(&source.path);
                        writer.key("start_line").number(source.start_line);
                        writer.key("end_line").number(source.end_line);
                        writer.key("language").string(&source.language);
                    });
                }
            });
            writer.key("warnings").array(|writer| self.warnings.iter().for_each(|warning| writer.string(warning)));
            writer.key("hides_raw").bool(self.hides_raw);
        });
        Json::from_writer(writer)
    }

    /// Parses stored notes.
    pub(super) fn read(notes: Raw<'_>) -> Self {
        let text = |raw: Raw<'_>, name: &str| raw.get_str(name).map(|text| text.into_owned());
        let number = |raw: Raw<'_>, name: &str| raw.get(name).and_then(Raw::as_u64).unwrap_or_default();
        let source = |raw: Raw<'_>| SourceRef {
            id: text(raw, "id").unwrap_or_default(),
            path: text(raw, "path").unwrap_or_default(),
            start_line: number(raw, "start_line"),
            end_line: number(raw, "end_line"),
            language: text(raw, "language").unwrap_or_default(),
        };
        let elements = |name: &str| notes.get(name).into_iter().flat_map(Raw::elements);
        Self {
            agent_context_id: text(notes, "agent_context_id"),
            conversation_context_id: text(notes, "conversation_context_id"),
            sources: elements("sources").map(source).collect(),
            warnings: elements("warnings")
                .filter_map(|raw| raw.as_str().map(|text| text.decode().into_owned()))
                .collect(),
            hides_raw: notes.get("hides_raw").and_then(Raw::as_bool).unwrap_or(false),
        }
    }
}

/// The parts of a step that its answer needs.
#[derive(Debug, Clone)]
pub struct ExecuteStep {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The response that answers it.
    pub response_id: String,
    /// The mode of the session.
    pub mode: String,
    pub(super) notes: Notes,
}

impl ExecuteStep {
    /// A new step.
    pub(super) fn new(
        session: &AgentSession,
        turn_id: &str,
        agent_in_mode: &AgentInMode,
        identity: &amalgam_engine::Identity,
        notes: Notes,
    ) -> Self {
        Self {
            session_id: session.id.clone(),
            turn_id: turn_id.to_owned(),
            response_id: identity.response_id.clone(),
            mode: agent_in_mode.mode.name.clone(),
            notes,
        }
    }

    /// A stored step.
    pub fn stored(session_id: &str, turn_id: &str, step: &AgentStep) -> Self {
        Self {
            session_id: session_id.to_owned(),
            turn_id: turn_id.to_owned(),
            response_id: step.response_id.clone(),
            mode: step.mode.clone(),
            notes: Notes::read(step.notes.raw()),
        }
    }

    /// The ids that the envelope carries.
    pub fn identity(&self) -> ExecuteIdentity {
        ExecuteIdentity {
            conversation_id: self.session_id.clone(),
            turn_id: Some(self.turn_id.clone()),
            agent_context_id: self.notes.agent_context_id.clone(),
            conversation_context_id: self.notes.conversation_context_id.clone(),
            mode: self.mode.clone(),
        }
    }
}

/// The answer to a step.
pub struct ExecuteAnswer {
    /// The envelope.
    pub envelope: AgentExecuteResponse,
    raw: RawResponses,
}

impl ExecuteAnswer {
    /// The answer to a step that has ended; none if its response does not exist.
    pub async fn of(app: &Application, scope: &Scope, step: &ExecuteStep) -> Result<Option<Self>, Fault> {
        let Some(response) = app.store.response(scope, &step.response_id).await? else { return Ok(None) };
        let answer = app.store.raw_answer(scope, &step.response_id).await?;
        Self::of_response(app, scope, step, &response.object(), answer.as_ref()).await.map(Some)
    }

    /// The answer to a step whose turn has just ended.
    pub async fn finished(
        app: &Application,
        scope: &Scope,
        step: &ExecuteStep,
        turn: &FinishedTurn,
    ) -> Result<Self, Fault> {
        let answer = turn.written.as_ref().and_then(|write| write.raw_answer.as_ref());
        Self::of_response(app, scope, step, &turn.response, answer).await
    }

    async fn of_response(
        app: &Application,
        scope: &Scope,
        step: &ExecuteStep,
        response: &[u8],
        answer: Option<&RawAnswer>,
    ) -> Result<Self, Fault> {
        let mut index = ValueIndex::default();
        let response = Raw::parse_large(response, DEFAULT_DEPTH, &mut index).map_err(Fault::internal)?;
        let mut answer_with_warnings = Self::read(step, response, answer, app.execute.uncounted);
        if called(response, CHANGE_MODE) {
            let changes = app.store.mode_changes(scope, &step.session_id, MODE_CHANGES).await?.unwrap_or_default();
            let changes_in_turn = changes.iter().filter(|change| change.turn_id == step.turn_id).count();
            if changes_in_turn > 1 {
                answer_with_warnings
                    .envelope
                    .warnings
                    .push(format!("the mode was changed {changes_in_turn} times in this turn: the last one counts"));
            }
        }
        Ok(answer_with_warnings)
    }

    /// `response` is the response object.
    fn read(step: &ExecuteStep, response: Raw<'_>, answer: Option<&RawAnswer>, uncounted: UncountedUsage) -> Self {
        let notes = &step.notes;
        let mut envelope = AgentExecuteResponse::from_turn(step.identity(), response, answer, uncounted);
        // The client must not run incomplete calls.
        if response.get_str("status").as_deref() != Some(Status::Completed.name()) && !envelope.tool_calls.is_empty() {
            envelope.tool_calls.clear();
            envelope
                .warnings
                .push("the turn ended before its tool calls were whole: they are not to be run".to_owned());
        }
        if let Some(reason) = response.get("incomplete_details").and_then(|details| details.get_str("reason")) {
            envelope.warnings.push(format!("the answer is incomplete: {reason}"));
        }
        for approval in approvals(response) {
            envelope.warnings.push(format!("a tool call waits for an approval: {approval}"));
        }
        envelope.sources.clone_from(&notes.sources);
        envelope.warnings.extend(notes.warnings.iter().cloned());
        Self { envelope, raw: if notes.hides_raw { RawResponses::Hidden } else { RawResponses::Exposed } }
    }

    /// The answer to a turn that failed before there was a response.
    pub fn failed(step: &ExecuteStep, fault: &Fault) -> Self {
        let error = fault.response_error();
        let code = error.code.unwrap_or(error.kind);
        let mut envelope = AgentExecuteResponse::failed(step.identity(), code, error.message, None);
        envelope.sources.clone_from(&step.notes.sources);
        envelope.warnings.clone_from(&step.notes.warnings);
        Self { envelope, raw: RawResponses::Exposed }
    }

    /// Whether the turn waits for results of the client.
    pub fn is_pending(&self) -> bool {
        !self.envelope.tool_calls.is_empty()
    }

    /// Writes the envelope.
    pub fn write(&self, app: &Application, writer: &mut Writer) {
        self.envelope.write(writer, app.execute.casing, self.raw);
    }

    /// The envelope as a body.
    pub fn body(&self, app: &Application) -> Vec<u8> {
        let mut writer = Writer::with_capacity(2048);
        self.write(app, &mut writer);
        writer.into_bytes()
    }
}

/// Whether the newest turn of a session waits for results.
pub async fn is_pending(app: &Application, scope: &Scope, turn: &AgentTurn) -> Result<bool, Fault> {
    match turn.steps.last() {
        Some(step) if step.state == StepState::Ended(Status::Completed) => {
            let Some(response) = app.store.response(scope, &step.response_id).await? else { return Ok(false) };
            let response = response.object();
            let response = Raw::parse(&response).map_err(Fault::internal)?;
            Ok(ExecuteAnswer::read(&ExecuteStep::stored("", "", step), response, None, UncountedUsage::Zero)
                .is_pending())
        }
        _ => Ok(false),
    }
}

/// The output items of a response object that have this type.
fn output<'a>(response: Raw<'a>, kind: &'static str) -> impl Iterator<Item = Raw<'a>> {
    let items = response.get("output").into_iter().flat_map(Raw::elements);
    items.filter(move |item| item.get_str("type").as_deref() == Some(kind))
}

/// Whether the model called this server-run tool.
fn called(response: Raw<'_>, name: &str) -> bool {
    output(response, "mcp_call").any(|item| item.get_str("name").as_deref() == Some(name))
}

/// A call that the server ran inside a turn.
pub struct ServerToolCall {
    call_id: String,
    name: String,
    arguments: String,
    result: Option<String>,
    error: Option<String>,
}

impl ServerToolCall {
    /// Writes the call as an object.
    pub fn write(&self, writer: &mut Writer, casing: Casing) {
        let optional = |writer: &mut Writer, value: &Option<String>| match value {
            Some(value) => writer.string(value),
            None => writer.null(),
        };
        writer.object(|writer| {
            casing.key(writer, "CallId").string(&self.call_id);
            casing.key(writer, "Name").string(&self.name);
            casing.key(writer, "ArgumentsJson").string(&self.arguments);
            optional(casing.key(writer, "ResultJson"), &self.result);
            optional(casing.key(writer, "ErrorMessage"), &self.error);
        });
    }
}

/// The calls that the server ran for a response, in order.
pub fn server_calls(response: &StoredResponse) -> Vec<ServerToolCall> {
    let is_call = |item: &Raw<'_>| item.get_str("type").as_deref() == Some("mcp_call");
    let text = |item: Raw<'_>, name: &str| item.get_str(name).map(|text| text.into_owned());
    let call = |item: Raw<'_>| ServerToolCall {
        call_id: text(item, "call_id").or_else(|| text(item, "id")).unwrap_or_default(),
        name: text(item, "name").unwrap_or_default(),
        arguments: text(item, "arguments").unwrap_or_default(),
        result: text(item, "output"),
        error: item.get("error").filter(|error| !error.is_null()).map(|error| {
            let first = error.get("content").and_then(|content| content.elements().next());
            first.and_then(|part| text(part, "text")).unwrap_or_else(|| error.text().to_owned())
        }),
    };
    response.output.raw().elements().filter(is_call).map(call).collect()
}

/// The approvals that a response waits for.
fn approvals(response: Raw<'_>) -> Vec<String> {
    let requests = output(response, "mcp_approval_request");
    requests.filter_map(|item| item.get_str("id").map(|id| id.into_owned())).collect()
}
