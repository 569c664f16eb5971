//! An assistant of a tenant: its profile, its settings, its prompt and its models.

use amalgam_assistant::{
    prompt::{self, Prompt},
    settings::{AgentSettings, EffectiveSettings, Origin, resolve},
};
use amalgam_core::{
    Catalog, Fault, FaultKind, ModelSelection, Route, Scope,
    store::{AgentProfile, Course},
};

use amalgam_protocol::{Json, ResponseParameters, Writer};

use crate::app::Application;

/// The settings of the installation, for all tenants.
#[derive(Debug, Clone, Default)]
pub struct AssistantSettings {
    /// The defaults for all tenants.
    pub settings: AgentSettings,
    /// The public URL of this server, without a trailing slash.
    pub public_url: String,
}

/// Fills in the installation's default model if neither the tenant nor the profile names one.
pub async fn with_default_model(catalog: &dyn Catalog, mut resolved: EffectiveSettings) -> EffectiveSettings {
    if resolved.model.origin == Origin::Default
        && let Some(model) = catalog.default_model(resolved.upstream.value.as_deref()).await
    {
        resolved.model.value = model;
    }
    resolved
}

/// An assistant with its effective settings, for one turn.
pub struct Agent {
    /// The profile; none if no active profile has the requested name.
    pub profile: Option<AgentProfile>,
    /// The effective settings.
    pub resolved: EffectiveSettings,
}

/// Why an assistant has no model.
#[derive(Debug)]
pub enum RouteError {
    /// Any other fault.
    Fault(Fault),
    /// The variable that should hold the upstream's key is not set.
    MissingKey(String),
}

impl From<Fault> for RouteError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<RouteError> for Fault {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Fault(fault) => fault,
            RouteError::MissingKey(variable) => {
                Fault::new(FaultKind::UpstreamCredential, "The upstream's API key is not configured.")
                    .detail(format_args!("{variable} is not set"))
            }
        }
    }
}

impl Agent {
    /// The assistant with the requested slug. RNCC-05, RNCC-06
    pub async fn of(app: &Application, scope: &Scope, slug: Option<&str>) -> Result<Self, Fault> {
        let profile = match slug.filter(|slug| !slug.is_empty()) {
            Some(slug) => app.store.profile(scope, slug).await?.filter(|profile| profile.active),
            None => None,
        };
        Self::with(app, scope, profile).await
    }

    /// The assistant of a profile.
    pub async fn with(app: &Application, scope: &Scope, profile: Option<AgentProfile>) -> Result<Self, Fault> {
        let own = match app.store.agent_config(scope).await? {
            Some(config) => (app.read_configs)
                .read(scope.tenant_id(), config)?
                .with_opened_key(&*app.seal, &scope.seal_context())
                .ok_or_else(|| Fault::internal("a tenant's key cannot be opened"))?,
            None => AgentSettings::default(),
        };
        let resolved = resolve(&AgentSettings::defaults(), &app.assistant.settings, &own, profile.as_ref());
        let resolved = with_default_model(&*app.catalog, resolved).await;
        Ok(Self { profile, resolved })
    }

    /// The system prompt. RNCC-23 to RNCC-25
    pub fn prompt(&self, course: Option<&Course>) -> Prompt {
        let profile = self.profile.as_ref().map(|profile| profile.prompt.as_str());
        prompt::compose(&self.resolved.system_prompt.value, profile, course)
    }

    /// The system prompt without a course, and without its hash.
    pub fn prompt_text(&self) -> String {
        let profile = self.profile.as_ref().map(|profile| profile.prompt.as_str());
        prompt::configured_text(&self.resolved.system_prompt.value, profile)
    }

    /// The models that may answer. The tenant's own key is sent only to the upstream that it belongs to.
    pub async fn route(&self, app: &Application, scope: &Scope) -> Result<Route, RouteError> {
        let resolved = &self.resolved;
        let own_key = resolved.api_key.value.as_ref().filter(|_| resolved.api_key.origin == Origin::Config);
        let terms = ModelSelection {
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
            Some(variable) => Err(RouteError::MissingKey(variable.to_owned())),
            None => Ok(route),
        }
    }
}

impl Agent {
    /// Sets the parameters that the request leaves open from the assistant's settings.
    pub fn apply_terms(&self, parameters: &mut ResponseParameters) {
        let resolved = &self.resolved;
        parameters.temperature = parameters.temperature.or(resolved.temperature.value);
        parameters.top_p = parameters.top_p.or(resolved.top_p.value);
        parameters.max_output_tokens = parameters.max_output_tokens.or(resolved.max_output_tokens.value);
        parameters.truncation.get_or_insert_with(|| resolved.truncation.value.name().to_owned());
        parameters.parallel_tool_calls.get_or_insert(resolved.parallel_tool_calls.value);
    }

    /// The maximum number of tool rounds.
    pub fn max_rounds(&self) -> u32 {
        u32::try_from(self.resolved.max_tool_iterations.value).unwrap_or(u32::MAX)
    }

    /// The tool that the model has to call first, if the profile names one. R003-40
    pub fn first_tool(&self) -> Option<String> {
        self.profile.as_ref()?.tool_choice.clone()
    }

    /// An array of its tools by name; the tool bank defines them.
    pub fn tools(&self) -> Json {
        Json::array(|writer| self.write_tools(writer))
    }

    /// The elements of that array.
    pub fn write_tools(&self, writer: &mut Writer) {
        self.profile.iter().flat_map(|profile| &profile.tools).for_each(|name| write_named_tool(writer, name));
    }

    /// Writes the fields of a response's metadata that identify the profile and the prompt.
    pub fn write_metadata(&self, writer: &mut Writer, prompt: &Prompt) {
        if let Some(profile) = &self.profile {
            writer.key("agent").string(&profile.slug);
            writer.key("agent_version").string(&profile.version.to_string());
        }
        writer.key("prompt_version").string(&self.resolved.prompt_version.value);
        writer.key("prompt_hash").string(&prompt.hash);
    }
}

/// A tool of the tool bank, by its name.
pub fn write_named_tool(writer: &mut Writer, name: &str) {
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("name").string(name);
    });
}
