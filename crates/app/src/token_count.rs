//! Counts the tokens of a request locally, without an upstream.

use std::collections::HashMap;

use amalgam_core::{Delivery, Fault, ModelRequest, Route, Scope, TenantState};
use amalgam_protocol::ResponseParameters;

use crate::{
    app::Application,
    turns::{self, Context, bounds, rules},
};

/// The input tokens of a request in the form that its upstream would get.
pub async fn input_tokens(app: &Application, scope: &Scope, mut parameters: ResponseParameters) -> Result<u64, Fault> {
    if parameters.model.as_deref().unwrap_or_default().is_empty() {
        parameters.model = first_model(app, scope).await;
    }
    let request = parameters.view()?;
    rules::refuse_state(&request, scope.state(), None)?;
    if scope.state() == TenantState::Stateless {
        rules::refuse_references(&parameters, &request)?;
    }
    bounds::check(&parameters, &request, &app.limits)?;
    let model = request.model.as_deref().ok_or_else(|| rules::missing("model"))?;
    if let Some(route) = app.catalog.resolve(scope, model).await? {
        return count(app, scope, &parameters, &route).await;
    }
    let profile = turns::apply_profile(app, scope, &parameters).await?;
    let (profiled, policy) = profile.ok_or_else(|| turns::no_such_model(model))?;
    count(app, scope, &profiled, &policy.route).await
}

/// The tokens of a request in the form that the first candidate would get.
async fn count(app: &Application, scope: &Scope, parameters: &ResponseParameters, route: &Route) -> Result<u64, Fault> {
    let request = parameters.view()?;
    turns::check_files(app, scope, parameters, &request).await?;
    let context = Context::gather(app, scope, scope.state(), parameters, &request, None).await?;
    let own = context.own_input()?;
    let input = context.input(request.input.as_ref())?;
    let sent = request.input.as_ref();
    let seal_context = scope.seal_context();
    let (own, input) = (own.as_ref().or(sent), input.as_ref().or(sent));
    let history = turns::open_history(app, &seal_context, parameters, &request, own, input)?;
    // The content of files counts too.
    let expanded = app.engine.expand(scope, &history).await?;
    let history = match &expanded {
        Some(expanded) => expanded.history(&history)?,
        None => history,
    };
    let candidate = route.candidates.first().ok_or_else(|| Fault::internal("a route without candidates"))?;
    let prepared = candidate.model.prepare(&ModelRequest {
        model: &candidate.name,
        settings: &request,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: &seal_context,
        // An image has the same count whether or not its bytes are loaded.
        images: &HashMap::new(),
    })?;
    Ok(app.engine.count(scope, candidate, prepared).await?.total())
}

/// Without a model name, the count is made for the first model that the caller may use: all are counted alike.
async fn first_model(app: &Application, scope: &Scope) -> Option<String> {
    app.catalog.list(scope).await.into_iter().next().map(|card| card.id)
}
