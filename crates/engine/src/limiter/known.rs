//! The limits and imported prices that exist, as this process last read them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use amalgam_core::{
    Candidate, Fault, FaultKind, LimitKind, LimitRules, LimitSubject, Operator, Price, Scope, StoreError,
};
use tokio::time::timeout;
use tracing::{debug, info};

use super::{LimitedTurn, Limiter};

/// Changes of other processes are seen at the latest after this time, if no notification comes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Rows that are read at once.
const PAGE: usize = 1_000;

/// The limits and imported prices that exist.
#[derive(Debug, Default)]
pub struct KnownLimits {
    version: u64,
    rules: HashMap<LimitSubject, LimitRules>,
    prices: HashMap<String, Price>,
    /// Whether any limit counts turns, calls, or names models or tools.
    counts_turns: bool,
    counts_calls: bool,
    names: bool,
}

/// The names that a candidate is known by: as the caller asked for it, as the configuration and as its upstream call it.
fn model_names(requested: &str, candidate: Option<&Candidate>) -> Vec<String> {
    [requested.to_owned()].into_iter().chain(candidate.into_iter().flat_map(own_names)).collect()
}

/// The names of a candidate itself, whatever the caller asked for.
fn own_names(candidate: &Candidate) -> Vec<String> {
    let full_name = format!("{}/{}", candidate.upstream, candidate.name);
    candidate.alias.iter().cloned().chain([full_name, candidate.name.clone()]).collect()
}

impl KnownLimits {
    fn new(version: u64, rules: HashMap<LimitSubject, LimitRules>, prices: HashMap<String, Price>) -> Self {
        let any = |is_so: fn(&LimitRules) -> bool| rules.values().any(is_so);
        Self {
            version,
            counts_turns: any(LimitRules::counts_turns),
            counts_calls: any(LimitRules::counts_calls),
            names: any(|rules| rules.models.is_some() || rules.tools.is_some()),
            rules,
            prices,
        }
    }

    /// The number of limits.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The limits of a caller and a model for which `is_needed` returns true.
    fn subjects(
        &self,
        turn: &LimitedTurn,
        candidate: Option<&Candidate>,
        is_needed: fn(&LimitRules) -> bool,
    ) -> Vec<LimitSubject> {
        let tenant_id = turn.scope.tenant_id();
        let of_caller = of_caller(&turn.scope, turn.key_id.as_deref(), tenant_id);
        let of_model = model_names(&turn.model, candidate).into_iter().map(LimitSubject::model);
        let is_limited = |subject: &LimitSubject| self.rules.get(subject).is_some_and(is_needed);
        let mut seen = HashSet::new();
        of_caller
            .into_iter()
            .chain(of_model)
            .filter(|subject| is_limited(subject) && seen.insert(subject.clone()))
            .collect()
    }

    /// The limits that count this turn.
    pub(crate) fn of_turn(&self, turn: &LimitedTurn, candidate: Option<&Candidate>) -> Vec<LimitSubject> {
        match self.counts_turns {
            true => self.subjects(turn, candidate, LimitRules::counts_turns),
            false => Vec::new(),
        }
    }

    /// The limits of a model that is called instead of `first`, which count this turn and did not count it as one of `first`.
    pub(crate) fn of_fallback(&self, turn: &LimitedTurn, first: &Candidate, fallback: &Candidate) -> Vec<LimitSubject> {
        let counted = self.of_turn(turn, Some(first));
        let mut subjects = self.of_turn(turn, Some(fallback));
        subjects.retain(|subject| subject.kind == LimitKind::Model && !counted.contains(subject));
        subjects
    }

    /// The limits that count this model call.
    pub(crate) fn of_call(&self, turn: &LimitedTurn, candidate: &Candidate) -> Vec<LimitSubject> {
        match self.counts_calls {
            true => self.subjects(turn, Some(candidate), LimitRules::counts_calls),
            false => Vec::new(),
        }
    }

    /// The imported price of a model: of `upstream/model`, or of its name alone.
    pub fn price(&self, upstream: &str, model: &str) -> Option<Price> {
        if self.prices.is_empty() {
            return None;
        }
        let model = model.to_lowercase();
        let qualified = format!("{}/{model}", upstream.to_lowercase());
        self.prices.get(&qualified).or_else(|| self.prices.get(&model)).copied()
    }

