//! A circuit breaker: opens after repeated failures of an upstream, and probes it with one request before it closes.
//!
//! Only a failure of the upstream itself counts: no connection, a timeout, a broken answer, 5xx. A refusal shows that
//! it is alive; a rate limit says nothing about its health.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::ModelError;
use tokio::time::Instant;

/// The number of failures in a row that open the circuit.
const FAILURE_LIMIT: u32 = 10;
/// How long the circuit stays open at first; each failed probe doubles it.
const FIRST_OPEN_TIME: Duration = Duration::from_secs(1);
const MAX_OPEN_TIME: Duration = Duration::from_secs(30);

/// The circuit breaker of one upstream.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Circuit>);

#[derive(Debug, Default)]
struct Circuit {
    /// Failures in a row.
    failures: u32,
    open: Option<OpenState>,
}

#[derive(Debug)]
struct OpenState {
    until: Instant,
    length: Duration,
    /// Whether a probe is in progress.
    probing: bool,
}

/// The permission for one request. It reports the result; dropped without one, it allows another probe.
#[derive(Debug)]
pub(super) struct Permit {
    breaker: Arc<Breaker>,
    probe: bool,
}

impl Breaker {
    /// A permit, or how long the circuit stays open.
    pub(super) fn enter(breaker: &Arc<Self>) -> Result<Permit, Duration> {
        let mut probe = false;
        if let Some(rest) = &mut breaker.circuit().open {
            let left = rest.until.saturating_duration_since(Instant::now());
            if rest.probing || !left.is_zero() {
                return Err(left.max(FIRST_OPEN_TIME));
            }
            rest.probing = true;
            probe = true;
        }
        Ok(Permit { breaker: Arc::clone(breaker), probe })
    }

    /// Whether the circuit is open.
    pub(super) fn is_open(&self) -> bool {
        self.circuit().open.is_some()
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// An answer began, so the circuit closes. The count of failures is reset only by a complete answer, because an
    /// upstream that breaks off every answer must open the circuit too.
    pub(super) fn answer_began(&mut self) {
        self.probe = false;
        self.breaker.circuit().open = None;
    }

    /// The request has ended, with success or this error.
    pub(super) fn conclude(self, error: Option<&ModelError>) {
        match error.map(verdict) {
            None | Some(Verdict::Alive) => *self.breaker.circuit() = Circuit::default(),
            Some(Verdict::Unknown) => {}
            Some(Verdict::Failed) => self.failed(),
        }
    }

    fn failed(&self) {
        let mut circuit = self.breaker.circuit();
        circuit.failures = circuit.failures.saturating_add(1);
        if circuit.failures < FAILURE_LIMIT {
            return;
        }
        let length = match &circuit.open {
            Some(state) if self.probe => (state.length * 2).min(MAX_OPEN_TIME),
            // Requests that were in progress when the circuit opened do not prolong it.
            Some(_) => return,
            None => FIRST_OPEN_TIME,
        };
        circuit.open = Some(OpenState { until: Instant::now() + length, length, probing: false });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.probe
            && let Some(rest) = &mut self.breaker.circuit().open
        {
            rest.probing = false;
        }
    }
}

enum Verdict {
    Alive,
    Failed,
    /// The error says nothing about the upstream's health.
    Unknown,
}

fn verdict(error: &ModelError) -> Verdict {
    match error {
        ModelError::Refused { status: 408 | 429, .. } | ModelError::NoKey { .. } | ModelError::Resting(_) => {
            Verdict::Unknown
        }
        ModelError::Refused { status: ..500, .. } => Verdict::Alive,
        ModelError::Refused { .. }
        | ModelError::Unreachable(_)
        | ModelError::Proxy(_)
        | ModelError::Silent(_)
        | ModelError::CutShort
        | ModelError::Unreadable(_)
        | ModelError::TooLarge(_) => Verdict::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Arc<Breaker>) {
        Breaker::enter(breaker).unwrap().conclude(Some(&ModelError::CutShort));
    }

    fn opened() -> Arc<Breaker> {
        let breaker = Arc::new(Breaker::default());
        (0..FAILURE_LIMIT).for_each(|_| fail(&breaker));
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_of_failures_opens_the_circuit_and_one_probe_closes_it() {
        // S9
        let breaker = opened();
        assert_eq!(Breaker::enter(&breaker).unwrap_err(), FIRST_OPEN_TIME);

        tokio::time::advance(FIRST_OPEN_TIME).await;
        let mut probe = Breaker::enter(&breaker).unwrap();
        assert!(Breaker::enter(&breaker).is_err(), "one probe at a time");

        probe.answer_began();
        assert!(Breaker::enter(&breaker).is_ok(), "an answer that began ends the rest");
        probe.conclude(None);
        fail(&breaker);
        assert!(Breaker::enter(&breaker).is_ok(), "a whole answer ended the run");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_doubles_the_rest() {
        let breaker = opened();
        tokio::time::advance(FIRST_OPEN_TIME).await;
        fail(&breaker);
        assert_eq!(Breaker::enter(&breaker).unwrap_err(), FIRST_OPEN_TIME * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_frees_its_place() {
        let breaker = opened();
        tokio::time::advance(FIRST_OPEN_TIME).await;
        drop(Breaker::enter(&breaker).unwrap());
        assert!(Breaker::enter(&breaker).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_begin_well_and_break_off_open_the_circuit() {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..FAILURE_LIMIT {
            let mut permit = Breaker::enter(&breaker).unwrap();
            permit.answer_began();
            permit.conclude(Some(&ModelError::Silent(FIRST_OPEN_TIME)));
        }
        assert!(Breaker::enter(&breaker).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_and_rate_limits_do_not_open_the_circuit() {
        let breaker = Arc::new(Breaker::default());
        for status in [400, 401, 404, 429].repeat(10) {
            let refused = ModelError::Refused {
                status,
                retry_after: None,
                message: None,
                code: None,
                param: None,
                body: String::new(),
            };
            Breaker::enter(&breaker).unwrap().conclude(Some(&refused));
        }
        assert!(Breaker::enter(&breaker).is_ok());
    }
}
