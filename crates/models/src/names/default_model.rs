//! The default model of the assistant and execute APIs, whose requests name none.

use amalgam_core::SecretText;
use futures_util::StreamExt as _;

use super::{DEMO, ModelNames, ModelNamesSettings, OPENAI, is_pattern};
use crate::settings::Key;

/// The source of the default model if neither profile nor tenant nor settings name one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultModel {
    /// The first configured model.
    Configured,
    /// The first one that an upstream names or lists.
    OfUpstreams,
    /// No upstream is configured, and there is a key for OpenAI.
    BuiltIn,
    /// No upstream is configured, and there is no key for any other.
    Demo,
}

impl DefaultModel {
    pub(super) fn of(settings: &ModelNamesSettings) -> Self {
        match settings.models.iter().all(|model| is_pattern(&model.name)) {
            false => Self::Configured,
            true if settings.has_upstreams => Self::OfUpstreams,
            true if matches!(settings.openai.key, Key::Given(_)) => Self::BuiltIn,
            true => Self::Demo,
        }
    }
}

impl ModelNames {
    /// The source of the default model of this installation.
    pub fn default_source(&self) -> DefaultModel {
        self.default
    }

    /// The default of one upstream, or of the installation: see [`amalgam_core::Catalog::default_model`].
    pub(super) async fn default_on(&self, upstream: Option<&str>) -> Option<String> {
        let Some(upstream) = upstream else {
            return match self.default {
                DefaultModel::Configured => {
                    let mut names = self.models.iter().map(|model| &model.name);
                    names.find(|name| !is_pattern(name)).cloned()
                }
                DefaultModel::OfUpstreams => Some(self.first_listed().await),
                DefaultModel::BuiltIn => None,
                DefaultModel::Demo => Some(DEMO.to_owned()),
            };
        };
        if let Some(configured) =
            self.models.iter().find(|model| model.upstream == upstream && !is_pattern(&model.model))
        {
            return Some(configured.model.clone());
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
    pub(super) fn asks_openai(&self, own_key: Option<&SecretText>) -> bool {
        let has_key = || self.registry.get(OPENAI).is_some_and(|model| model.missing_key().is_none());
        own_key.is_some() || has_key() || matches!(self.default, DefaultModel::BuiltIn | DefaultModel::Demo)
    }
}
