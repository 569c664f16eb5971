//! The upstreams of this process by name, and what each of them serves.

pub(crate) mod listing;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use amalgam_core::{Fault, Model, Seal};
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

/// All upstreams, in the operator's order.
pub struct UpstreamRegistry {
    upstreams: Vec<Upstream>,
    seal: Arc<dyn Seal>,
    /// Upstreams on terms of a tenant's own.
    own: Mutex<HashMap<Terms, Arc<dyn Model>>>,
}

struct Upstream {
    name: String,
    settings: UpstreamSettings,
    model: Arc<dyn Model>,
    listing: Listing,
    embeddings: Embeddings,
}

/// So many terms are remembered, each with its connections and its breaker.
const REMEMBERED: usize = 256;

/// What makes an upstream another one: its name, the hash of the credential, the patience.
type Terms = (String, Option<[u8; 32]>, Option<Duration>);

impl UpstreamRegistry {
    /// Prepares every upstream; connects to none.
    pub fn build(upstreams: Vec<UpstreamSettings>, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let upstreams =
            upstreams.into_iter().map(|settings| Upstream::build(settings, &seal)).collect::<Result<_, _>>()?;
        Ok(Self { upstreams, seal, own: Mutex::default() })
    }

    /// The upstream of this name on terms of a tenant's own: with its credential, with its patience. S9: it has a breaker
    /// of its own, so that one tenant's bad key does not open the breaker for other tenants.
    pub fn get_on(
        &self,
        upstream: &str,
        key: Option<&str>,
        patience: Option<Duration>,
    ) -> Result<Option<Arc<dyn Model>>, Fault> {
        let Some(found) = self.find(upstream) else { return Ok(None) };
        if key.is_none() && patience.is_none() {
            return Ok(Some(Arc::clone(&found.model)));
        }
        let terms = (upstream.to_owned(), key.map(|key| Sha256::digest(key.as_bytes()).into()), patience);
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = own.get(&terms) {
            return Ok(Some(Arc::clone(known)));
        }
        let mut settings = found.settings.clone();
        if let Some(key) = key {
            settings.key = Key::Given(SecretString::from(key));
        }
        if let Some(patience) = patience {
            settings.first_byte_timeout = patience;
            settings.total_timeout = Some(patience);
            settings.idle_timeout = patience;
        }
        let model = Upstream::model(settings, &self.seal)?;
        if own.len() >= REMEMBERED {
            own.clear();
        }
        own.insert(terms, Arc::clone(&model));
        Ok(Some(model))
    }

    /// The upstream of this name.
    pub fn get(&self, upstream: &str) -> Option<Arc<dyn Model>> {
        self.find(upstream).map(|found| Arc::clone(&found.model))
    }

    /// The names of all upstreams.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.upstreams.iter().map(|upstream| upstream.name.as_str())
    }

    /// The models that an upstream serves: as configured, else as it says itself, remembered for a while. An upstream
    /// that does not say serves none by name. Takes five seconds at most.
    pub async fn listed(&self, upstream: &str) -> Arc<[String]> {
        match self.find(upstream) {
            Some(found) => found.listing.names().await,
            None => Arc::default(),
        }
    }

    /// The places of texts in the space of an upstream's model, one for each in their order.
    pub async fn embed(&self, upstream: &str, model: &str, texts: &[&str]) -> Result<Vec<Vec<f32>>, Fault> {
        match self.find(upstream) {
            Some(found) => found.embeddings.of(model, texts).await,
            None => Err(Fault::internal(format_args!("there is no upstream `{upstream}`"))),
        }
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
