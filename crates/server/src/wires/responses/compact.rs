//! `POST /v1/responses/compact`: a conversation becomes a short list of items to go on from, whatever model is behind it.
//!
//! The model is asked once, without tools, to sum up what was said. An upstream that could compact by itself is asked in
//! the same way as all others, so that what comes out can be taken to any of them.

use std::{borrow::Cow, sync::Arc};

use amalgam_core::{
    CallKind, Candidate, Delivery, Entry, Fault, FaultKind, History, IdKind, Ids, Loss, Route, Scope, Stem,
    TenantState,
    compaction::{self, Kept, Summary},
    window::Spoken,
};
use amalgam_engine::{Ask, Identity, Question};
use amalgam_protocol::{
    ClientTool, CreateResponse, Effective, Ends, Input, Item, ItemKind, Raw, Settings, ToolChoice, Usage, Writer,
};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;

use super::{
    bounds, convert,
    create::is_strict,
    error,
    gather::gather,
    head::TurnHead,
    once::{self, Standing},
    profile::{self, StandIn},
    turn, uploads,
};
use crate::{
    app::App,
    body::read_json,
    wires::{WireError, answer},
};

/// The most tokens of the user's own messages that stay word for word.
const KEPT_TOKENS: u64 = 20_000;

/// Compacts a conversation.
pub(super) async fn compact(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.limits.whole_body(), &app.memory).await?;
    let strict = is_strict(&head.headers);
    let compacted = |identity| compacted(&app, &scope, &body, strict, identity);
    let Compacted { id, object, losses } = match once::key(&head.headers)? {
        None => compacted(app.engine.identity()).await?,
        Some(key) => {
            let first = match once::claim(&app, &scope, "POST /v1/responses/compact", key, &body).await? {
                Standing::First(first) => first,
                Standing::Told(response) => return Ok(response),
            };
            match compacted(first.identity.clone()).await {
                Ok(compacted) => {
                    first.remember(compacted.object.clone());
                    compacted
                }
                Err(fault) => {
                    first.refuse(&fault).await;
                    return Err(fault.into());
                }
            }
        }
    };
    Ok(TurnHead::named(&id).with_losses(&losses).on(answer::json(object)))
}

/// What the caller gets.
struct Compacted {
    id: String,
    object: Bytes,
    losses: Vec<Loss>,
}

