//! Compaction: replaces a conversation by a short list of items that any model can continue from.
//!
//! The model is asked once, without tools, for a summary. Upstreams that have a compaction of their own are asked in
//! the same way, so that the result can be sent to any upstream.

use std::borrow::Cow;

use amalgam_core::{
    CallKind, Candidate, Delivery, Entry, Fault, FaultKind, History, IdKind, Ids, Loss, Route, Scope, Stem,
    TenantState, TurnOrigin, Wire,
    compaction::{self, RetainedItems, Summary},
    window::CountableText,
};
use amalgam_engine::{Identity, ModelCall, TurnStart};
use amalgam_protocol::{
    ClientTool, CreateResponse, Effective, Input, Item, ItemKind, Raw, ResponseParameters, ResponseSettings,
    ToolChoice, Usage, Writer,
};
use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    app::Application,
    turns::{self, Context, bounds, rules},
};

/// The maximum number of tokens of the user's messages that are kept verbatim.
const KEPT_TOKENS: u64 = 20_000;

/// A compacted conversation.
pub struct Compacted {
    /// The id of the compaction.
    pub id: String,
    /// The response body.
    pub object: Bytes,
    /// The losses.
    pub losses: Vec<Loss>,
}

/// Compacts a conversation.
pub async fn compact(
    app: &Application,
    scope: &Scope,
    parameters: &ResponseParameters,
    strict: bool,
    identity: Identity,
) -> Result<Compacted, Fault> {
    let request = parameters.view()?;
    let model = check(parameters, &request, scope)?;
    bounds::check(parameters, &request, &app.limits)?;
    if let Some(route) = app.catalog.resolve(scope, model).await? {
        return summarise(app, scope, parameters, model, route, strict, identity).await;
    }
    let profile = turns::apply_profile(app, scope, parameters).await?;
    let (profiled, policy) = profile.ok_or_else(|| turns::no_such_model(model))?;
    summarise(app, scope, &profiled, model, policy.route, strict, identity).await
}

/// Asks the models of `route` for a summary; `model` is the name that the caller requested.
async fn summarise(
    app: &Application,
    scope: &Scope,
    parameters: &ResponseParameters,
    model: &str,
    route: Route,
    strict: bool,
    identity: Identity,
) -> Result<Compacted, Fault> {
    let began = Instant::now();
    let candidate = route.candidates.first().ok_or_else(|| Fault::internal("a route without candidates"))?;
    let key_id = scope.key_id().map(|id| &**id);
    app.engine.limiter().known().check_model(scope, key_id, model, Some(candidate))?;
    let request = parameters.view()?;
    turns::check_files(app, scope, parameters, &request).await?;
    let context = Context::gather(app, scope, scope.state(), parameters, &request, None).await?;
    let own = context.own_input()?;
    let input = context.input(request.input.as_ref())?;
    let sent = request.input.as_ref();
    let seal_context = scope.seal_context();
    let (own, input) = (own.as_ref().or(sent), input.as_ref().or(sent));
    let mut history = turns::open_history(app, &seal_context, parameters, &request, own, input)?;

    let mut ids = Stem::of(&identity.response_id).map_or(Ids::Unguessable, Ids::Within);
    let mut retained = retained_items(app, scope, candidate, &history, &mut ids).await?;
    retained.losses.extend(rules::skipped_nulls(&request));
    let settings = summary_settings(&request, &history);
    ask_for_summary(&mut history);
    let start = Box::new(TurnStart {
        identity: &identity,
        storage: None,
        origin: TurnOrigin {
            wire: Wire::Responses,
            request_id: scope.request_id().cloned(),
            request: scope.request().cloned(),
            trace: scope.trace(),
            key_id: scope.key_id().cloned(),
            model: model.to_owned(),
            ..TurnOrigin::default()
        },
        began,
        resumes_after: None,
        settings: ResponseSettings::new(&settings, Effective { model, stored: false, background: false }),
        call: ModelCall {
            scope,
            candidates: &route.candidates,
            parameters,
            request: &settings,
            history: &history,
            delivery: Delivery::Whole,
            seal_context: &seal_context,
            strict,
            stored: false,
            memory: None,
            losses: retained.losses.clone(),
            announcement: None,
        },
        tools: None,
        call_ids: false,
        used_calls: std::collections::HashSet::new(),
        format: None,
        counts_prompt: false,
    });
    let run = app.engine.start(start).await?;
    let mut losses = run.losses().to_vec();
    let answer = Bytes::from(run.finish().await?.response);
    let Answer { text, usage } = Answer::read(&answer, &mut losses)?;
    let created_at = identity.created_at_ms / 1000;
    let summary = Summary { text, model: model.to_owned(), created_at };
    let sealed = summary.seal(&*app.seal, &seal_context);
    let object = object(&identity.response_id, created_at, &retained, &ids.make(IdKind::Compaction), &sealed, usage);
    Ok(Compacted { id: identity.response_id, object: object.into(), losses })
}

