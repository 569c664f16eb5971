//! What a request means before anybody is asked: the rules of this door, in the order in which they are told.

use std::borrow::Cow;

use amalgam_core::{Delivery, Fault, Loss, TenantState};
use amalgam_protocol::{CreateResponse, Effective, Input, ItemKind, Nulls, Raw};

use super::{bounds::path_of, gather::Memory, turn::Order};

/// A request that keeps the rules, and what the door itself cannot do for it.
pub(super) struct Meaning {
    pub(super) delivery: Delivery,
    pub(super) kept: Kept,
    pub(super) losses: Vec<Loss>,
}

impl Meaning {
    /// What the response says of itself when `model` is what it was asked of.
    pub(super) fn effective<'a>(&self, model: &'a str) -> Effective<'a> {
        Effective { model, stored: self.kept != Kept::No, background: self.kept == Kept::Background }
    }
}

/// What becomes of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is gone when it was told.
    No,
    /// It is stored.
    Yes,
    /// It is stored, and made without its caller.
    Background,
}

/// Checks the rules; `body` is the text that the request was read from. RAM-05: state first, then model, then input.
pub(super) fn meaning(
    request: &CreateResponse<'_>,
    body: Raw<'_>,
    state: TenantState,
    order: &Order<'_>,
) -> Result<Meaning, Fault> {
    refuse_state(request, state, order.memory)?;
    if request.model.as_deref().unwrap_or_default().is_empty() {
        return Err(missing("model"));
    }
    let empty = |input: &Option<Input<'_>>| input.as_ref().is_none_or(Input::is_missing);
    // Going on from something needs no more words, and getting ready for words none at all.
    let speaks = order.generate && !goes_on(request);
    if speaks && empty(&request.input) && empty(&request.instructions) {
        return Err(missing("input"));
    }
    if state == TenantState::Stateless {
        refuse_references(request, body)?;
    }
    if request.prompt.is_some() {
        return Err(unsupported(
            "prompt",
            "Prompt templates are not supported: send the prompt as `instructions` and `input`.",
        ));
    }
    let mut losses = skipped_nulls(request);
    let background = request.background == Some(true);
    let kept = match (state, request.store.unwrap_or(true)) {
        (TenantState::Stateless, _) => {
            if background {
                losses.push(Loss::new("background", "the response is made in the foreground"));
            }
            Kept::No
        }
        (TenantState::Stored, false) if background => {
            return Err(unsupported("background", "A response that is made in the background has to be stored."));
        }
        (TenantState::Stored, false) => Kept::No,
        (TenantState::Stored, true) if background => Kept::Background,
        (TenantState::Stored, true) => Kept::Yes,
    };
    if request.context_management.is_some() {
        losses.push(Loss::new("context_management", "nothing is compacted by this version"));
    }
    let delivery = match request.stream {
        Some(true) => Delivery::Stream,
        _ => Delivery::Whole,
    };
    Ok(Meaning { delivery, kept, losses })
}

/// Null elements of lists, which are skipped.
pub(super) fn skipped_nulls(request: &CreateResponse<'_>) -> Vec<Loss> {
    let loss = |(list, Nulls { first, count }): &(&str, Nulls)| {
        let reason = match count {
            1 => Cow::Borrowed("null was skipped"),
            count => Cow::Owned(format!("null was skipped, the first of {count} in this list")),
        };
        Loss::new(format!("{list}[{first}]"), reason)
    };
    request.nulls.iter().map(loss).collect()
}

pub(super) fn refuse_state(
    request: &CreateResponse<'_>,
    state: TenantState,
    memory: Option<&dyn Memory>,
) -> Result<(), Fault> {
    match (state, has_previous(request), has_conversation(request)) {
        (TenantState::Stateless, true, _) if memory.is_none() => Err(unsupported(
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

fn goes_on(request: &CreateResponse<'_>) -> bool {
    has_previous(request) || has_conversation(request)
}

pub(super) fn refuse_references(request: &CreateResponse<'_>, body: Raw<'_>) -> Result<(), Fault> {
    let Some(Input::Items(items)) = &request.input else { return Ok(()) };
    match items.iter().find(|item| matches!(item.kind, ItemKind::Reference(_))) {
        None => Ok(()),
        Some(item) => Err(unsupported(
            path_of(body, "input", item),
            "Items are not kept: send the full item instead of a reference.",
        )),
    }
}

pub(super) fn missing(name: &'static str) -> Fault {
    Fault::invalid(name, format!("Missing required parameter: '{name}'.")).code("missing_required_parameter")
}

pub(super) fn unsupported(path: impl Into<Cow<'static, str>>, message: &'static str) -> Fault {
    Fault::invalid(path, message).code("unsupported_parameter")
}
