//! Who answers callers of this door, and on which terms.

use amalgam_core::{
    Catalog, Fault, FaultKind, OwnTerms, Route, Scope,
    assistant::{
        prompt::{self, Prompt},
        settings::{Origin, Resolved, Settings, resolve},
    },
    store::{AgentProfile, Course},
};

use amalgam_protocol::Writer;

use super::error::AssistantError;
use crate::{app::App, wires::admin::StoredConfig};

/// What the settings of an installation are for all of its tenants.
#[derive(Debug, Clone, Default)]
pub struct AssistantSettings {
    /// What is set for all tenants.
    pub settings: Settings,
    /// Where this server is reached from outside, without a slash at the end.
    pub public_url: String,
}

/// The same with the installation's default model, when neither tenant nor profile names one.
pub async fn with_default_model(catalog: &dyn Catalog, mut resolved: Resolved) -> Resolved {
    if resolved.model.origin == Origin::Default
        && let Some(model) = catalog.default_model(resolved.upstream.value.as_deref()).await
    {
        resolved.model.value = model;
    }
    resolved
}

/// An assistant, with everything that counts for one turn.
pub(in crate::wires) struct Agent {
    /// The profile; none where none is active under the name that was asked for.
    pub(in crate::wires) profile: Option<AgentProfile>,
    pub(in crate::wires) resolved: Resolved,
}

impl Agent {
    /// The assistant that a caller asks for. RNCC-05, RNCC-06
    pub(in crate::wires) async fn of(app: &App, scope: &Scope, slug: Option<&str>) -> Result<Self, Fault> {
        let profile = match slug.filter(|slug| !slug.is_empty()) {
            Some(slug) => app.store.profile(scope, slug).await?.filter(|profile| profile.active),
            None => None,
        };
        Self::with(app, scope, profile).await
    }

    /// The assistant of a profile.
    pub(in crate::wires) async fn with(app: &App, scope: &Scope, profile: Option<AgentProfile>) -> Result<Self, Fault> {
        let own = match app.store.agent_config(scope).await? {
            Some(config) => StoredConfig::read(config)?
                .opened(&*app.seal, &scope.seal_context())
                .ok_or_else(|| Fault::internal("a tenant's key cannot be opened"))?,
            None => Settings::default(),
        };
        let resolved = resolve(&Settings::defaults(), &app.assistant.settings, &own, profile.as_ref());
        let resolved = with_default_model(&*app.catalog, resolved).await;
        Ok(Self { profile, resolved })
    }

    /// What it is told. RNCC-23 to RNCC-25
    pub(in crate::wires) fn prompt(&self, course: Option<&Course>) -> Prompt {
        let profile = self.profile.as_ref().map(|profile| profile.prompt.as_str());
        prompt::compose(&self.resolved.system_prompt.value, profile, course)
    }

    /// Who is asked. A key of the tenant's own is shown to nobody but the upstream that it is for.
    pub(in crate::wires) async fn route(&self, app: &App, scope: &Scope) -> Result<Route, AssistantError> {
        let resolved = &self.resolved;
        let own_key = resolved.api_key.value.as_ref().filter(|_| resolved.api_key.origin == Origin::Config);
        let terms = OwnTerms {
            name: &resolved.model.value,
            upstream: resolved.upstream.value.as_deref(),
            key: own_key,
            patience: Some(resolved.request_timeout.value),
        };
        let route = match resolved.model.value.as_str() {
            "" => None,
            _ => app.catalog.resolve_on(scope, terms).await?,
        };
        let route = route.ok_or_else(|| {
            let message = match resolved.model.value.as_str() {
                "" => "No upstream names or lists a model.".to_owned(),
                model => format!("No upstream has the assistant's model `{model}`."),
            };
            Fault::new(FaultKind::UpstreamRejected, message).detail(format_args!("tenant {}", scope.tenant_id()))
        })?;
        match route.candidates.first().and_then(|candidate| candidate.model.missing_key()) {
            Some(variable) => Err(AssistantError::NoKey(variable.to_owned())),
            None => Ok(route),
        }
    }
}

impl Agent {
    /// What is asked of the model besides what is said: fields of a request.
    pub(in crate::wires) fn write_settings(&self, writer: &mut Writer) {
        self.write_terms(writer);
        writer.key("tools").array(|writer| self.write_tools(writer));
    }

    /// The same without its tools.
    pub(in crate::wires) fn write_terms(&self, writer: &mut Writer) {
        let resolved = &self.resolved;
        if let Some(temperature) = resolved.temperature.value {
            writer.key("temperature").float(temperature);
        }
        if let Some(top_p) = resolved.top_p.value {
            writer.key("top_p").float(top_p);
        }
        if let Some(tokens) = resolved.max_output_tokens.value {
            writer.key("max_output_tokens").number(tokens);
        }
        writer.key("truncation").string(resolved.truncation.value.name());
        writer.key("parallel_tool_calls").bool(resolved.parallel_tool_calls.value);
    }

    /// The tool that the model has to call first, where the profile names one. R003-40
    pub(in crate::wires) fn first_tool(&self) -> Option<String> {
        self.profile.as_ref()?.tool_choice.clone()
    }

    /// Its tools by name: whoever has them knows the rest.
    pub(in crate::wires) fn write_tools(&self, writer: &mut Writer) {
        for name in self.profile.iter().flat_map(|profile| &profile.tools) {
            writer.object(|writer| {
                writer.key("type").string("function");
                writer.key("name").string(name);
            });
        }
    }

    /// What a response of it says about itself: fields of its metadata.
    pub(in crate::wires) fn write_metadata(&self, writer: &mut Writer, prompt: &Prompt) {
        if let Some(profile) = &self.profile {
            writer.key("agent").string(&profile.slug);
            writer.key("agent_version").string(&profile.version.to_string());
        }
        writer.key("prompt_version").string(&self.resolved.prompt_version.value);
        writer.key("prompt_hash").string(&prompt.hash);
    }
}
