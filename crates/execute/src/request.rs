//! The request to execute a turn (AGN-034): a user's intent, or the results of tools that the client ran.
//!
//! The fields that are present determine the kind of request. The whole request is checked: one answer reports every
//! fault with its field. Other code checks whether the session and the turn exist.

use std::{borrow::Cow, collections::HashSet};

use amalgam_protocol::{Raw, Shape};

use super::fields::{Field, FieldFaultKind, FieldNames, Object, camel};
pub use super::{
    fields::{FieldFault, MAX_FAULTS, RequestFaults, UnknownFields},
    inputs::{Artifact, ArtifactOrigin, ClipboardImage, Contents},
};
use crate::inputs;
use amalgam_core::{Condition, Delivery};

/// The limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of an id, a name, a path, a hint, a key.
    pub name_bytes: usize,
    /// Bytes of an instruction.
    pub instruction_bytes: usize,
    /// Bytes of `SolutionContextText`.
    pub solution_context_bytes: usize,
    /// Files of one turn.
    pub artifacts: usize,
    /// Bytes of one file, after base64.
    pub artifact_bytes: usize,
    /// Images of one turn.
    pub images: usize,
    /// Bytes of one image, after base64.
    pub image_bytes: usize,
    /// References to uploaded files.
    pub file_ids: usize,
    /// Conditions of a scope.
    pub conditions: usize,
    /// Values of one condition.
    pub condition_values: usize,
    /// Results of one submission.
    pub results: usize,
    /// Bytes of one result or error.
    pub result_bytes: usize,
    /// How unknown fields are handled.
    pub unknown_fields: UnknownFields,
}

impl Default for Bounds {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            name_bytes: 512,
            instruction_bytes: MIB,
            solution_context_bytes: 256 * 1024,
            artifacts: 64,
            artifact_bytes: 4 * MIB,
            images: 16,
            image_bytes: 8 * MIB,
            file_ids: 64,
            conditions: 32,
            condition_values: 64,
            results: 128,
            result_bytes: 2 * MIB,
            unknown_fields: UnknownFields::Refused,
        }
    }
}

/// The two kinds of requests.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecuteRequest<'a> {
    /// A new turn.
    UserTurn(Box<UserTurn<'a>>),
    /// Results that a turn waits for.
    Continuation(Continuation<'a>),
}

/// A new turn: at least one of `instruction`, `artifacts`, `images` and `file_ids` is not empty.
#[derive(Debug, Clone, PartialEq)]
pub struct UserTurn<'a> {
    /// The session.
    pub session_id: Cow<'a, str>,
    /// The client's id of the turn.
    pub turn_id: Cow<'a, str>,
    /// Markdown, unchanged; never blank.
    pub instruction: Option<Cow<'a, str>>,
    /// Files with their content.
    pub artifacts: Vec<Artifact<'a>>,
    /// Images with their bytes.
    pub images: Vec<ClipboardImage<'a>>,
    /// Uploaded files.
    pub file_ids: Vec<Cow<'a, str>>,
    /// The search conditions, all of which have to hold; empty for no filter.
    pub scope: Vec<Condition<'a>>,
    /// The client's environment. No behaviour depends on it.
    pub hints: Hints<'a>,
    /// Replaces the session's solution context; none keeps it, and an empty text removes it.
    pub solution_context: Option<Cow<'a, str>>,
    /// The agent.
    pub agent_context_id: Option<Cow<'a, str>>,
    /// The agent's conversation context.
    pub conversation_context_id: Option<Cow<'a, str>>,
    /// A role of the agent; never without `agent_context_id`.
    pub role_id: Option<Cow<'a, str>>,
    /// The requested delivery.
    pub delivery: Delivery,
}

/// The client's environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hints<'a> {
    /// `WorkspaceId`
    pub workspace_id: Option<Cow<'a, str>>,
    /// `Repo`
    pub repo: Option<Cow<'a, str>>,
    /// `Language`
    pub language: Option<Cow<'a, str>>,
}

