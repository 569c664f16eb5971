//! The default model of the assistant and execute APIs, as the commands display it.

use std::fmt;

use amalgam_assistant::settings::DEFAULT_MODEL;
use amalgam_core::{Catalog as _, ModelSelection};
use amalgam_models::{DefaultModel, ModelNames};

use amalgam_configuration::Config;

/// The default model of requests without a model, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DisplayedModel {
    /// Its name; may be empty.
    pub(crate) model: String,
    /// The upstream; none if no upstream has the model.
    pub(crate) upstream: Option<String>,
    /// The unset variable that should hold the upstream's key.
    pub(crate) missing_key: Option<String>,
    /// The setting that determines it.
    chosen_by: &'static str,
}

impl DisplayedModel {
    /// The default model of a configuration. May request the upstreams' lists of models.
    pub(crate) async fn of(config: &Config, names: &ModelNames) -> Self {
        let upstream = config.assistant.upstream.as_deref();
        let (model, chosen_by) = match &config.assistant.model {
            Some(model) if config.assistant_model.as_ref() == Some(model) => (model.clone(), "[assistant] model"),
            Some(model) => (model.clone(), "AI_AGENT_MODEL"),
            None => match names.default_model(upstream).await {
                Some(model) => (model, source(names.default_source(), upstream)),
                None => (DEFAULT_MODEL.to_owned(), "built in"),
            },
        };
        let terms = ModelSelection { name: &model, upstream, key: None, patience: None };
        let route = if model.is_empty() { None } else { names.resolve_on_terms(terms).await.ok().flatten() };
        let first = route.as_ref().and_then(|route| route.candidates.first());
        Self {
            upstream: first.map(|candidate| candidate.upstream.clone()),
            missing_key: first.and_then(|candidate| candidate.model.missing_key()).map(str::to_owned),
            model,
            chosen_by,
        }
    }
}

impl fmt::Display for DisplayedModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.upstream, self.model.as_str()) {
            (_, "") => write!(formatter, "no model: no upstream names or lists one"),
            (None, model) => write!(formatter, "model {model} ({}), which no upstream has", self.chosen_by),
            (Some(upstream), model) => write!(formatter, "model {model} of upstream {upstream} ({})", self.chosen_by),
        }
    }
}

fn source(default: DefaultModel, upstream: Option<&str>) -> &'static str {
    match (default, upstream) {
        (_, Some(_)) => "the first of AI_AGENT_UPSTREAM",
        (DefaultModel::Configured, None) => "the first of [models]",
        (DefaultModel::OfUpstreams, None) => "the first that an upstream names or lists",
        (DefaultModel::BuiltIn | DefaultModel::Demo, None) => "no upstream is configured",
    }
}
