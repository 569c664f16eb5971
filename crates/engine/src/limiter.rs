//! Limits of turns and model calls: reserves in the store before each, and settles what was reserved when it has ended.
//!
//! The process caches which limits exist, and refreshes that every second and on each notification; a turn without a
//! limit costs a lookup in memory. Counters are never cached: a reservation is one transaction of the store. A hold
//! that this process has made is settled by it, also if the request that made it was cancelled: `settlement.rs`.

mod known;
mod settlement;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use amalgam_core::{
    Clock, Fault, IdKind, Ids, LimitDemand, LimitReason, LimitRefusal, LimitSubject, Operator, Price, RateLimits,
    Scope, Store,
    store::{HoldSettlement, LimitReservation, ProcessId, ReserveOutcome},
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard},
    time::{Instant, timeout_at},
};

use crate::tasks::Tasks;

pub use known::KnownLimits;
pub(crate) use settlement::{Hold, NOTHING, SettledByWrite};

/// The longest wait for another turn of the same limit to end, in case a notification is missed.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Applies the limits of tenants, keys, users and models.
pub struct Limiter {
    store: Arc<dyn Store>,
    process: ProcessId,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    known: RwLock<Arc<KnownLimits>>,
    /// The holds of this process that are not settled.
    live: Mutex<HashSet<String>>,
    /// Settlements that are not part of a turn's write.
    unsettled: Mutex<Vec<HoldSettlement>>,
    added: Notify,
    /// One turn at a time tries again for each limit; the others wait in order.
    queues: Mutex<HashMap<LimitSubject, Arc<AsyncMutex<()>>>>,
}

/// The caller of a turn, as limits identify it.
#[derive(Debug, Clone)]
pub(crate) struct LimitedTurn {
    pub(crate) scope: Scope,
    pub(crate) key_id: Option<Arc<str>>,
    /// The model as the caller, the profile or the tenant's settings name it.
    pub(crate) model: String,
}

/// The price of a model call, and its reservation.
pub(crate) struct CallTerms {
    pub(crate) price: Option<Price>,
    pub(crate) hold: Option<Hold>,
}

/// The granted reservation, and the remaining amounts.
struct Grant {
    hold: Option<Hold>,
    rate_limits: RateLimits,
}

impl Limiter {
    pub(crate) fn new(store: Arc<dyn Store>, process: ProcessId, clock: Arc<dyn Clock>, tasks: Tasks) -> Self {
        Self {
            store,
            process,
            clock,
            tasks,
            known: RwLock::default(),
            live: Mutex::default(),
            unsettled: Mutex::default(),
            added: Notify::new(),
            queues: Mutex::default(),
        }
    }

    /// The limits in the cache of this process.
    pub fn known(&self) -> Arc<KnownLimits> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for a turn, and waits at most `queue_wait` while too many turns of a limit run.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        turn: &LimitedTurn,
        subjects: Vec<LimitSubject>,
        demand: LimitDemand,
        queue_wait: Duration,
    ) -> Result<Option<Hold>, Fault> {
        if subjects.is_empty() {
            return Ok(None);
        }
        let deadline = Instant::now() + queue_wait;
        // The limit in whose queue this turn is first.
        let mut first_of: Option<(LimitSubject, OwnedMutexGuard<()>)> = None;
        loop {
            // Subscribed before the attempt, so that no change in between is missed.
            let changed = first_of.as_ref().map(|(subject, _)| self.store.changed(&subject.topic()));
            let refusal = match self.reserve(subjects.clone(), demand).await? {
                Ok(grant) => return Ok(self.granted(turn, grant)),
                Err(refusal) => refusal,
            };
            let is_full = matches!(refusal.refusal.reason, LimitReason::InFlight { .. });
            if !is_full || Instant::now() >= deadline {
                return Err(self.refused(turn, &refusal));
            }
            let subject = &refusal.refusal.subject;
            match (&first_of, changed) {
                (Some((known, _)), Some(changed)) if known == subject => {
                    let _ = timeout_at(deadline.min(Instant::now() + LOOK_AGAIN), changed).await;
                }
                _ => {
                    drop(first_of.take());
                    let Ok(first) = timeout_at(deadline, self.queue_of(subject).lock_owned()).await else {
                        return Err(self.refused(turn, &refusal));
                    };
                    first_of = Some((subject.clone(), first));
                }
            }
        }
    }

    /// Asks for a model call.
    pub(crate) async fn reserve_call(
        self: &Arc<Self>,
        turn: &LimitedTurn,
        subjects: Vec<LimitSubject>,
        demand: LimitDemand,
    ) -> Result<Option<Hold>, Fault> {
        match self.reserve(subjects, demand).await? {
            Ok(grant) => Ok(self.granted(turn, grant)),
            Err(refusal) => Err(self.refused(turn, &refusal)),
        }
    }

    /// Makes one attempt. The hold of a request that is cancelled meanwhile is released.
    async fn reserve(
        self: &Arc<Self>,
        subjects: Vec<LimitSubject>,
        demand: LimitDemand,
    ) -> Result<Result<Grant, Refused>, Fault> {
        let hold = Hold::new(self, Ids::Unguessable.make(IdKind::LimitHold));
        let reservation = LimitReservation {
            hold_id: hold.id().to_owned(),
            process: self.process,
            subjects,
            demand,
            now_ms: self.clock.now_ms(),
        };
        let store = Arc::clone(&self.store);
        let reserving = self.tasks.run_to_completion(async move {
            // After an error the hold may exist, and is released.
            Ok(match store.reserve(Operator::of_this_process(), reservation).await? {
                ReserveOutcome::Granted { held: true, rate_limits } => Ok(Grant { hold: Some(hold), rate_limits }),
                ReserveOutcome::Granted { held: false, rate_limits } => {
                    hold.forget();
                    Ok(Grant { hold: None, rate_limits })
                }
                ReserveOutcome::Refused { refusal, rate_limits } => {
                    hold.forget();
                    Err(Refused { refusal, rate_limits })
                }
            })
        });
        reserving.await
    }

    /// The fault of a turn. Records the remaining amounts for the response headers of its request.
    fn refused(&self, turn: &LimitedTurn, refused: &Refused) -> Fault {
        self.report(turn, refused.rate_limits);
        refused.refusal.to_fault()
    }

    /// The hold of a turn. Records the remaining amounts for the response headers of its request.
    fn granted(&self, turn: &LimitedTurn, grant: Grant) -> Option<Hold> {
        self.report(turn, grant.rate_limits);
        grant.hold
    }

    fn report(&self, turn: &LimitedTurn, rate_limits: RateLimits) {
        if let Some(request) = turn.scope.request().filter(|_| rate_limits != RateLimits::default()) {
            request.set_rate_limits(rate_limits, self.clock.now_ms());
        }
    }

    fn queue_of(&self, subject: &LimitSubject) -> Arc<AsyncMutex<()>> {
        let mut queues = lock(&self.queues);
        // Removes the queues in which no turn waits.
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        Arc::clone(queues.entry(subject.clone()).or_default())
    }
}

/// A refusal, and what is left.
struct Refused {
    refusal: LimitRefusal,
    rate_limits: RateLimits,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