/// Results that a turn waits for; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Continuation<'a> {
    /// The session.
    pub session_id: Cow<'a, str>,
    /// The turn.
    pub turn_id: Cow<'a, str>,
    /// The results in the order of the request.
    pub results: Vec<ToolResult<'a>>,
}

/// The result of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult<'a> {
    /// The call.
    pub call_id: Cow<'a, str>,
    /// How long it took, in milliseconds.
    pub execution_ms: f64,
    /// A result or an error; both are valid answers to the call.
    pub outcome: Outcome<'a>,
}

/// Exactly one of `ResultJson` and `ErrorMessage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// `ResultJson`: the content of a string, or the JSON of any other value.
    Result(Cow<'a, str>),
    /// `ErrorMessage`
    Error(Cow<'a, str>),
}

/// A request to create a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionRequest<'a> {
    /// The agent that answers.
    pub agent_context_id: Option<Cow<'a, str>>,
    /// The initial mode.
    pub mode: Option<Cow<'a, str>>,
}

const SESSION_ID: &str = "SessionId";
const TURN_ID: &str = "TurnId";
const TOOL_RESULTS: &str = "ToolResults";
const INSTRUCTION: &str = "Instruction";

/// Fields that only a user turn may have; the first name of each is the canonical one.
const USER_TURN_FIELDS: [FieldNames; 13] = [
    &[INSTRUCTION],
    &["InputArtifacts"],
    &["ClipboardImages"],
    &["FileIds"],
    &["RagScope", "RagScopeFilter"],
    &["WorkspaceId"],
    &["Repo", "Repository", "RepositoryName"],
    &["Language", "LanguageHint"],
    &["SolutionContextText"],
    &["AgentContextId"],
    &["ConversationContextId"],
    &["RoleId"],
    &["Streaming"],
];

/// Fields that the server sets, and the reason why a client must not send them.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    (
        "must not be sent: the mode belongs to the session",
        &["Mode", "ModeId", "ModeName", "ModeKey", "CurrentMode", "AgentMode"],
    ),
    (
        "must not be sent: the server knows how a conversation goes on",
        &[
            "ResponseContinuationId",
            "PreviousResponseId",
            "PreviousTurnId",
            "CurrentTurnId",
            "ProviderResponseId",
            "ContinuationId",
            "ResponseId",
            "ConversationId",
            "RawResponseJson",
        ],
    ),
    (
        "must not be sent: the model is the server's choice",
        &["Model", "ModelId", "ModelName", "Provider", "ProviderState", "Temperature", "TopP", "MaxOutputTokens"],
    ),
    (
        "must not be sent: prompts and tools come from the agent and its mode",
        &["SystemPrompt", "System", "Prompt", "ToolsJson", "Tools", "ToolChoice", "ToolChoiceName", "ToolResultsJson"],
    ),
    (
        "must not be sent: diagnostics and correlation are the server's",
        &["CorrelationId", "RequestId", "TraceId", "SpanId", "Trace", "Diagnostics", "Debug"],
    ),
];

/// Reads a request.
pub fn read<'a>(body: Raw<'a>, bounds: &Bounds) -> Result<ExecuteRequest<'a>, RequestFaults> {
    let mut faults = RequestFaults::default();
    let ids: [FieldNames; 3] = [&[SESSION_ID], &[TURN_ID], &[TOOL_RESULTS]];
    let known: Vec<FieldNames> = ids.into_iter().chain(USER_TURN_FIELDS).collect();
    let object = Object::read(String::new(), body, &known, bounds.unknown_fields, forbidden, &mut faults);
    let request = object.and_then(|object| match object.get(TOOL_RESULTS) {
        Some(results) => continuation(&object, &results, bounds, &mut faults).map(ExecuteRequest::Continuation),
        None => user_turn(&object, bounds, &mut faults).map(|turn| ExecuteRequest::UserTurn(Box::new(turn))),
    });
    request.filter(|_| faults.is_empty()).ok_or(faults)
}

