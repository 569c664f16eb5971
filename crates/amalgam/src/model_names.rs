//! Resolves model names: configured names, `UPSTREAM/model`, and models that an upstream lists.

mod default_model;

use std::{
    collections::HashMap,
    future::ready,
    sync::{Arc, PoisonError, RwLock},
};

use amalgam_core::{
    BoxFuture, Candidate, Catalog, Embedder, Fault, FaultKind, ModelCard, ModelSelection, Route, Scope,
};
use amalgam_models::UpstreamRegistry;
use futures_util::{StreamExt as _, stream::FuturesOrdered};

use crate::config::{self, Choice as _, Config, Kind};
use default_model::DefaultModel;

/// Resolves names: configured name, then `UPSTREAM/model`, then an upstream that lists it.
pub(crate) struct ModelNames {
    registry: Arc<UpstreamRegistry>,
    /// Upstreams in the order in which they are asked, with the wire that each speaks.
    upstreams: Vec<(String, &'static str)>,
    configured: HashMap<String, Route>,
    default: DefaultModel,
    /// Names with their upstream that were asked for lately: nothing about them changes.
    direct: RwLock<HashMap<String, Route>>,
    started_at: u64,
}

/// The upstream of assistants whose model no configured upstream serves. Only assistants know it by this name, unless the
/// configuration defines an upstream of the same name.
pub(crate) const USUAL: &str = "openai";

/// So many routes are remembered. Callers choose the names, so that there must be a bound.
const REMEMBERED: usize = 1000;

/// A fallback may have fallbacks of its own; the configuration refuses cycles, and this ends them anyway.
const FALLBACK_DEPTH: usize = 8;

impl ModelNames {
    /// Joins configured names to their upstreams.
    pub(crate) fn new(config: &Config, registry: Arc<UpstreamRegistry>, started_at: u64) -> Self {
        let upstreams =
            config.upstreams.iter().map(|upstream| (upstream.name.clone(), upstream.kind().name())).collect();
        let (configured, direct) = (HashMap::new(), RwLock::default());
        let mut names = Self { registry, upstreams, configured, default: DefaultModel::of(config), direct, started_at };
        names.configured = config
            .models
            .iter()
            .filter_map(|model| {
                let mut candidates = Vec::new();
                names.collect(config, &model.name, 0, &mut candidates);
                let card = Arc::new(names.configured_card(model));
                (!candidates.is_empty()).then(|| (model.name.clone(), Route { candidates: candidates.into(), card }))
            })
            .collect();
        names
    }

    /// The candidates behind a name that stands in the configuration: itself, then its fallbacks.
    fn collect(&self, config: &Config, name: &str, depth: usize, candidates: &mut Vec<Candidate>) {
        if depth > FALLBACK_DEPTH {
            return;
        }
        match config.models.iter().find(|model| model.name == name) {
            Some(model) => {
                candidates.extend(self.candidate(&model.upstream, &model.model, model.context_window.map(u64::from)));
                for fallback in &model.fallback {
                    self.collect(config, fallback, depth + 1, candidates);
                }
            }
            None => {
                let listed = config.upstreams.iter().find(|upstream| match upstream.remote() {
                    Some(remote) => remote.models.iter().any(|model| model == name),
                    None => name == Kind::Demo.name(),
                });
                let (upstream, model) = match (name.split_once('/'), listed) {
                    (Some((upstream, model)), _) if self.wire(upstream).is_some() => (upstream, model),
                    (_, Some(upstream)) => (upstream.name.as_str(), name),
                    // Which upstream lists it is known only after a request to each: take the first one without a list.
                    _ => match config.upstreams.iter().find(|one| one.remote().is_some_and(|r| r.models.is_empty())) {
                        Some(upstream) => (upstream.name.as_str(), name),
                        None => return,
                    },
                };
                candidates.extend(self.candidate(upstream, model, None));
            }
        }
    }

    fn candidate(&self, upstream: &str, model: &str, context_window: Option<u64>) -> Option<Candidate> {
        let handle = self.registry.get(upstream)?;
        Some(Candidate { upstream: upstream.to_owned(), model: handle, name: model.to_owned(), context_window })
    }

    fn wire(&self, upstream: &str) -> Option<&'static str> {
        self.upstreams.iter().find(|(name, _)| name == upstream).map(|(_, wire)| *wire)
    }

    fn configured_card(&self, model: &config::Model) -> ModelCard {
        ModelCard {
            id: model.name.clone(),
            owned_by: model.upstream.clone(),
            wire: self.wire(&model.upstream).unwrap_or_default().to_owned(),
            created: self.started_at,
            context_window: model.context_window.map(u64::from),
            max_output_tokens: model.max_output_tokens.map(u64::from),
            modalities: model.modalities.iter().map(|modality| modality.name().to_owned()).collect(),
            tools: model.tools,
            structured_output: model.structured_output,
            fallback: model.fallback.clone(),
        }
    }

    /// What is known of a model that the configuration does not describe: what its wire can do.
    fn listed_card(&self, id: &str, upstream: &str) -> ModelCard {
        ModelCard {
            id: id.to_owned(),
            owned_by: upstream.to_owned(),
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
        let configured = self.configured.get(name).cloned();
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

    /// What each upstream serves, in the order of the configuration. All are asked at the same time, so that the slowest
    /// one decides how long it takes.
    fn lists(&self) -> FuturesOrdered<impl Future<Output = (&str, Arc<[String]>)>> {
        let list = async |upstream| (upstream, self.registry.listed(upstream).await);
        self.upstreams.iter().map(|(upstream, _)| list(upstream.as_str())).collect()
    }
}

impl ModelNames {
    /// What answers to a name on terms of the tenant's own.
    async fn on_terms(&self, terms: ModelSelection<'_>) -> Result<Option<Route>, Fault> {
        let route = match terms.upstream {
            Some(upstream) => self.direct(terms.name, upstream, terms.name),
            None => match self.anywhere(terms.name).await {
                // A name that no upstream here has is asked of OpenAI, if there is a key for it.
                None if self.asks_usual(terms.key) => self.direct(terms.name, USUAL, terms.name),
                found => found,
            },
        };
        let Some(route) = route else { return Ok(None) };
        let key = terms.key.map(|key| key.0.as_str());
        let on_own_terms = |(place, candidate): (usize, &Candidate)| -> Result<Option<Candidate>, Fault> {
            // The credential is for the upstream that was meant, and none behind it sees it. S14
            let key = key.filter(|_| place == 0);
            let model = self.registry.get_on(&candidate.upstream, key, terms.patience)?;
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
        Box::pin(self.on_terms(terms))
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
    fn embed<'a>(&'a self, model: &'a str, texts: &'a [&'a str]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, Fault>> {
        Box::pin(async move {
            let route = self.anywhere(model).await;
            let Some(candidate) = route.as_ref().and_then(|route| route.candidates.first()) else {
                let message = format!("No upstream has the embedding model '{model}'.");
                return Err(Fault::new(FaultKind::NotFound, message).param("model").code("model_not_found"));
            };
            self.registry.embed(&candidate.upstream, &candidate.name, texts).await
        })
    }
}
