//! Resolves model names: configured names and patterns, `UPSTREAM/model`, and models that an upstream lists.

mod default_model;
mod patterns;

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, PoisonError, RwLock},
};

use amalgam_core::{
    BoxFuture, CallSummary, Candidate, Catalog, EmbeddedTexts, Embedder, EmbeddingRequest, EmbeddingResult,
    EmbeddingUpstreams, Fault, FaultKind, ModelCard, ModelError, ModelSelection, Price, Route, Scope, Seal,
    UpstreamCheck,
};
use amalgam_protocol::Usage;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesOrdered};

use crate::{
    embeddings::{self, Embeddings},
    registry::UpstreamRegistry,
    settings::{UpstreamKind, UpstreamSettings},
};

pub use default_model::DefaultModel;
use patterns::{NamePatterns, is_pattern};

/// The upstream of assistants whose model no configured upstream serves. Only assistants use this name, unless the
/// configuration defines an upstream with the same name.
pub(crate) const OPENAI: &str = "openai";

/// The name of the built-in demo model.
const DEMO: &str = "demo";

/// The maximum number of cached routes. Bounded, because callers choose the names.
const REMEMBERED: usize = 1000;

/// A fallback may have fallbacks of its own; the configuration refuses cycles, and this ends them anyway.
const FALLBACK_DEPTH: usize = 8;

/// A configured name that clients may request.
#[derive(Debug, Clone)]
pub struct ConfiguredModel {
    /// The name in requests; `*` stands for any text.
    pub name: String,
    /// A configured upstream.
    pub upstream: String,
    /// The model's name at the upstream.
    pub model: String,
    /// Names that are used in order when the upstream fails.
    pub fallback: Vec<String>,
    /// The maximum number of input and output tokens.
    pub context_window: Option<u64>,
    /// The maximum number of output tokens.
    pub max_output_tokens: Option<u64>,
    /// The price of its tokens.
    pub price: Option<Price>,
    /// The kinds of input: `text`, `image` and others.
    pub modalities: Vec<&'static str>,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether it supports structured output.
    pub structured_output: bool,
}

/// The settings of [`ModelNames`].
pub struct ModelNamesSettings {
    /// In the order in which their lists of models are searched.
    pub upstreams: Vec<UpstreamSettings>,
    /// Whether upstreams are configured; otherwise the built-in demo is used.
    pub has_upstreams: bool,
    /// In the order of the configuration.
    pub models: Vec<ConfiguredModel>,
    /// OpenAI, for assistants whose model no other upstream serves. A configured upstream of the same name replaces it.
    pub openai: UpstreamSettings,
    /// When the process started, in seconds.
    pub started_at: u64,
}

/// Resolves names: a configured name, then a configured pattern, then `UPSTREAM/model`, then an upstream that lists the model.
pub struct ModelNames {
    registry: UpstreamRegistry,
    /// Upstreams in search order, with the name of their API.
    upstreams: Vec<(String, &'static str)>,
    models: Vec<ConfiguredModel>,
    configured: HashMap<String, Route>,
    patterns: NamePatterns,
    default: DefaultModel,
    /// Recently requested names with an upstream, whose routes never change.
    direct: RwLock<HashMap<String, Route>>,
    started_at: u64,
}

impl ModelNames {
    /// Prepares every upstream and joins configured names to them; connects to none.
    pub fn new(settings: ModelNamesSettings, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let default = DefaultModel::of(&settings);
        let ModelNamesSettings { upstreams: configured, models, openai, started_at, .. } = settings;
        let upstreams = configured.iter().map(|upstream| (upstream.name.clone(), upstream.kind.name())).collect();
        let replaced = configured.iter().any(|upstream| upstream.name == openai.name);
        let all = configured.iter().cloned().chain((!replaced).then_some(openai)).collect();
        let mut names = Self {
            registry: UpstreamRegistry::build(all, seal)?,
            upstreams,
            models,
            configured: HashMap::new(),
            patterns: NamePatterns::default(),
            default,
            direct: RwLock::default(),
            started_at,
        };
        let routes = names.models.iter().filter_map(|model| {
            let mut candidates = Vec::new();
            names.collect(&configured, &model.name, 0, &mut candidates);
            let card = Arc::new(names.configured_card(model));
            (!candidates.is_empty()).then(|| (model.name.clone(), Route { candidates: candidates.into(), card }))
        });
        let (patterns, configured) = routes.partition::<Vec<_>, _>(|(name, _)| is_pattern(name));
        names.configured = configured.into_iter().collect();
        names.patterns = NamePatterns::new(patterns);
        Ok(names)
    }

