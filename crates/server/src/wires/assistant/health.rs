//! `GET /api/v2/ai-agent/health/`: whether the caller's assistant would answer.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use amalgam_app::assistant::{Agent, DISABLED, RouteError, is_enabled};
use amalgam_core::Scope;
use amalgam_protocol::Writer;
use axum::response::Response;
use http::StatusCode;
use tokio::time::Instant;

use super::error::{AssistantError, UNAVAILABLE};
use crate::wires::call::Call;
use crate::{app::App, wires::answer};

/// How long the result of a check is used.
const CACHE_TIME: Duration = Duration::from_secs(10);
/// The maximum number of cached results.
const MAX_CACHED: usize = 1000;

/// The time of a check, and the model's name at the upstream; none if the check failed.
type CheckResult = (Instant, Option<String>);

/// Cached results of model checks, by tenant and model.
#[derive(Debug, Default)]
pub(crate) struct Checks(Mutex<HashMap<(i64, String), CheckResult>>);

impl Checks {
    fn cached(&self, key: &(i64, String)) -> Option<Option<String>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.get(key).filter(|(at, _)| at.elapsed() < CACHE_TIME).map(|(_, model_id)| model_id.clone())
    }

    fn remember(&self, key: (i64, String), model_id: Option<String>) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= MAX_CACHED {
            cached.retain(|_, (at, _)| at.elapsed() < CACHE_TIME);
        }
        if cached.len() < MAX_CACHED {
            cached.insert(key, (Instant::now(), model_id));
        }
    }
}

/// The health of an assistant.
struct Health {
    checked: bool,
    enabled: bool,
    model_id: Option<String>,
    error: Option<String>,
}

/// Reports the health of the caller's assistant. RNCC-21, RNCC-22
pub(super) async fn health(Call { app, scope, .. }: Call) -> Result<Response, AssistantError> {
    let agent = Agent::of(&app, &scope, None).await?;
    let health = check_health(&app, &scope, &agent).await?;
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

async fn check_health(app: &App, scope: &Scope, agent: &Agent) -> Result<Health, AssistantError> {
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
    let model_id = match app.checks.cached(&key) {
        Some(model_id) => model_id,
        None => {
            let model_id = identify(candidate).await;
            app.checks.remember(key, model_id.clone());
            model_id
        }
    };
    let error = model_id.is_none().then(|| UNAVAILABLE.to_owned());
    Ok(Health { checked: true, enabled, model_id, error })
}

/// The model's name at the upstream; none if the upstream fails or has no such model. The reason is logged.
async fn identify(candidate: &amalgam_core::Candidate) -> Option<String> {
    match candidate.model.identify(&candidate.name).await {
        Ok(id) => Some(id),
        Err(error) => {
            tracing::warn!(upstream.name = candidate.upstream, "the assistant's model is not available: {error}");
            None
        }
    }
}
