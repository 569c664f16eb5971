//! What a request means before anybody is asked: the rules of this door, in the order in which they are told.

use amalgam_core::{Delivery, Fault, FaultKind, Loss, Scope, TenantState};
use amalgam_protocol::{CreateResponse, Input, ItemKind, Raw};

use super::bounds::path_of;

/// A request that keeps the rules, and what the door itself cannot do for it.
pub(super) struct Meaning {
    pub(super) delivery: Delivery,
    pub(super) losses: Vec<Loss>,
}

/// Checks the rules; `body` is the text that the request was read from. RAM-05: state first, then model, then input.
pub(super) fn meaning(request: &CreateResponse<'_>, body: Raw<'_>, scope: &Scope) -> Result<Meaning, Fault> {
    refuse_state(request, scope)?;
    if request.model.as_deref().unwrap_or_default().is_empty() {
        return Err(missing("model"));
    }
    let empty = |input: &Option<Input<'_>>| input.as_ref().is_none_or(Input::is_missing);
    if empty(&request.input) && empty(&request.instructions) {
        return Err(missing("input"));
    }
    refuse_references(request, body, scope)?;
    if request.prompt.is_some() {
        return Err(unsupported(
            "prompt",
            "Prompt templates are not supported: send the prompt as `instructions` and `input`.",
        ));
    }
    let mut losses = Vec::new();
    if request.background == Some(true) {
        losses.push(Loss::new("background", "the response is made in the foreground"));
    }
    if request.store == Some(true) && scope.state() == TenantState::Stored {
        losses.push(Loss::new("store", "responses are not kept by this version"));
    }
    if request.context_management.is_some() {
        losses.push(Loss::new("context_management", "nothing is compacted by this version"));
    }
    let delivery = match request.stream {
        Some(true) => Delivery::Stream,
        _ => Delivery::Whole,
    };
    Ok(Meaning { delivery, losses })
}

fn refuse_state(request: &CreateResponse<'_>, scope: &Scope) -> Result<(), Fault> {
    let previous = request.previous_response_id.as_deref().is_some_and(|id| !id.is_empty());
    let conversation = request.conversation.is_some_and(|conversation| conversation.text() != "\"\"");
    match (scope.state(), previous, conversation) {
        (TenantState::Stateless, true, _) => Err(unsupported(
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
        (TenantState::Stored, true, _) => {
            let id = request.previous_response_id.as_deref().unwrap_or_default();
            Err(Fault::invalid("previous_response_id", format!("Previous response with id '{id}' not found."))
                .code("previous_response_not_found"))
        }
        (TenantState::Stored, _, true) => Err(Fault::new(FaultKind::NotFound, "Conversation not found.")
            .param("conversation")
            .code("conversation_not_found")),
        (_, false, false) => Ok(()),
    }
}

fn refuse_references(request: &CreateResponse<'_>, body: Raw<'_>, scope: &Scope) -> Result<(), Fault> {
    let Some(Input::Items(items)) = &request.input else { return Ok(()) };
    for item in items {
        if let ItemKind::Reference(reference) = &item.kind {
            let path = path_of(body, "input", item);
            return Err(match scope.state() {
                TenantState::Stateless => {
                    unsupported(path, "Items are not kept: send the full item instead of a reference.")
                }
                TenantState::Stored => {
                    Fault::invalid(path, format!("Item with id '{}' not found.", reference.id)).code("item_not_found")
                }
            });
        }
    }
    Ok(())
}

fn missing(name: &'static str) -> Fault {
    Fault::invalid(name, format!("Missing required parameter: '{name}'.")).code("missing_required_parameter")
}

fn unsupported(path: impl Into<std::borrow::Cow<'static, str>>, message: &'static str) -> Fault {
    Fault::invalid(path, message).code("unsupported_parameter")
}