    /// Whether the caller's limits name a model that is called when another one fails, by one of its own names.
    pub(crate) fn allows_fallback(&self, turn: &LimitedTurn, fallback: &Candidate) -> bool {
        self.allows(&turn.scope, turn.key_id.as_deref(), |rules| rules.models.as_deref(), &own_names(fallback))
    }

    /// Whether any of the caller's limits names models.
    pub fn names_models(&self, scope: &Scope, key_id: Option<&str>) -> bool {
        !self.allows_model(scope, key_id, &[])
    }

    /// Whether the caller's limits name a model by one of these names.
    pub fn allows_model(&self, scope: &Scope, key_id: Option<&str>, names: &[String]) -> bool {
        self.allows(scope, key_id, |rules| rules.models.as_deref(), names)
    }

    /// Refuses a model that a limit of the caller does not name.
    pub fn check_model(
        &self,
        scope: &Scope,
        key_id: Option<&str>,
        requested: &str,
        candidate: Option<&Candidate>,
    ) -> Result<(), Fault> {
        match self.allows_model(scope, key_id, &model_names(requested, candidate)) {
            true => Ok(()),
            false => {
                let shown: String = requested.chars().take(200).collect();
                let message = format!("The model '{shown}' is not allowed for this caller.");
                Err(Fault::new(FaultKind::Forbidden, message).param("model").code("model_not_allowed"))
            }
        }
    }

    /// Whether a server-run tool may be used, by any of its names.
    pub fn allows_tool(&self, scope: &Scope, key_id: Option<&str>, names: &[String]) -> bool {
        self.allows(scope, key_id, |rules| rules.tools.as_deref(), names)
    }

    /// Whether any of the caller's limits names tools.
    pub fn names_tools(&self, scope: &Scope, key_id: Option<&str>) -> bool {
        !self.allows(scope, key_id, |rules| rules.tools.as_deref(), &[])
    }

    fn allows(
        &self,
        scope: &Scope,
        key_id: Option<&str>,
        list: fn(&LimitRules) -> Option<&[String]>,
        names: &[String],
    ) -> bool {
        if !self.names {
            return true;
        }
        let lists = of_caller(scope, key_id, scope.tenant_id()).into_iter();
        let mut lists = lists.filter_map(|subject| self.rules.get(&subject).and_then(list));
        lists.all(|allowed| names.iter().any(|name| allowed.contains(name)))
    }
}

fn of_caller(scope: &Scope, key_id: Option<&str>, tenant_id: i64) -> Vec<LimitSubject> {
    let key = key_id.map(|key_id| LimitSubject::key(tenant_id, key_id));
    [LimitSubject::tenant(tenant_id), LimitSubject::user(tenant_id, scope.user())].into_iter().chain(key).collect()
}

impl Limiter {
    /// Reads which limits and prices exist, if that has changed.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let operator = Operator::of_this_process();
        let version = self.store.limits_version(operator).await?;
        if version == self.known().version {
            return Ok(());
        }
        let mut rules = HashMap::new();
        let mut after = None;
        loop {
            let page = self.store.limits(operator, None, after.as_ref(), PAGE).await?;
            after = page.last().map(|record| record.subject.clone());
            let is_last = page.len() < PAGE;
            rules.extend(page.into_iter().map(|record| (record.subject, record.rules)));
            if is_last {
                break;
            }
        }
        let mut prices = HashMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.store.prices(operator, after.as_deref(), PAGE).await?;
            after = page.last().map(|record| record.model.clone());
            let is_last = page.len() < PAGE;
            prices.extend(page.into_iter().map(|record| (record.model, record.price)));
            if is_last {
                break;
            }
        }
        let known = KnownLimits::new(version, rules, prices);
        info!(limits = known.len(), prices = known.prices.len(), "limits and imported prices in force");
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(())
    }

    /// Refreshes as long as it is polled.
    pub(crate) async fn keep_current(&self) {
        loop {
            let changed = self.store.changed("limits");
            if let Err(error) = self.refresh().await {
                debug!("the limits could not be read: {error}");
            }
            let _ = timeout(REFRESH_INTERVAL, changed).await;
        }
    }
}
