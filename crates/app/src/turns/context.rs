//! The context of a request: the responses that it continues, its conversation, and the items that it refers to.

use std::collections::HashSet;

use amalgam_core::{
    Fault, FaultKind, Scope, TenantState, UpstreamMemory, joined, read_items,
    store::{ChainPosition, ItemsOf},
};
use amalgam_protocol::{CreateResponse, Input, Item, ItemKind, Json, JsonStr, Raw, ResponseParameters, Status, Writer};

use crate::{app::Application, ids::is_id};

/// The context of a turn: the history before it, and its own items if they differ from the request's.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The history: arrays of items, oldest first.
    before: Vec<Json>,
    /// The request's own items with references replaced; none if they are used as sent.
    own: Option<Json>,
    /// The response that is continued.
    pub(crate) parent: Option<ChainPosition>,
    /// What an upstream that stores state has stored of it.
    pub(crate) memory: Option<UpstreamMemory>,
    /// The conversation that is continued.
    pub(crate) conversation: Option<String>,
    /// Whether the history exists only in the memory of a connection.
    pub(crate) in_connection: bool,
}

/// Responses that are not stored but remembered by one connection.
pub trait ConnectionMemory: Sync {
    /// The items up to and including a response, oldest first.
    fn recall(&self, response_id: &str) -> Option<Vec<ItemsOf>>;
}

impl Context {
    /// Loads everything that a request refers to; `request` is a view of `parameters`.
    pub(crate) async fn gather(
        app: &Application,
        scope: &Scope,
        state: TenantState,
        parameters: &ResponseParameters,
        request: &CreateResponse<'_>,
        connection: Option<&dyn ConnectionMemory>,
    ) -> Result<Self, Fault> {
        let mut context = Self::default();
        if let Some(id) = request.previous_response_id.as_deref().filter(|id| !id.is_empty()) {
            context.continue_response(app, scope, state, id, connection).await?;
        } else if let Some(conversation) = request.conversation.filter(|conversation| conversation.text() != "\"\"") {
            context.continue_conversation(app, scope, conversation).await?;
        }
        context.resolve_references(app, scope, parameters, request).await?;
        if context.is_continuation() {
            context.refuse_orphans(parameters, request)?;
        }
        Ok(context)
    }

    /// A context with this history.
    pub(crate) fn of(before: Vec<Json>, memory: Option<UpstreamMemory>) -> Self {
        Self { before, memory, ..Self::default() }
    }

    /// Removes the system messages of earlier turns. A prompt applies to its own turn only, but earlier versions of
    /// this program stored it as an item.
    pub(crate) fn leave_out_prompts(&mut self) {
        let is_prompt = |item: Raw<'_>| item.get_str("role").as_deref() == Some("system");
        for items in &mut self.before {
            if items.raw().elements().any(is_prompt) {
                let mut writer = Writer::with_capacity(items.bytes().len());
                writer.array(|writer| {
                    items.raw().elements().filter(|item| !is_prompt(*item)).for_each(|item| writer.raw(item));
                });
                *items = Json::from_writer(writer);
            }
        }
    }

    /// Appends an array of items to the history.
    pub(crate) fn add(&mut self, items: Json) {
        self.before.push(items);
    }

    /// History and own items in order; none if `sent`, the request's own input, is all there is.
    pub(crate) fn input<'a>(&'a self, sent: Option<&Input<'a>>) -> Result<Option<Input<'a>>, Fault> {
        joined(&self.before, self.own.as_ref(), sent)
    }

    /// The history: arrays of items.
    pub(crate) fn before(&self) -> &[Json] {
        &self.before
    }

    /// The request's own items, if they differ from the request's.
    pub(crate) fn own(&self) -> Option<&Json> {
        self.own.as_ref()
    }

    /// The stored part of the history.
    pub(crate) fn stored_before(&self) -> &[Json] {
        match self.in_connection {
            true => &[],
            false => &self.before,
        }
    }

