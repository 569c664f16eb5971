//! Which names a caller may ask for, and what answers behind them.

use std::{fmt, sync::Arc, time::Duration};

use crate::{fault::Fault, model::Model, ports::BoxFuture, scope::Scope, tool::SecretText};

/// Resolves model names. Implemented by the binary, over configuration and upstreams.
pub trait Catalog: Send + Sync {
    /// What answers to `name` for this caller; nothing when nobody does.
    fn resolve<'a>(&'a self, scope: &'a Scope, name: &'a str) -> BoxFuture<'a, Result<Option<Route>, Fault>>;

    /// What answers to a name on terms of the tenant's own; nothing when nobody does.
    fn resolve_on<'a>(
        &'a self,
        scope: &'a Scope,
        terms: ModelSelection<'a>,
    ) -> BoxFuture<'a, Result<Option<Route>, Fault>>;

    /// The model that assistants ask when neither tenant nor profile names one: of this upstream, or of the whole installation. Nothing
    /// where the built-in one counts; an empty name where upstreams are configured and none of them names a model.
    fn default_model<'a>(&'a self, _upstream: Option<&'a str>) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// Everything that this caller may ask for.
    fn list<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Vec<ModelCard>>;
}

/// What a tenant has of its own when it asks for a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelSelection<'a> {
    /// The model.
    pub name: &'a str,
    /// The operator's name of the upstream that is to be asked; none for whoever has the model.
    pub upstream: Option<&'a str>,
    /// The credential that the upstream is shown instead of the operator's.
    pub key: Option<&'a SecretText>,
    /// The longest silence that is borne.
    pub patience: Option<Duration>,
}

/// What answers to a name: the first candidate, and the ones after it when that one cannot.
#[derive(Clone)]
pub struct Route {
    /// Never empty.
    pub candidates: Arc<[Candidate]>,
    /// What is known about the first.
    pub card: Arc<ModelCard>,
}

/// One model that may answer.
#[derive(Clone)]
pub struct Candidate {
    /// The operator's name of its upstream.
    pub upstream: String,
    /// What is asked.
    pub model: Arc<dyn Model>,
    /// The name that the upstream knows.
    pub name: String,
    /// Tokens that fit into it, where the operator has said so.
    pub context_window: Option<u64>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.upstream, self.name)
    }
}

/// What a caller may know about a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelCard {
    /// The name to ask for.
    pub id: String,
    /// Who has it: the upstream's name.
    pub owned_by: String,
    /// The wire behind it: `responses`, `chat`, `anthropic`, `demo`.
    pub wire: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Tokens that fit, where the operator has said so.
    pub context_window: Option<u64>,
    /// The most tokens of an answer, where the operator has said so.
    pub max_output_tokens: Option<u64>,
    /// `text`, `image`, …
    pub modalities: Vec<String>,
    /// Whether it can call tools.
    pub tools: bool,
    /// Whether it can follow a JSON schema.
    pub structured_output: bool,
    /// Names that answer when this one cannot.
    pub fallback: Vec<String>,
}
