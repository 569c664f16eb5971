//! A circuit breaker: opens after repeated failures of an upstream, and probes it with one request before it closes.
//!
//! Only a failure of the upstream itself counts: no connection, silence, a broken answer, 5xx. A refusal shows that it
//! is alive; a rate limit says nothing either way.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::ModelError;
use tokio::time::Instant;

/// So many failures in a row open the circuit.
const RUN: u32 = 10;
/// The first rest; each probe that fails doubles it.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// One upstream's circuit.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Circuit>);

#[derive(Debug, Default)]
struct Circuit {
    /// In a row.
    failures: u32,
    resting: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    until: Instant,
    length: Duration,
    /// A request is under way to see whether it is over.
    probing: bool,
}

/// Leave to ask the upstream once. Says how it went; dropped without a word, it frees the place of a probe.
#[derive(Debug)]
pub(super) struct Permit {
    breaker: Arc<Breaker>,
    probe: bool,
}

impl Breaker {
    /// Leave to ask, or how long the upstream still rests.
    pub(super) fn enter(breaker: &Arc<Self>) -> Result<Permit, Duration> {
        let mut probe = false;
        if let Some(rest) = &mut breaker.circuit().resting {
            let left = rest.until.saturating_duration_since(Instant::now());
            if rest.probing || !left.is_zero() {
                return Err(left.max(REST));
            }
            rest.probing = true;
            probe = true;
        }
        Ok(Permit { breaker: Arc::clone(breaker), probe })
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// An answer began: the rest is over. The run of failures ends only with a whole answer, since an upstream that
    /// begins well and breaks off every time must open the circuit too.
    pub(super) fn alive(&mut self) {
        self.probe = false;
        self.breaker.circuit().resting = None;
    }

    /// The request is over, well or with this error.
    pub(super) fn conclude(self, error: Option<&ModelError>) {
        match error.map(verdict) {
            None | Some(Verdict::Alive) => *self.breaker.circuit() = Circuit::default(),
            Some(Verdict::Silent) => {}
            Some(Verdict::Failed) => self.failed(),
        }
    }

    fn failed(&self) {
        let mut circuit = self.breaker.circuit();
        circuit.failures = circuit.failures.saturating_add(1);
        if circuit.failures < RUN {
            return;
        }
        let length = match &circuit.resting {
            Some(rest) if self.probe => (rest.length * 2).min(LONGEST_REST),
            // Requests that were under way when the circuit opened do not prolong the rest.
            Some(_) => return,
            None => REST,
        };
        circuit.resting = Some(Rest { until: Instant::now() + length, length, probing: false });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.probe
            && let Some(rest) = &mut self.breaker.circuit().resting
        {
            rest.probing = false;
        }
    }
}

enum Verdict {
    Alive,
    Failed,
    /// Says nothing about the upstream's health.
    Silent,
}

fn verdict(error: &ModelError) -> Verdict {
    match error {
        ModelError::Refused { status: 408 | 429, .. } | ModelError::NoKey { .. } | ModelError::Resting(_) => {
            Verdict::Silent
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
        (0..RUN).for_each(|_| fail(&breaker));
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_of_failures_opens_the_circuit_and_one_probe_closes_it() {
        // S9
        let breaker = opened();
        assert_eq!(Breaker::enter(&breaker).unwrap_err(), REST);

        tokio::time::advance(REST).await;
        let mut probe = Breaker::enter(&breaker).unwrap();
        assert!(Breaker::enter(&breaker).is_err(), "one probe at a time");

        probe.alive();
        assert!(Breaker::enter(&breaker).is_ok(), "an answer that began ends the rest");
        probe.conclude(None);
        fail(&breaker);
        assert!(Breaker::enter(&breaker).is_ok(), "a whole answer ended the run");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_doubles_the_rest() {
        let breaker = opened();
        tokio::time::advance(REST).await;
        fail(&breaker);
        assert_eq!(Breaker::enter(&breaker).unwrap_err(), REST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_frees_its_place() {
        let breaker = opened();
        tokio::time::advance(REST).await;
        drop(Breaker::enter(&breaker).unwrap());
        assert!(Breaker::enter(&breaker).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_begin_well_and_break_off_open_the_circuit() {
        let breaker = Arc::new(Breaker::default());
        for _ in 0..RUN {
            let mut permit = Breaker::enter(&breaker).unwrap();
            permit.alive();
            permit.conclude(Some(&ModelError::Silent(REST)));
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