    /// The request's own items, if they differ from the request's.
    pub(crate) fn own_input(&self) -> Result<Option<Input<'_>>, Fault> {
        match &self.own {
            None => Ok(None),
            Some(own) => read_items(own.raw().elements()).map(|items| Some(Input::Items(items))),
        }
    }

    fn is_continuation(&self) -> bool {
        self.parent.is_some() || self.conversation.is_some() || !self.before.is_empty()
    }

    fn take(&mut self, turns: Vec<ItemsOf>) {
        self.before.extend(turns.into_iter().flat_map(|turn| [turn.input, turn.output]));
    }

    async fn continue_response(
        &mut self,
        app: &Application,
        scope: &Scope,
        state: TenantState,
        id: &str,
        connection: Option<&dyn ConnectionMemory>,
    ) -> Result<(), Fault> {
        if let Some(turns) = connection.and_then(|connection| connection.recall(id)) {
            self.take(turns);
            self.in_connection = true;
            return Ok(());
        }
        let lineage = match is_id(id) && state == TenantState::Stored {
            true => app.store.lineage(scope, id).await?,
            false => None,
        };
        let lineage = lineage.ok_or_else(|| no_such_response(id))?;
        match lineage.status {
            Status::Completed | Status::Incomplete | Status::Cancelled => {}
            Status::Queued | Status::InProgress => {
                return Err(Fault::invalid("previous_response_id", format!("Response '{id}' has not ended yet."))
                    .code("previous_response_in_progress"));
            }
            Status::Failed => {
                return Err(Fault::invalid(
                    "previous_response_id",
                    format!("Response '{id}' failed and cannot be continued; continue the one before it."),
                )
                .code("previous_response_failed"));
            }
        }
        self.take(lineage.turns);
        self.parent = Some(lineage.place);
        self.memory = lineage.upstream;
        Ok(())
    }

    async fn continue_conversation(
        &mut self,
        app: &Application,
        scope: &Scope,
        conversation: Raw<'_>,
    ) -> Result<(), Fault> {
        let id = conversation_id(conversation)?;
        let items = match is_id(&id) {
            true => app.store.conversation_history(scope, &id).await?,
            false => None,
        };
        let Some(items) = items else {
            return Err(Fault::new(FaultKind::NotFound, format!("Conversation with id '{id}' not found."))
                .param("conversation")
                .code("conversation_not_found"));
        };
        self.before.push(amalgam_core::array_of(&items));
        self.conversation = Some(id);
        Ok(())
    }

    /// Replaces references by the items that they name.
    async fn resolve_references(
        &mut self,
        app: &Application,
        scope: &Scope,
        parameters: &ResponseParameters,
        request: &CreateResponse<'_>,
    ) -> Result<(), Fault> {
        let items = match &request.input {
            Some(Input::Items(items)) => items,
            // In a longer list the text has to be an item too.
            Some(Input::Text(text)) if self.is_continuation() && !text.is_empty() => {
                self.own = Some(message_of(*text));
                return Ok(());
            }
            _ => return Ok(()),
        };
        let reference = |item: &Item<'_>| match &item.kind {
            ItemKind::Reference(reference) => Some(reference.id.to_string()),
            _ => None,
        };
        let ids: Vec<String> = items.iter().filter_map(reference).filter(|id| is_id(id)).collect();
        if !items.iter().any(|item| matches!(item.kind, ItemKind::Reference(_))) {
            return Ok(());
        }
        let mut found = app.store.items(scope, &ids).await?.into_iter();
        let mut writer = Writer::default();
        let mut missing = None;
        writer.array(|writer| {
            for item in items {
                match reference(item) {
                    None => writer.raw(item.raw),
                    Some(id) => match is_id(&id).then(|| found.next().flatten()).flatten() {
                        Some(stored) => writer.valid(stored.bytes()),
                        None => {
                            missing = missing
                                .take()
                                .or_else(|| Some(no_such_item(&id, parameters.item_path("input", item.raw))))
                        }
                    },
                }
            }
        });
        match missing {
            Some(fault) => Err(fault),
            None => {
                self.own = Some(Json::from_writer(writer));
                Ok(())
            }
        }
    }

    /// Refuses an output without a call in a continuation. A full history is repaired instead.
    fn refuse_orphans(&self, parameters: &ResponseParameters, request: &CreateResponse<'_>) -> Result<(), Fault> {
        let Some(Input::Items(own)) = &request.input else { return Ok(()) };
        let output = |item: &Item<'_>| match &item.kind {
            ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output) => {
                Some(output.call_id.to_string())
            }
            ItemKind::ClientCallOutput(_, output) => Some(output.call_id.to_string()),
            _ => None,
        };
        if !own.iter().any(|item| output(item).is_some()) {
            return Ok(());
        }
        let stored = self.before.iter().chain(&self.own).flat_map(|array| array.raw().elements());
        let all = read_items(stored)?;
        let calls: HashSet<String> = all.iter().chain(own).filter_map(call_id).collect();
        for item in own {
            if let Some(id) = output(item).filter(|id| !calls.contains(id)) {
                let message = format!("No tool call found for the output with call_id '{id}'.");
                return Err(
                    Fault::invalid(parameters.item_path("input", item.raw), message).code("tool_call_not_found")
                );
            }
        }
        Ok(())
    }
}

fn call_id(item: &Item<'_>) -> Option<String> {
    match &item.kind {
        ItemKind::FunctionCall(call) => Some(call.call_id.to_string()),
        ItemKind::CustomToolCall(call) => Some(call.call_id.to_string()),
        ItemKind::ClientCall(_, call) => Some(call.call_id.to_string()),
        _ => None,
    }
}

/// A list with one user message.
fn message_of(text: JsonStr<'_>) -> Json {
    let mut writer = Writer::with_capacity(text.escaped().len() + 64);
    writer.array(|writer| {
        writer.object(|writer| {
            writer.key("type").string("message");
            writer.key("role").string("user");
            writer.key("content").json_str(text);
        });
    });
    Json::from_writer(writer)
}

/// `"conv_…"` or `{"id": "conv_…"}`.
fn conversation_id(conversation: Raw<'_>) -> Result<String, Fault> {
    let id = match conversation.as_str() {
        Some(id) => Some(id.decode()),
        None => conversation.get_str("id"),
    };
    match id {
        Some(id) if !id.is_empty() => Ok(id.into_owned()),
        _ => Err(Fault::invalid("conversation", "Must be the id of a conversation, or an object with one.")
            .code("invalid_type")),
    }
}

/// The same error for a missing response, another caller's, and one that was not stored. S10
pub fn no_such_response(id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid("previous_response_id", format!("Previous response with id '{shown}' not found."))
        .code("previous_response_not_found")
}

fn no_such_item(id: &str, path: String) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(path, format!("Item with id '{shown}' not found.")).code("item_not_found")
}