/// Requires a model and something to compact.
fn check<'r>(
    parameters: &ResponseParameters,
    request: &'r CreateResponse<'_>,
    scope: &Scope,
) -> Result<&'r str, Fault> {
    rules::refuse_state(request, scope.state(), None)?;
    let model = request.model.as_deref().filter(|model| !model.is_empty()).ok_or_else(|| rules::missing("model"))?;
    let has_input = match &request.input {
        Some(Input::Items(items)) => !items.is_empty(),
        Some(input) => !input.is_missing(),
        None => false,
    };
    let before = request.previous_response_id.as_deref().is_some_and(|id| !id.is_empty());
    if !has_input && !before && request.conversation.is_none() {
        return Err(rules::missing("input"));
    }
    if scope.state() == TenantState::Stateless {
        rules::refuse_references(parameters, request)?;
    }
    Ok(model)
}

/// The user's messages that are kept verbatim.
async fn retained_items(
    app: &Application,
    scope: &Scope,
    candidate: &Candidate,
    history: &History<'_>,
    ids: &mut Ids,
) -> Result<RetainedItems, Fault> {
    let user_messages =
        history.entries.iter().filter(|entry| compaction::is_user_message(entry)).map(CountableText::of).collect();
    // Token counts, from the latest message to the oldest.
    let mut token_counts = app.engine.weigh(scope, candidate, user_messages).await?.into_iter().rev();
    Ok(compaction::keep(history, ids, KEPT_TOKENS, |_| token_counts.next().unwrap_or_default()))
}

/// The settings of the summary call: the caller's identifying fields, no tools, and truncation in case the history is
/// too long.
fn summary_settings<'a>(request: &CreateResponse<'a>, history: &History<'_>) -> CreateResponse<'a> {
    // A tool search in the history would offer its tools again.
    let finds_tools = |entry: &Entry<'_>| matches!(entry, Entry::Output(output) if output.kind == CallKind::Client(ClientTool::ToolSearch));
    CreateResponse {
        model: request.model.clone(),
        instructions: request.instructions.clone(),
        tool_choice: history.entries.iter().any(finds_tools).then_some(ToolChoice::None),
        truncation: Some(Cow::Borrowed("auto")),
        service_tier: request.service_tier.clone(),
        safety_identifier: request.safety_identifier.clone(),
        prompt_cache_key: request.prompt_cache_key.clone(),
        prompt_cache_retention: request.prompt_cache_retention.clone(),
        user: request.user.clone(),
        ..CreateResponse::default()
    }
}

/// Appends the request for a summary to the conversation. Tools inside the history are not offered.
fn ask_for_summary(history: &mut History<'_>) {
    let is_tools = |entry: &Entry<'_>| matches!(entry, Entry::Opaque(Item { kind: ItemKind::AdditionalTools(_), .. }));
    history.entries.retain(|entry| !is_tools(entry));
    history.entries.push(Entry::Note(compaction::REQUEST.to_owned()));
}

/// The model's answer.
struct Answer<'a> {
    text: String,
    usage: Option<Raw<'a>>,
}

impl<'a> Answer<'a> {
    fn read(response: &'a Bytes, losses: &mut Vec<Loss>) -> Result<Self, Fault> {
        let raw = Raw::parse_within(response, usize::MAX).map_err(Fault::internal)?;
        let mut text = String::new();
        for item in raw.get("output").unwrap_or(Raw::NULL).elements() {
            if let Ok(Item { kind: ItemKind::Message(message), .. }) = Item::read(item) {
                text.push_str(&message.content.text());
            }
        }
        if text.trim().is_empty() {
            return Err(Fault::new(FaultKind::UpstreamBroken, "The model did not write a summary."));
        }
        match raw.get("incomplete_details").and_then(|details| details.get_str("reason")).as_deref() {
            None => {}
            Some("content_filter") => {
                return Err(Fault::new(FaultKind::ContentPolicy, "The upstream refused to sum the conversation up."));
            }
            // A truncated summary is better than none.
            Some(_) => {
                losses.push(Loss::new("output", "the summary was cut at the most tokens that the model may write"))
            }
        }
        Ok(Self { text, usage: raw.get("usage").filter(|usage| !usage.is_null()) })
    }
}

fn object(
    id: &str,
    created_at: u64,
    retained: &RetainedItems,
    item_id: &str,
    sealed: &str,
    usage: Option<Raw<'_>>,
) -> Vec<u8> {
    let capacity: usize = retained.items.iter().map(|item| item.bytes().len() + 1).sum();
    let mut writer = Writer::with_capacity(capacity + sealed.len() + 512);
    writer.object(|writer| {
        writer.key("id").string(id);
        writer.key("object").string("response.compaction");
        writer.key("created_at").number(created_at);
        writer.key("output").array(|writer| {
            retained.items.iter().for_each(|item| writer.valid(item.bytes()));
            writer.object(|writer| {
                writer.key("id").string(item_id);
                writer.key("type").string("compaction");
                writer.key("encrypted_content").string(sealed);
            });
        });
        match usage {
            Some(usage) => writer.key("usage").raw(usage),
            None => Usage::default().write(writer.key("usage")),
        }
    });
    writer.into_bytes()
}
