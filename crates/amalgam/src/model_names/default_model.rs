//! The default model of the assistant and execute APIs, whose requests name none.

use amalgam_core::{ModelSelection, SecretText, assistant::settings::DEFAULT_MODEL};
use futures_util::StreamExt as _;

use super::{ModelNames, USUAL};
use crate::config::{Choice as _, Config, Kind};

/// Where the default model comes from when neither profile nor tenant nor settings name one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DefaultModel {
    /// The first `[models.NAME]`.
    Configured { name: String, entries: Vec<Entry> },
    /// The first one that an upstream names or lists.
    OfUpstreams,
    /// No upstream is configured, and there is a key for OpenAI.
    BuiltIn,
    /// No upstream is configured, and there is no key for any other.
    Demo,
}

/// A `[models.NAME]`: its upstream, and what that calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    upstream: String,
    model: String,
}

impl DefaultModel {
    pub(super) fn of(config: &Config) -> Self {
        let entry =
            |model: &crate::config::Model| Entry { upstream: model.upstream.clone(), model: model.model.clone() };
        match config.models.first() {
            Some(first) => {
                Self::Configured { name: first.name.clone(), entries: config.models.iter().map(entry).collect() }
            }
            None if config.has_upstreams => Self::OfUpstreams,
            None if config.assistant.api_key.is_some() => Self::BuiltIn,
            None => Self::Demo,
        }
    }
}

/// The default model, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoorModel {
    /// Its name; empty where there is none.
    pub(crate) model: String,
    /// The upstream that is asked; none where no upstream has the model.
    pub(crate) upstream: Option<String>,
    /// A variable that the upstream's key should be in, and that is not set.
    pub(crate) missing_key: Option<String>,
    /// What has chosen it.
    pub(crate) chosen_by: &'static str,
}

impl std::fmt::Display for DoorModel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.upstream, self.model.as_str()) {
            (_, "") => write!(formatter, "no model: no upstream names or lists one"),
            (None, model) => write!(formatter, "model {model} ({}), which no upstream has", self.chosen_by),
            (Some(upstream), model) => write!(formatter, "model {model} of upstream {upstream} ({})", self.chosen_by),
        }
    }
}

impl ModelNames {
    /// The default of one upstream, or of the installation: see [`amalgam_core::Catalog::default_model`].
    pub(super) async fn default_on(&self, upstream: Option<&str>) -> Option<String> {
        let Some(upstream) = upstream else {
            return match &self.default {
                DefaultModel::Configured { name, .. } => Some(name.clone()),
                DefaultModel::OfUpstreams => Some(self.first_listed().await),
                DefaultModel::BuiltIn => None,
                DefaultModel::Demo => Some(Kind::Demo.name().to_owned()),
            };
        };
        if let DefaultModel::Configured { entries, .. } = &self.default
            && let Some(entry) = entries.iter().find(|entry| entry.upstream == upstream)
        {
            return Some(entry.model.clone());
        }
        // An OpenAI upstream that the configuration does not name is not asked for its models.
        self.wire(upstream)?;
        self.registry.listed(upstream).await.first().cloned()
    }

    /// The first model that an upstream names or lists; empty where none does.
    async fn first_listed(&self) -> String {
        let mut lists = self.lists();
        while let Some((_, models)) = lists.next().await {
            if let Some(model) = models.first() {
                return model.clone();
            }
        }
        String::new()
    }

    /// Whether a name that no upstream here has is asked of OpenAI: with a key, or where no other upstream is configured.
    pub(super) fn asks_usual(&self, own_key: Option<&SecretText>) -> bool {
        let has_key = || self.registry.get(USUAL).is_some_and(|model| model.missing_key().is_none());
        own_key.is_some() || has_key() || matches!(self.default, DefaultModel::BuiltIn | DefaultModel::Demo)
    }

    /// Which model the doors use whose callers name none. May ask upstreams what they have.
    pub(crate) async fn door_model(&self, config: &Config) -> DoorModel {
        let upstream = config.assistant.upstream.as_deref();
        let (model, chosen_by) = match &config.assistant.model {
            Some(model) if config.assistant_model.as_ref() == Some(model) => (model.clone(), "[assistant] model"),
            Some(model) => (model.clone(), "AI_AGENT_MODEL"),
            None => match self.default_on(upstream).await {
                Some(model) => (model, self.default_is(upstream)),
                None => (DEFAULT_MODEL.to_owned(), "built in"),
            },
        };
        let terms = ModelSelection { name: &model, upstream, key: None, patience: None };
        let route = if model.is_empty() { None } else { self.on_terms(terms).await.ok().flatten() };
        let first = route.as_ref().and_then(|route| route.candidates.first());
        DoorModel {
            upstream: first.map(|candidate| candidate.upstream.clone()),
            missing_key: first.and_then(|candidate| candidate.model.missing_key()).map(str::to_owned),
            model,
            chosen_by,
        }
    }

    fn default_is(&self, upstream: Option<&str>) -> &'static str {
        match (&self.default, upstream) {
            (_, Some(_)) => "the first of AI_AGENT_UPSTREAM",
            (DefaultModel::Configured { .. }, None) => "the first of [models]",
            (DefaultModel::OfUpstreams, None) => "the first that an upstream names or lists",
            (DefaultModel::BuiltIn | DefaultModel::Demo, None) => "no upstream is configured",
        }
    }
}
