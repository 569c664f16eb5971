//! The rules for requests, in the order in which their errors are reported.

use std::borrow::Cow;

use amalgam_core::{Delivery, Fault, Loss, TenantState};
use amalgam_protocol::{CreateResponse, Effective, Input, ItemKind, Nulls, ResponseParameters};

use super::{context::ConnectionMemory, request::TurnRequest};

/// A request that passed the rules.
pub(super) struct CheckedRequest {
    pub(super) state: TenantState,
    pub(super) delivery: Delivery,
    pub(super) storage: Storage,
    /// The losses that the server itself causes.
    pub(super) losses: Vec<Loss>,
}

impl CheckedRequest {
    /// The effective values that the response shows; `model` is the requested one.
    pub(super) fn effective<'a>(&self, model: &'a str) -> Effective<'a> {
        Effective { model, stored: self.storage != Storage::None, background: self.storage == Storage::Background }
    }
}

/// Whether a response is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// The response exists only in the reply.
    None,
    /// The response is stored.
    Stored,
    /// The response is stored, and its turn runs in the background.
    Background,
}

/// Checks the rules; `view` is a view of the turn's parameters. RAM-05: state first, then model, then input.
pub(super) fn check(
    turn: &TurnRequest<'_>,
    view: &CreateResponse<'_>,
    state: TenantState,
) -> Result<CheckedRequest, Fault> {
    let request = view;
    refuse_state(request, state, turn.connection)?;
    if request.model.as_deref().unwrap_or_default().is_empty() {
        return Err(missing("model"));
    }
    let empty = |input: &Option<Input<'_>>| input.as_ref().is_none_or(Input::is_missing);
    // A continuation needs no input, and neither does a turn that prepares the next one.
    let needs_input = turn.generate && !is_continuation(request);
    if needs_input && empty(&request.input) && empty(&request.instructions) {
        return Err(missing("input"));
    }
    if state == TenantState::Stateless {
        refuse_references(&turn.parameters, request)?;
    }
    if request.prompt.is_some() {
        return Err(unsupported(
            "prompt",
            "Prompt templates are not supported: send the prompt as `instructions` and `input`.",
        ));
    }
    let mut losses = skipped_nulls(request);
    let background = request.background == Some(true);
    let storage = match (state, request.store.unwrap_or(true)) {
        (TenantState::Stateless, _) => {
            if background {
                losses.push(Loss::new("background", "the response is made in the foreground"));
            }
            Storage::None
        }
        (TenantState::Stored, false) if background => {
            return Err(unsupported("background", "A response that is made in the background has to be stored."));
        }
        (TenantState::Stored, false) => Storage::None,
        (TenantState::Stored, true) if background => Storage::Background,
        (TenantState::Stored, true) => Storage::Stored,
    };
    if request.context_management.is_some() {
        losses.push(Loss::new("context_management", "nothing is compacted by this version"));
    }
    let delivery = match request.stream {
        Some(true) => Delivery::Stream,
        _ => Delivery::Whole,
    };
    Ok(CheckedRequest { state, delivery, storage, losses })
}

/// The losses for null elements of lists, which are skipped.
pub(crate) fn skipped_nulls(request: &CreateResponse<'_>) -> Vec<Loss> {
    let loss = |(list, Nulls { first, count }): &(&str, Nulls)| {
        let reason = match count {
            1 => Cow::Borrowed("null was skipped"),
            count => Cow::Owned(format!("null was skipped, the first of {count} in this list")),
        };
        Loss::new(format!("{list}[{first}]"), reason)
    };
    request.nulls.iter().map(loss).collect()
}

pub(crate) fn refuse_state(
    request: &CreateResponse<'_>,
    state: TenantState,
    connection: Option<&dyn ConnectionMemory>,
) -> Result<(), Fault> {
    match (state, has_previous(request), has_conversation(request)) {
        (TenantState::Stateless, true, _) if connection.is_none() => Err(unsupported(
            "previous_response_id",
            "Responses are not kept: send the full conversation history in `input`.",
        )),
        (TenantState::Stateless, _, true) => Err(unsupported(
            "conversation",
            "Conversations are not kept: send the full conversation history in `input`.",
        )),
        (TenantState::Stored, true, true) => {
            Err(Fault::invalid("conversation", "Only one of `previous_response_id` and `conversation` can be given.")
                .code("mutually_exclusive_parameters"))
        }
        (TenantState::Stored, ..) | (TenantState::Stateless, _, false) => Ok(()),
    }
}

fn has_previous(request: &CreateResponse<'_>) -> bool {
    request.previous_response_id.as_deref().is_some_and(|id| !id.is_empty())
}

fn has_conversation(request: &CreateResponse<'_>) -> bool {
    request.conversation.is_some_and(|conversation| conversation.text() != "\"\"")
}

fn is_continuation(request: &CreateResponse<'_>) -> bool {
    has_previous(request) || has_conversation(request)
}

pub(crate) fn refuse_references(parameters: &ResponseParameters, request: &CreateResponse<'_>) -> Result<(), Fault> {
    let Some(Input::Items(items)) = &request.input else { return Ok(()) };
    match items.iter().find(|item| matches!(item.kind, ItemKind::Reference(_))) {
        None => Ok(()),
        Some(item) => Err(unsupported(
            parameters.item_path("input", item.raw),
            "Items are not kept: send the full item instead of a reference.",
        )),
    }
}

pub(crate) fn missing(name: &'static str) -> Fault {
    Fault::invalid(name, format!("Missing required parameter: '{name}'.")).code("missing_required_parameter")
}

pub(crate) fn unsupported(path: impl Into<Cow<'static, str>>, message: &'static str) -> Fault {
    Fault::invalid(path, message).code("unsupported_parameter")
}