/// Reads a request to create a session.
pub fn read_session<'a>(body: Raw<'a>, bounds: &Bounds) -> Result<SessionRequest<'a>, RequestFaults> {
    const KNOWN: [FieldNames; 2] = [&["AgentContextId"], &["Mode"]];
    let mut faults = RequestFaults::default();
    let object = Object::read(String::new(), body, &KNOWN, bounds.unknown_fields, |_| None, &mut faults);
    let request = object.map(|object| {
        let mut name = |name| object.get(name).and_then(|field| field.name(bounds.name_bytes, &mut faults));
        SessionRequest { agent_context_id: name("AgentContextId"), mode: name("Mode") }
    });
    request.filter(|_| faults.is_empty()).ok_or(faults)
}

fn forbidden(key: &str) -> Option<String> {
    let is = |name: &&str| *name == key || camel(name) == key;
    FORBIDDEN.iter().find(|(_, names)| names.iter().any(is)).map(|(reason, _)| (*reason).to_owned())
}

/// Reads both ids, whatever other faults there are.
fn ids<'a>(
    object: &Object<'a>,
    bounds: &Bounds,
    faults: &mut RequestFaults,
) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
    let mut id = |name| object.require(name, faults).and_then(|field| field.name(bounds.name_bytes, faults));
    (id(SESSION_ID), id(TURN_ID))
}

fn user_turn<'a>(object: &Object<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<UserTurn<'a>> {
    let (session_id, turn_id) = ids(object, bounds, faults);
    let instruction = object.get(INSTRUCTION);
    let instruction = instruction.and_then(|field| field.text(bounds.instruction_bytes, faults));
    let inputs = ["InputArtifacts", "ClipboardImages", "FileIds"].map(|name| object.get(name));
    let has_inputs = inputs.iter().flatten().any(|field| field.raw.elements().next().is_some());
    if !has_inputs && instruction.as_deref().is_some_and(|text| text.trim().is_empty()) {
        let at = object.get(INSTRUCTION).map_or_else(|| INSTRUCTION.to_owned(), |field| field.path);
        faults.add(at, FieldFaultKind::Missing, NO_INPUT);
    } else if !has_inputs && object.get(INSTRUCTION).is_none() {
        faults.add(INSTRUCTION, FieldFaultKind::Missing, NO_INPUT);
    }
    let [artifacts, images, file_ids] = inputs;
    let artifacts = artifacts.map(|field| inputs::artifacts(&field, bounds, faults)).unwrap_or_default();
    let images = images.map(|field| inputs::images(&field, bounds, faults)).unwrap_or_default();
    let file_ids = file_ids.map(|field| read_file_ids(&field, bounds, faults)).unwrap_or_default();
    let scope = object.get("RagScope").map(|field| inputs::scope(&field, bounds, faults)).unwrap_or_default();
    let mut name = |name| object.get(name).and_then(|field| field.name(bounds.name_bytes, faults));
    let hints = Hints { workspace_id: name("WorkspaceId"), repo: name("Repo"), language: name("Language") };
    let agent_context_id = name("AgentContextId");
    let conversation_context_id = name("ConversationContextId");
    let role_id = name("RoleId");
    let solution_context = object.get("SolutionContextText");
    let solution_context = solution_context.and_then(|field| field.text(bounds.solution_context_bytes, faults));
    if let Some(role) = object.get("RoleId").filter(|_| object.get("AgentContextId").is_none()) {
        let _: Option<()> = role.invalid("needs `AgentContextId` beside it", faults);
    }
    let delivery = match object.get("Streaming").and_then(|field| field.flag(faults)) {
        Some(true) => Delivery::Stream,
        Some(false) | None => Delivery::Whole,
    };
    Some(UserTurn {
        session_id: session_id?,
        turn_id: turn_id?,
        instruction: instruction.filter(|text| !text.trim().is_empty()),
        artifacts,
        images,
        file_ids,
        scope,
        hints,
        solution_context,
        agent_context_id,
        conversation_context_id,
        role_id,
        delivery,
    })
}

