//! The upstreams of this process by name, and what each of them serves.

mod listing;

use std::sync::Arc;

use amalgam_core::{Fault, Model, Seal};

use crate::{
    anthropic::Anthropic,
    chat::Chat,
    demo::Demo,
    responses::Responses,
    settings::{UpstreamKind, UpstreamSettings},
};

use self::listing::Listing;

/// All upstreams, in the operator's order.
pub struct Registry(Vec<Upstream>);

struct Upstream {
    name: String,
    model: Arc<dyn Model>,
    listing: Listing,
}

impl Registry {
    /// Prepares every upstream; connects to none.
    pub fn build(upstreams: Vec<UpstreamSettings>, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        upstreams.into_iter().map(|settings| Upstream::build(settings, &seal)).collect::<Result<_, _>>().map(Self)
    }

    /// The upstream of this name.
    pub fn get(&self, upstream: &str) -> Option<Arc<dyn Model>> {
        self.find(upstream).map(|found| Arc::clone(&found.model))
    }

    /// The names of all upstreams.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|upstream| upstream.name.as_str())
    }

    /// The models that an upstream serves: as configured, else as it says itself, remembered for a while. An upstream
    /// that does not say serves none by name.
    pub async fn listed(&self, upstream: &str) -> Vec<String> {
        match self.find(upstream) {
            Some(found) => found.listing.read(&found.name, <[String]>::to_vec).await,
            None => Vec::new(),
        }
    }

    /// Whether an upstream serves a model of this name, by the same list.
    pub async fn serves(&self, upstream: &str, model: &str) -> bool {
        match self.find(upstream) {
            Some(found) => found.listing.read(&found.name, |names| names.iter().any(|name| name == model)).await,
            None => false,
        }
    }

    fn find(&self, name: &str) -> Option<&Upstream> {
        self.0.iter().find(|upstream| upstream.name == name)
    }
}

impl Upstream {
    fn build(settings: UpstreamSettings, seal: &Arc<dyn Seal>) -> Result<Self, Fault> {
        let name = settings.name.clone();
        let listing = Listing::new(&settings)?;
        let model: Arc<dyn Model> = match settings.kind {
            UpstreamKind::Responses { .. } => Arc::new(Responses::new(settings, Arc::clone(seal))?),
            UpstreamKind::Chat { .. } => Arc::new(Chat::new(settings)?),
            UpstreamKind::Anthropic { .. } => Arc::new(Anthropic::new(settings, Arc::clone(seal))?),
            UpstreamKind::Demo { .. } => Arc::new(Demo::new(settings)?),
        };
        Ok(Self { name, model, listing })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
