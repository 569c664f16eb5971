//! The configured upstreams by name, and the models that each of them serves.

pub(crate) mod listing;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use amalgam_core::{EmbeddingResult, Fault, Model, Seal, UpstreamCheck};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use crate::{
    anthropic::Anthropic,
    chat::Chat,
    demo::Demo,
    embeddings::Embeddings,
    responses::Responses,
    settings::{Key, UpstreamKind, UpstreamSettings},
};

use self::listing::Listing;

/// All upstreams, in the order of the configuration.
pub(crate) struct UpstreamRegistry {
    upstreams: Vec<Upstream>,
    seal: Arc<dyn Seal>,
    /// Variants of upstreams with a tenant's credential or timeout.
    variants: Mutex<HashMap<VariantKey, Arc<dyn Model>>>,
}

struct Upstream {
    name: String,
    settings: UpstreamSettings,
    model: Arc<dyn Model>,
    listing: Listing,
    embeddings: Embeddings,
}

/// The maximum number of variants, each with its own connections and breaker.
const MAX_VARIANTS: usize = 256;

/// Identifies a variant: the upstream's name, a hash of the credential, the timeout.
type VariantKey = (String, Option<[u8; 32]>, Option<Duration>);

impl UpstreamRegistry {
    /// Builds every upstream; connects to none.
    pub(crate) fn build(upstreams: Vec<UpstreamSettings>, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let upstreams =
            upstreams.into_iter().map(|settings| Upstream::build(settings, &seal)).collect::<Result<_, _>>()?;
        Ok(Self { upstreams, seal, variants: Mutex::default() })
    }

    /// The upstream of this name with a tenant's credential or timeout. S9: a variant has its own breaker, so that one
    /// tenant's bad key does not open the breaker for other tenants.
    pub(crate) fn get_for_tenant(
        &self,
        upstream: &str,
        key: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Option<Arc<dyn Model>>, Fault> {
        let Some(found) = self.find(upstream) else { return Ok(None) };
        if key.is_none() && timeout.is_none() {
            return Ok(Some(Arc::clone(&found.model)));
        }
        let variant = (upstream.to_owned(), key.map(|key| Sha256::digest(key.as_bytes()).into()), timeout);
        let mut variants = self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = variants.get(&variant) {
            return Ok(Some(Arc::clone(known)));
        }
        let mut settings = found.settings.clone();
        if let Some(key) = key {
            settings.key = Key::Given(SecretString::from(key));
        }
        if let Some(timeout) = timeout {
            settings.first_byte_timeout = timeout;
            settings.total_timeout = Some(timeout);
            settings.idle_timeout = timeout;
        }
        let model = Upstream::model(settings, &self.seal)?;
        if variants.len() >= MAX_VARIANTS {
            variants.clear();
        }
        variants.insert(variant, Arc::clone(&model));
        Ok(Some(model))
    }

    /// The upstream of this name.
    pub(crate) fn get(&self, upstream: &str) -> Option<Arc<dyn Model>> {
        self.find(upstream).map(|found| Arc::clone(&found.model))
    }

    /// Every upstream with whether its circuit breaker is open. Breakers of tenants' own credentials are not included.
    pub(crate) fn resting(&self) -> Vec<(String, bool)> {
        self.upstreams.iter().map(|upstream| (upstream.name.clone(), upstream.model.is_resting())).collect()
    }

    /// The models that an upstream serves: as configured, or as it lists them, cached for a while. An upstream that
    /// lists none serves none by name. Takes at most five seconds.
    pub(crate) async fn listed(&self, upstream: &str) -> Arc<[String]> {
        match self.find(upstream) {
            Some(found) => found.listing.names().await,
            None => Arc::default(),
        }
    }

    /// Asks an upstream for its models now, past the cache; none if there is no such upstream.
    pub(crate) async fn check(&self, upstream: &str) -> Option<UpstreamCheck> {
        let found = self.find(upstream)?;
        Some(listing::check(&found.settings).await)
    }

    /// Embeds texts with an upstream's model: one vector for each text, in order, and the tokens.
    pub(crate) async fn embed(&self, upstream: &str, model: &str, texts: &[&str]) -> Result<EmbeddingResult, Fault> {
        match self.find(upstream) {
            Some(found) => found.embeddings.of(model, texts).await,
            None => Err(Fault::internal(format_args!("there is no upstream `{upstream}`"))),
        }
    }

    /// The embeddings of an upstream.
    pub(crate) fn embeddings(&self, upstream: &str) -> Option<&Embeddings> {
        self.find(upstream).map(|found| &found.embeddings)
    }

    fn find(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}

impl Upstream {
    fn build(settings: UpstreamSettings, seal: &Arc<dyn Seal>) -> Result<Self, Fault> {
        let listing = Listing::new(&settings)?;
        let model = Self::model(settings.clone(), seal)?;
        let embeddings = Embeddings::new(settings.clone());
        Ok(Self { name: settings.name.clone(), settings, model, listing, embeddings })
    }

    fn model(settings: UpstreamSettings, seal: &Arc<dyn Seal>) -> Result<Arc<dyn Model>, Fault> {
        Ok(match settings.kind {
            UpstreamKind::Responses { .. } => Arc::new(Responses::new(settings, Arc::clone(seal))?),
            UpstreamKind::Chat { .. } => Arc::new(Chat::new(settings, Arc::clone(seal))?),
            UpstreamKind::Anthropic { .. } => Arc::new(Anthropic::new(settings, Arc::clone(seal))?),
            UpstreamKind::Demo { .. } => Arc::new(Demo::new(settings, Arc::clone(seal))?),
        })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