    /// The candidates of a configured name: its own model, then its fallbacks.
    fn collect(&self, upstreams: &[UpstreamSettings], name: &str, depth: usize, candidates: &mut Vec<Candidate>) {
        if depth > FALLBACK_DEPTH {
            return;
        }
        if let Some(model) = self.models.iter().find(|model| model.name == name) {
            let own = self.candidate(&model.upstream, &model.model, model.context_window);
            candidates.extend(own.map(|own| Candidate { alias: Some(model.name.clone()), ..own }));
            for fallback in &model.fallback {
                self.collect(upstreams, fallback, depth + 1, candidates);
            }
            return;
        }
        let is_demo = |upstream: &UpstreamSettings| matches!(upstream.kind, UpstreamKind::Demo { .. });
        let listed = upstreams.iter().find(|upstream| match is_demo(upstream) {
            true => name == DEMO,
            false => upstream.models.iter().any(|model| model == name),
        });
        let (upstream, model) = match (name.split_once('/'), listed) {
            (Some((upstream, model)), _) if self.wire(upstream).is_some() => (upstream, model),
            (_, Some(upstream)) => (upstream.name.as_str(), name),
            // Which upstream lists it is known only after a request to each, so the first one without a list is used.
            _ => match upstreams.iter().find(|upstream| !is_demo(upstream) && upstream.models.is_empty()) {
                Some(upstream) => (upstream.name.as_str(), name),
                None => return,
            },
        };
        candidates.extend(self.candidate(upstream, model, None));
    }

    fn candidate(&self, upstream: &str, model: &str, context_window: Option<u64>) -> Option<Candidate> {
        let handle = self.registry.get(upstream)?;
        let configured = self.models.iter().find(|known| known.upstream == upstream && known.model == model);
        let price = configured.and_then(|known| known.price);
        let (upstream, name) = (upstream.to_owned(), model.to_owned());
        Some(Candidate { upstream, model: handle, name, alias: None, context_window, price })
    }

    fn wire(&self, upstream: &str) -> Option<&'static str> {
        self.upstreams.iter().find(|(name, _)| name == upstream).map(|(_, wire)| *wire)
    }

    fn configured_card(&self, model: &ConfiguredModel) -> ModelCard {
        ModelCard {
            id: model.name.clone(),
            owned_by: model.upstream.clone(),
            upstream_model: model.model.clone(),
            wire: self.wire(&model.upstream).unwrap_or_default().to_owned(),
            created: self.started_at,
            context_window: model.context_window,
            max_output_tokens: model.max_output_tokens,
            modalities: model.modalities.iter().map(|modality| (*modality).to_owned()).collect(),
            tools: model.tools,
            structured_output: model.structured_output,
            fallback: model.fallback.clone(),
        }
    }

    /// The card of a model that the configuration does not describe: what its API supports.
    fn listed_card(&self, id: &str, upstream: &str) -> ModelCard {
        ModelCard {
            id: id.to_owned(),
            owned_by: upstream.to_owned(),
            upstream_model: id.strip_prefix(&format!("{upstream}/")).unwrap_or(id).to_owned(),
            wire: self.wire(upstream).unwrap_or_default().to_owned(),
            created: self.started_at,
            modalities: vec!["text".to_owned(), "image".to_owned()],
            tools: true,
            structured_output: true,
            ..ModelCard::default()
        }
    }

    fn direct(&self, id: &str, upstream: &str, model: &str) -> Option<Route> {
        let candidate = self.candidate(upstream, model, None)?;
        Some(Route { candidates: Arc::new([candidate]), card: Arc::new(self.listed_card(id, upstream)) })
    }

    /// A route that needs no request to an upstream.
    fn known(&self, name: &str) -> Option<Route> {
        let configured = self.configured.get(name).cloned().or_else(|| self.patterns.route(name));
        configured.or_else(|| self.direct.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned())
    }

    /// A route, which may need requests to upstreams for their lists of models.
    async fn anywhere(&self, name: &str) -> Option<Route> {
        match self.known(name) {
            Some(route) => Some(route),
            None => self.find(name).await,
        }
    }

    /// A route that is not [`ModelNames::known`].
    async fn find(&self, name: &str) -> Option<Route> {
        if let Some((upstream, model)) = name.split_once('/')
            && !model.is_empty()
            && self.wire(upstream).is_some()
            && let Some(route) = self.direct(name, upstream, model)
        {
            let mut remembered = self.direct.write().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() >= REMEMBERED {
                remembered.clear();
            }
            remembered.insert(name.to_owned(), route.clone());
            return Some(route);
        }
        let mut lists = self.lists();
        while let Some((upstream, models)) = lists.next().await {
            if models.iter().any(|model| model == name) {
                return self.direct(name, upstream, name);
            }
        }
        None
    }

    /// The lists of all upstreams, in the order of the configuration. They are requested concurrently.
    fn lists(&self) -> FuturesOrdered<impl Future<Output = (&str, Arc<[String]>)>> {
        let list = async |upstream| (upstream, self.registry.listed(upstream).await);
        self.upstreams.iter().map(|(upstream, _)| list(upstream.as_str())).collect()
    }