async fn compacted(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    strict: bool,
    identity: Identity,
) -> Result<Compacted, Fault> {
    let mut ends = Ends::default();
    let raw = Raw::parse_large(body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = CreateResponse::read(raw).map_err(error::shape)?;
    let model = check(&request, raw, scope)?;
    bounds::check(&request, raw, body.len(), &app.limits)?;
    if let Some(route) = app.catalog.resolve(scope, model).await? {
        return sum_up(app, scope, Asked { body, raw, request: &request, model, route }, strict, identity).await;
    }
    let stand_in = profile::stand_in(app, scope, model, &request, raw).await?;
    let StandIn { body, settled, .. } = stand_in.ok_or_else(|| turn::no_such_model(model))?;
    let mut ends = Ends::default();
    let raw = Raw::parse_large(&body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = CreateResponse::read(raw).map_err(error::shape)?;
    let asked = Asked { body: &body, raw, request: &request, model, route: settled.route };
    sum_up(app, scope, asked, strict, identity).await
}

/// A request, and who answers it.
struct Asked<'a> {
    body: &'a Bytes,
    /// The text that it was read from.
    raw: Raw<'a>,
    request: &'a CreateResponse<'a>,
    /// The name that the caller asked for.
    model: &'a str,
    route: Route,
}

async fn sum_up(
    app: &App,
    scope: &Scope,
    Asked { body, raw, request, model, route }: Asked<'_>,
    strict: bool,
    identity: Identity,
) -> Result<Compacted, Fault> {
    let candidate = route.candidates.first().ok_or_else(|| Fault::internal("a route without candidates"))?;
    uploads::check(app, scope, request, raw).await?;
    let prior = gather(app, scope, scope.state(), request, raw, None).await?;
    let own = prior.own_input()?;
    let said = prior.input(request.input.as_ref())?;
    let sent = request.input.as_ref();
    let seal_context = scope.seal_context();
    let mut history = turn::history(app, &seal_context, request, raw, own.as_ref().or(sent), said.as_ref().or(sent))?;

    let mut ids = Stem::of(&identity.response_id).map_or(Ids::Unguessable, Ids::Within);
    let mut kept = keep(app, candidate, &history, &mut ids).await?;
    kept.losses.extend(convert::skipped_nulls(request));
    let settings = asking(request, &history);
    ask_for_summary(&mut history);
    let ask = Box::new(Ask {
        identity: &identity,
        keep: None,
        waited: None,
        settings: Settings::new(&settings, Effective { model, stored: false, background: false }),
        question: Question {
            scope,
            candidates: &route.candidates,
            request: &settings,
            history: &history,
            message: body,
            delivery: Delivery::Whole,
            seal_context: &seal_context,
            strict,
            kept: false,
            memory: None,
            losses: kept.losses.clone(),
            announcement: None,
        },
        tooling: None,
        call_ids: false,
        used_calls: std::collections::HashSet::new(),
        format: None,
    });
    let run = app.engine.start(ask).await?;
    let mut losses = run.losses().to_vec();
    let answer = Bytes::from(run.finish().await?);
    let Answer { text, usage } = Answer::read(&answer, &mut losses)?;
    let created_at = identity.created_at_ms / 1000;
    let summary = Summary { text, model: model.to_owned(), created_at };
    let sealed = summary.seal(&*app.seal, &seal_context);
    let object = object(&identity.response_id, created_at, &kept, &ids.make(IdKind::Compaction), &sealed, usage);
    Ok(Compacted { id: identity.response_id, object: object.into(), losses })
}

/// The rules: a model, and something to compact.
fn check<'r>(request: &'r CreateResponse<'_>, body: Raw<'_>, scope: &Scope) -> Result<&'r str, Fault> {
    convert::refuse_state(request, scope.state(), None)?;
    let model = request.model.as_deref().filter(|model| !model.is_empty()).ok_or_else(|| convert::missing("model"))?;
    let said = match &request.input {
        Some(Input::Items(items)) => !items.is_empty(),
        Some(input) => !input.is_missing(),
        None => false,
    };
    let before = request.previous_response_id.as_deref().is_some_and(|id| !id.is_empty());
    if !said && !before && request.conversation.is_none() {
        return Err(convert::missing("input"));
    }
    if scope.state() == TenantState::Stateless {
        convert::refuse_references(request, body)?;
    }
    Ok(model)
}

/// What stays word for word.
async fn keep(app: &App, candidate: &Candidate, history: &History<'_>, ids: &mut Ids) -> Result<Kept, Fault> {
    let spoken = history.entries.iter().filter(|entry| compaction::is_of_the_user(entry)).map(Spoken::of).collect();
    // Asked for from the latest to the oldest.
    let mut weights = app.engine.weigh(candidate, spoken).await?.into_iter().rev();
    Ok(compaction::keep(history, ids, KEPT_TOKENS, |_| weights.next().unwrap_or_default()))
}

/// The settings of the call that asks for a summary: those of the caller that are about who asks, no tools, and the oldest
/// turns left out if all of them are too much.
fn asking<'a>(request: &CreateResponse<'a>, history: &History<'_>) -> CreateResponse<'a> {
    // What a search for tools once found would be offered again.
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

/// The conversation, and then the request for a summary of it. Tools that came with it are not offered.
fn ask_for_summary(history: &mut History<'_>) {
    let is_tools = |entry: &Entry<'_>| matches!(entry, Entry::Opaque(Item { kind: ItemKind::AdditionalTools(_), .. }));
    history.entries.retain(|entry| !is_tools(entry));
    history.entries.push(Entry::Note(compaction::REQUEST.to_owned()));
}

/// What the model answered.
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
            // Better a summary without its end than none.
            Some(_) => {
                losses.push(Loss::new("output", "the summary was cut at the most tokens that the model may write"))
            }
        }
        Ok(Self { text, usage: raw.get("usage").filter(|usage| !usage.is_null()) })
    }
}

fn object(id: &str, created_at: u64, kept: &Kept, item_id: &str, sealed: &str, usage: Option<Raw<'_>>) -> Vec<u8> {
    let room: usize = kept.items.iter().map(|item| item.bytes().len() + 1).sum();
    let mut writer = Writer::with_capacity(room + sealed.len() + 512);
    writer.object(|writer| {
        writer.key("id").string(id);
        writer.key("object").string("response.compaction");
        writer.key("created_at").number(created_at);
        writer.key("output").array(|writer| {
            kept.items.iter().for_each(|item| writer.valid(item.bytes()));
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
