//! The terms of a turn and of each of its model calls, before it runs: prices, limits, and reservations.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Candidate, Fault, FaultKind, LimitDemand, PreparedRequest, Scope, TurnOrigin};

use tokio::time::Instant;

use crate::{
    admission::Slot,
    call_record::CallRecord,
    context_window::run_blocking,
    engine::Engine,
    limiter::{CallTerms, Hold, LimitedTurn, Limiter},
    model_call::ModelCall,
    start::TurnStart,
};

/// The shortest time that a turn of the background queue waits until another one of its limit has ended.
const LEAST_BACKGROUND_WAIT: Duration = Duration::from_secs(1);

impl Engine {
    /// Applies the limits of tenants, keys, users and models.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.running.limiter
    }

    /// Admits a turn by its limits and by the slots of this process. A turn that waits for its own limit holds no slot,
    /// unless it comes from the background queue, which takes only as many turns as there are slots.
    pub(crate) async fn enter(
        &self,
        start: &TurnStart<'_>,
    ) -> Result<(Option<(LimitedTurn, Option<Hold>)>, Slot), Fault> {
        let tenant_id = start.call.scope.tenant_id();
        let queue_wait = match start.resumes_after {
            None => self.admission.queue_wait(),
            // A turn that goes back to the queue at once would be taken again at once.
            Some(_) => self.admission.queue_wait().max(LEAST_BACKGROUND_WAIT),
        };
        // One wait for both.
        let started = Instant::now();
        let left = || queue_wait.saturating_sub(started.elapsed());
        match start.resumes_after {
            None => {
                let admitted = self.admit(start, queue_wait).await?;
                Ok((admitted, self.admission.enter(tenant_id, left()).await?))
            }
            Some(_) => {
                let slot = self.admission.enter(tenant_id, queue_wait).await?;
                Ok((self.admit(start, left()).await?, slot))
            }
        }
    }

    /// Asks the limits for a turn that is about to run. A turn of the background queue was counted as a request before.
    async fn admit(
        &self,
        start: &TurnStart<'_>,
        queue_wait: Duration,
    ) -> Result<Option<(LimitedTurn, Option<Hold>)>, Fault> {
        let known = self.limiter().known();
        if known.is_empty() {
            return Ok(None);
        }
        let turn = LimitedTurn::new(start.call.scope, &start.origin);
        let subjects = known.of_turn(&turn, start.call.candidates.first());
        let from_background = start.resumes_after.is_some();
        let demand = LimitDemand { request: !from_background, turn: true, ..LimitDemand::default() };
        match self.limiter().admit(&turn, subjects, demand, queue_wait).await {
            Ok(hold) => Ok(Some((turn, hold))),
            // The turn returns to the background queue.
            Err(fault) if from_background && fault.kind == FaultKind::RateLimited => {
                Err(Fault::new(FaultKind::Overloaded, fault.message.clone()).retry_after(fault.retry_after))
            }
            Err(fault) => Err(fault),
        }
    }

    /// Checks the limits for a request whose turn is put into the background queue.
    pub async fn admit_request(
        &self,
        scope: &Scope,
        origin: &TurnOrigin,
        candidates: &[Candidate],
    ) -> Result<(), Fault> {
        let known = self.limiter().known();
        if known.is_empty() {
            return Ok(());
        }
        let turn = LimitedTurn::new(scope, origin);
        let subjects = known.of_turn(&turn, candidates.first());
        let demand = LimitDemand { request: true, ..LimitDemand::default() };
        // Nothing is held: the request is only counted.
        self.limiter().admit(&turn, subjects, demand, Duration::ZERO).await.map(drop)
    }

    /// The candidates of a call that the caller's limits allow. The first one was checked when the turn was requested.
    pub(crate) fn permitted<'c>(&self, candidates: &'c [Candidate], call_record: &CallRecord) -> Vec<&'c Candidate> {
        let Some(turn) = call_record.limited() else { return candidates.iter().collect() };
        let known = self.limiter().known();
        let mut first = true;
        let is_permitted =
            |candidate: &&Candidate| std::mem::take(&mut first) || known.allows_fallback(&turn, candidate);
        candidates.iter().filter(is_permitted).collect()
    }

    /// Asks the limits of a model that is called instead of `first` to count the turn, once and without waiting.
    pub(crate) async fn admit_fallback(
        &self,
        first: &Candidate,
        fallback: &Candidate,
        call_record: &CallRecord,
    ) -> Result<(), Fault> {
        let Some(turn) = call_record.limited() else { return Ok(()) };
        let subjects = call_record.uncounted(self.limiter().known().of_fallback(&turn, first, fallback));
        if subjects.is_empty() {
            return Ok(());
        }
        let demand = LimitDemand { request: true, turn: true, ..LimitDemand::default() };
        let hold = self.limiter().admit(&turn, subjects.clone(), demand, Duration::ZERO).await?;
        call_record.set_counted(subjects, hold);
        Ok(())
    }

    /// Reserves the most that a model call is expected to use of the limits that apply to it: the counted prompt and the
    /// longest answer.
    pub(crate) async fn reserve_call(
        &self,
        call: &ModelCall<'_>,
        candidate: &Candidate,
        prepared: &PreparedRequest,
        call_record: &CallRecord,
    ) -> Result<CallTerms, Fault> {
        let known = self.limiter().known();
        // A price of the configuration takes precedence over an imported one.
        let price = candidate.price.or_else(|| known.price(&candidate.upstream, &candidate.name));
        let Some(turn) = call_record.limited() else { return Ok(CallTerms { price, hold: None }) };
        let subjects = known.of_call(&turn, candidate);
        if subjects.is_empty() {
            return Ok(CallTerms { price, hold: None });
        }
        let (model, counted) = (Arc::clone(&candidate.model), prepared.clone());
        let input = run_blocking(move || model.count(&counted).total()).await?;
        let output = call.request.max_output_tokens.unwrap_or(self.settings.reserve_output_tokens);
        let cost = price.map(|price| price.most(input, output));
        let demand = LimitDemand { call: true, tokens: input.saturating_add(output), cost, ..LimitDemand::default() };
        let hold = self.limiter().reserve_call(&turn, subjects, demand).await?;
        Ok(CallTerms { price, hold })
    }
}

impl LimitedTurn {
    fn new(scope: &Scope, origin: &TurnOrigin) -> Self {
        Self { scope: scope.clone(), key_id: origin.key_id.clone(), model: origin.model.clone() }
    }
}
