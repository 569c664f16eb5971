//! The port that resolves model names to upstream models.

use std::{fmt, sync::Arc, time::Duration};

use crate::{Price, fault::Fault, model::Model, ports::BoxFuture, scope::Scope, tool::SecretText};

/// Resolves model names. Implemented by the binary, over configuration and upstreams.
pub trait Catalog: Send + Sync {
    /// The models that `name` resolves to for this caller; none if the name is unknown.
    fn resolve<'a>(&'a self, scope: &'a Scope, name: &'a str) -> BoxFuture<'a, Result<Option<Route>, Fault>>;

    /// The models that a name resolves to with the tenant's own upstream, key or timeout; none if the name is unknown.
    fn resolve_on<'a>(
        &'a self,
        scope: &'a Scope,
        terms: ModelSelection<'a>,
    ) -> BoxFuture<'a, Result<Option<Route>, Fault>>;

    /// The default model of assistants, for this upstream or for the whole installation. None if the built-in default
    /// applies; an empty name if upstreams are configured but none of them names a model.
    fn default_model<'a>(&'a self, _upstream: Option<&'a str>) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// All models that this caller may use.
    fn list<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Vec<ModelCard>>;

    /// Asks the upstream of this name for its models now, past all caches. None if there is no such upstream.
    fn check<'a>(&'a self, _upstream: &'a str) -> BoxFuture<'a, Option<UpstreamCheck>> {
        Box::pin(std::future::ready(None))
    }

    /// The upstreams by name, and whether each is not called for now because it failed repeatedly.
    fn resting(&self) -> Vec<(String, bool)> {
        Vec::new()
    }
}

/// The result of a live check of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCheck {
    /// Why turns would probably fail; none if the upstream answered and accepted the key.
    pub problem: Option<String>,
    /// How many models it lists; none if it lists none.
    pub models: Option<usize>,
}

/// A model with the tenant's own choice of upstream, key and timeout.
#[derive(Debug, Clone, Copy)]
pub struct ModelSelection<'a> {
    /// The model.
    pub name: &'a str,
    /// The operator's name of the upstream; none for any upstream that serves the model.
    pub upstream: Option<&'a str>,
    /// The credential that replaces the operator's.
    pub key: Option<&'a SecretText>,
    /// The idle timeout.
    pub patience: Option<Duration>,
}

/// The models that a name resolves to: the first candidate, and its fallbacks in order.
#[derive(Clone)]
pub struct Route {
    /// Never empty.
    pub candidates: Arc<[Candidate]>,
    /// The description of the first candidate.
    pub card: Arc<ModelCard>,
}

/// One model that may answer.
#[derive(Clone)]
pub struct Candidate {
    /// The operator's name of its upstream.
    pub upstream: String,
    /// The upstream's adapter.
    pub model: Arc<dyn Model>,
    /// The upstream's name of the model.
    pub name: String,
    /// The configured name that led to it, if one did.
    pub alias: Option<String>,
    /// Its context window in tokens, if the operator has configured one.
    pub context_window: Option<u64>,
    /// What its tokens cost, if the operator has configured it.
    pub price: Option<Price>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.upstream, self.name)
    }
}

/// The public description of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelCard {
    /// The name that callers use.
    pub id: String,
    /// The upstream's name.
    pub owned_by: String,
    /// The name that the upstream knows; not shown to callers.
    pub upstream_model: String,
    /// The API of its upstream: `responses`, `chat`, `anthropic`, `demo`.
    pub wire: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The context window in tokens, if the operator has configured one.
    pub context_window: Option<u64>,
    /// The maximum number of output tokens, if the operator has configured it.
    pub max_output_tokens: Option<u64>,
    /// `text`, `image`, …
    pub modalities: Vec<String>,
    /// Whether it can call tools.
    pub tools: bool,
    /// Whether it can follow a JSON schema.
    pub structured_output: bool,
    /// The models that are tried when this one fails.
    pub fallback: Vec<String>,
}