    /// The route of a name with a tenant's key and timeout. May request the upstreams' lists of models.
    pub async fn resolve_on_terms(&self, terms: ModelSelection<'_>) -> Result<Option<Route>, Fault> {
        let route = match terms.upstream {
            Some(upstream) => self.direct(terms.name, upstream, terms.name),
            None => match self.anywhere(terms.name).await {
                // A name that no configured upstream serves is resolved to OpenAI, if there is a key for it.
                None if self.asks_openai(terms.key) => self.direct(terms.name, OPENAI, terms.name),
                found => found,
            },
        };
        let Some(route) = route else { return Ok(None) };
        let key = terms.key.map(|key| key.0.as_str());
        let on_own_terms = |(place, candidate): (usize, &Candidate)| -> Result<Option<Candidate>, Fault> {
            // The credential belongs to the first candidate; fallbacks must not receive it. S14
            let key = key.filter(|_| place == 0);
            let model = self.registry.get_for_tenant(&candidate.upstream, key, terms.patience)?;
            Ok(model.map(|model| Candidate { model, ..candidate.clone() }))
        };
        let candidates: Vec<Candidate> = route
            .candidates
            .iter()
            .enumerate()
            .filter_map(|one| on_own_terms(one).transpose())
            .collect::<Result<_, _>>()?;
        Ok((!candidates.is_empty()).then(|| Route { candidates: candidates.into(), card: route.card }))
    }
}

impl Catalog for ModelNames {
    fn resting(&self) -> Vec<(String, bool)> {
        self.registry.resting()
    }

    fn check<'a>(&'a self, upstream: &'a str) -> BoxFuture<'a, Option<UpstreamCheck>> {
        Box::pin(self.registry.check(upstream))
    }

    fn resolve<'a>(&'a self, _scope: &'a Scope, name: &'a str) -> BoxFuture<'a, Result<Option<Route>, Fault>> {
        match self.known(name) {
            Some(route) => Box::pin(ready(Ok(Some(route)))),
            None => Box::pin(async move { Ok(self.find(name).await) }),
        }
    }

    fn resolve_on<'a>(
        &'a self,
        _scope: &'a Scope,
        terms: ModelSelection<'a>,
    ) -> BoxFuture<'a, Result<Option<Route>, Fault>> {
        Box::pin(self.resolve_on_terms(terms))
    }

    fn default_model<'a>(&'a self, upstream: Option<&'a str>) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.default_on(upstream))
    }

    fn list<'a>(&'a self, _scope: &'a Scope) -> BoxFuture<'a, Vec<ModelCard>> {
        Box::pin(async move {
            let mut cards: Vec<ModelCard> = self.configured.values().map(|route| (*route.card).clone()).collect();
            cards.sort_by(|one, other| one.id.cmp(&other.id));
            let mut lists = self.lists();
            while let Some((upstream, models)) = lists.next().await {
                for name in models.iter() {
                    if !cards.iter().any(|card| card.id == *name) {
                        cards.push(self.listed_card(name, upstream));
                    }
                }
            }
            cards
        })
    }
}

/// Only the first candidate of a name is used: embeddings of another model are not comparable.
impl Embedder for ModelNames {
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<EmbeddedTexts, Fault>> {
        Box::pin(async move {
            let route = self.anywhere(model).await;
            let Some(candidate) = route.as_ref().and_then(|route| route.candidates.first()) else {
                let message = format!("No upstream has the embedding model '{model}'.");
                return Err(Fault::new(FaultKind::NotFound, message).param("model").code("model_not_found"));
            };
            let EmbeddingResult { vectors, tokens } =
                self.registry.embed(&candidate.upstream, &candidate.name, texts).await?;
            let usage = tokens.map(|input_tokens| Usage { input_tokens, ..Usage::default() });
            let call = CallSummary {
                upstream: candidate.upstream.clone(),
                model: candidate.name.clone(),
                asked_at_ms: 0,
                first_token_ms: None,
                duration_ms: 0,
                retries: 0,
                usage,
                cost: usage.and_then(|usage| Some(candidate.price?.cost(&usage))),
                failed: false,
            };
            Ok(EmbeddedTexts { vectors, call: Some(call) })
        })
    }
}

impl EmbeddingUpstreams for ModelNames {
    fn has_embeddings(&self, upstream: &str) -> bool {
        self.registry.embeddings(upstream).is_some_and(Embeddings::exist)
    }

    fn embedding_body(&self, model: &str, request: &EmbeddingRequest) -> Bytes {
        embeddings::body(model, &request.inputs, request).into()
    }

    fn embed_on<'a>(
        &'a self,
        upstream: &'a str,
        model: &'a str,
        request: &'a EmbeddingRequest,
    ) -> BoxFuture<'a, Result<EmbeddingResult, ModelError>> {
        Box::pin(async move {
            match self.registry.embeddings(upstream) {
                Some(embeddings) => embeddings.embed(model, request).await,
                None => Err(ModelError::Unreachable(format!("there is no upstream `{upstream}`"))),
            }
        })
    }
}
