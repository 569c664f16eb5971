//! `GET /api/v2/ai-agent/health/`: whether the caller's assistant would answer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use amalgam_app::assistant::{Agent, DISABLED, RouteError, is_enabled};
use amalgam_core::Scope;
use amalgam_protocol::Writer;
use axum::{Extension, extract::State, response::Response};
use http::StatusCode;
use tokio::time::Instant;

use super::error::{AssistantError, UNAVAILABLE};
use crate::{app::App, wires::answer};

/// How long what an upstream said about a model is believed.
const FRESH: Duration = Duration::from_secs(10);
/// So many tenants are remembered.
const REMEMBERED: usize = 1000;

/// What an upstream said about a model, and when: the name that it gave, or nothing.
type Said = (Instant, Option<String>);

/// What upstreams said about the models of tenants lately.
#[derive(Debug, Default)]
pub(crate) struct Checks(Mutex<HashMap<(i64, String), Said>>);

impl Checks {
    fn known(&self, key: &(i64, String)) -> Option<Option<String>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, said)| said.clone())
    }

    fn remember(&self, key: (i64, String), said: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (at, _)| at.elapsed() < FRESH);
        }
        if known.len() < REMEMBERED {
            known.insert(key, (Instant::now(), said));
        }
    }
}

/// How it stands.
struct Health {
    checked: bool,
    enabled: bool,
    model_id: Option<String>,
    error: Option<String>,
}

/// Tells how the caller's assistant stands. RNCC-21, RNCC-22
pub(super) async fn health(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
) -> Result<Response, AssistantError> {
    let agent = Agent::of(&app, &scope, None).await?;
    let health = look(&app, &scope, &agent).await?;
    let prompt = agent.prompt(None);
    let ok = health.error.is_none();
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("ok").bool(ok);
        writer.key("checked").bool(health.checked);
        writer.key("model").string(&agent.resolved.model.value);
        writer.key("prompt").object(|writer| {
            writer.key("version").string(&agent.resolved.prompt_version.value);
            writer.key("hash").string(&prompt.hash);
        });
        writer.key("feature_enabled").bool(health.enabled);
        match &health.model_id {
            Some(id) => writer.key("model_id").string(id),
            None => writer.key("model_id").null(),
        }
        if let Some(error) = &health.error {
            writer.key("error").string(error);
        }
    });
    let mut response = answer::json(writer.into_bytes());
    if !ok {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

async fn look(app: &App, scope: &Scope, agent: &Agent) -> Result<Health, AssistantError> {
    let enabled = is_enabled(app, scope).await?;
    let unchecked = |error: String| Health { checked: false, enabled, model_id: None, error: Some(error) };
    if !enabled {
        return Ok(unchecked(DISABLED.to_owned()));
    }
    let route = match agent.route(app, scope).await {
        Ok(route) => route,
        Err(RouteError::MissingKey(variable)) => return Ok(unchecked(format!("{variable} is not configured."))),
        Err(RouteError::Fault(fault)) if fault.kind == amalgam_core::FaultKind::UpstreamRejected => {
            return Ok(unchecked(fault.into_parts().message.into_owned()));
        }
        Err(RouteError::Fault(fault)) => return Err(fault.into()),
    };
    let Some(candidate) = route.candidates.first() else { return Ok(unchecked(UNAVAILABLE.to_owned())) };
    let key = (scope.tenant_id(), format!("{}/{}", candidate.upstream, candidate.name));
    let said = match app.checks.known(&key) {
        Some(said) => said,
        None => {
            let said = identify(candidate).await;
            app.checks.remember(key, said.clone());
            said
        }
    };
    let error = said.is_none().then(|| UNAVAILABLE.to_owned());
    Ok(Health { checked: true, enabled, model_id: said, error })
}

/// What the upstream calls the model; nothing when it cannot be asked or has none. The log knows why.
async fn identify(candidate: &amalgam_core::Candidate) -> Option<String> {
    match candidate.model.identify(&candidate.name).await {
        Ok(id) => Some(id),
        Err(error) => {
            tracing::warn!(upstream.name = candidate.upstream, "the assistant's model is not available: {error}");
            None
        }
    }
}
