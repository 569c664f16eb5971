//! `POST /v1/responses/input_tokens`: what a request would cost to say, counted here and told to no upstream.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{Delivery, Fault, ModelRequest, Route, Scope, TenantState};
use amalgam_protocol::{CreateResponse, Ends, Raw, Writer};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;

use super::{
    bounds, convert, error,
    gather::gather,
    profile::{self, StandIn},
    turn, uploads,
};
use crate::{
    app::App,
    body::read_json,
    wires::{WireError, answer},
};

/// Counts a request's tokens as its upstream would be sent them.
pub(super) async fn count(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (_, body) = read_json(request, app.limits.whole_body(), &app.memory).await?;
    let tokens = tokens(&app, &scope, &body).await?;
    let mut writer = Writer::with_capacity(64);
    writer.object(|writer| {
        writer.key("object").string("response.input_tokens");
        writer.key("input_tokens").number(tokens);
    });
    Ok(answer::json(writer.into_bytes()))
}

async fn tokens(app: &App, scope: &Scope, body: &Bytes) -> Result<u64, Fault> {
    let mut ends = Ends::default();
    let raw = Raw::parse_large(body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = CreateResponse::read(raw).map_err(error::shape)?;
    convert::refuse_state(&request, scope.state(), None)?;
    if scope.state() == TenantState::Stateless {
        convert::refuse_references(&request, raw)?;
    }
    bounds::check(&request, raw, body.len(), &app.limits)?;
    let model = model_of(app, scope, &request).await?;
    if let Some(route) = app.catalog.resolve(scope, &model).await? {
        return tokens_of(app, scope, body, raw, &request, &route).await;
    }
    let stand_in = profile::stand_in(app, scope, &model, &request, raw).await?;
    let StandIn { body, settled, .. } = stand_in.ok_or_else(|| turn::no_such_model(&model))?;
    let mut ends = Ends::default();
    let raw = Raw::parse_large(&body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = CreateResponse::read(raw).map_err(error::shape)?;
    tokens_of(app, scope, &body, raw, &request, &settled.route).await
}

/// The tokens of a request as the first of its models would be asked it.
async fn tokens_of(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    raw: Raw<'_>,
    request: &CreateResponse<'_>,
    route: &Route,
) -> Result<u64, Fault> {
    uploads::check(app, scope, request, raw).await?;
    let prior = gather(app, scope, scope.state(), request, raw, None).await?;
    let own = prior.own_input()?;
    let said = prior.input(request.input.as_ref())?;
    let sent = request.input.as_ref();
    let seal_context = scope.seal_context();
    let history = turn::history(app, &seal_context, request, raw, own.as_ref().or(sent), said.as_ref().or(sent))?;
    // What a file says is counted too.
    let expanded = app.engine.expand(scope, &history).await?;
    let history = match &expanded {
        Some(expanded) => expanded.history(&history)?,
        None => history,
    };
    let candidate = route.candidates.first().ok_or_else(|| Fault::internal("a route without candidates"))?;
    let prepared = candidate.model.prepare(&ModelRequest {
        model: &candidate.name,
        settings: request,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: &seal_context,
        // An image counts as one whether or not its bytes are here.
        images: &HashMap::new(),
        message: body,
    })?;
    Ok(app.engine.count(candidate, prepared).await?.total())
}

/// The model that is named. A count that names none is made for the first that the caller may ask: all are counted alike.
async fn model_of(app: &App, scope: &Scope, request: &CreateResponse<'_>) -> Result<String, Fault> {
    if let Some(model) = request.model.as_deref().filter(|model| !model.is_empty()) {
        return Ok(model.to_owned());
    }
    let mut cards = app.catalog.list(scope).await.into_iter();
    cards.next().map(|card| card.id).ok_or_else(|| convert::missing("model"))
}