const NO_INPUT: &str = "is required: a user turn needs an instruction, a file or an image";

fn read_file_ids<'a>(field: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Vec<Cow<'a, str>> {
    let elements = field.list(bounds.file_ids, faults).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut ids = Vec::with_capacity(elements.len());
    for element in elements {
        let Some(id) = element.name(bounds.name_bytes, faults) else { continue };
        match seen.insert(id.clone()) {
            true => ids.push(id),
            false => faults.add(element.path, FieldFaultKind::Repeated, "names a file that was named before"),
        }
    }
    ids
}

/// Only results are allowed: the presence of another field is a fault, whatever its value.
fn continuation<'a>(
    object: &Object<'a>,
    results: &Field<'a>,
    bounds: &Bounds,
    faults: &mut RequestFaults,
) -> Option<Continuation<'a>> {
    let (session_id, turn_id) = ids(object, bounds, faults);
    for name in USER_TURN_FIELDS.iter().filter_map(|names| names.first()) {
        if let Some(field) = object.get(name) {
            faults.add(field.path, FieldFaultKind::Forbidden, "must not be sent together with tool results");
        }
    }
    let elements = results.list(bounds.results, faults)?;
    if elements.is_empty() {
        return results.invalid("must hold at least one result", faults);
    }
    let results = elements.iter().filter_map(|element| tool_result(element, bounds, faults)).collect();
    Some(Continuation { session_id: session_id?, turn_id: turn_id?, results })
}

fn tool_result<'a>(element: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<ToolResult<'a>> {
    const KNOWN: [FieldNames; 4] = [&["ToolCallId"], &["ExecutionMs"], &["ResultJson"], &["ErrorMessage"]];
    let path = element.path.clone();
    let object = Object::read(path, element.raw, &KNOWN, bounds.unknown_fields, |_| None, faults)?;
    let call_id = object.require("ToolCallId", faults).and_then(|field| field.name(bounds.name_bytes, faults));
    let execution_ms = object.require("ExecutionMs", faults).and_then(|field| execution_ms(&field, faults));
    let outcome = match (object.get("ResultJson"), object.get("ErrorMessage")) {
        (Some(result), None) => result_text(&result, bounds, faults).map(Outcome::Result),
        (None, Some(error)) => error.non_blank(bounds.result_bytes, faults).map(Outcome::Error),
        (Some(_), Some(error)) => {
            error.invalid("must not be sent together with `ResultJson`: a call has one outcome", faults)
        }
        (None, None) => {
            let at = format!("{}.ResultJson", element.path);
            faults.add(at, FieldFaultKind::Missing, "is required, or `ErrorMessage` in its place");
            None
        }
    };
    Some(ToolResult { call_id: call_id?, execution_ms: execution_ms?, outcome: outcome? })
}

fn execution_ms(field: &Field<'_>, faults: &mut RequestFaults) -> Option<f64> {
    match field.raw.as_f64() {
        Some(number) if number >= 0.0 => Some(number),
        _ if field.raw.shape() == Shape::Number => field.invalid("must be a number of at least 0", faults),
        _ => field.wrong_type("a number", faults),
    }
}

fn result_text<'a>(field: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<Cow<'a, str>> {
    match field.raw.shape() {
        Shape::String => field.text(bounds.result_bytes, faults),
        _ if field.raw.text().len() > bounds.result_bytes => {
            let message = format!("must have at most {} bytes", bounds.result_bytes);
            faults.add(&*field.path, FieldFaultKind::TooLarge, message);
            None
        }
        // The client did not encode its result as a string.
        _ => Some(Cow::Borrowed(field.raw.text())),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
