//! Holds of this process, and how they end: with a turn's write, or here.

use std::{collections::HashSet, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Cost, Operator, StoreError, UsedAmounts,
    store::{HoldSettlement, WriteOutcome},
};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use super::{Limiter, lock};

/// The interval at which holds of dead processes, and holds of this process without an owner, are searched.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// The pause after a settlement that the store did not accept.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Settlements in one transaction.
const BATCH: usize = 100;

/// Nothing was used.
pub(crate) const NOTHING: UsedAmounts = UsedAmounts { tokens: 0, cost: Some(Cost::from_nano_usd(0)) };

/// A reservation. Dropped without an owner, it is released.
pub(crate) struct Hold {
    limiter: Arc<Limiter>,
    id: String,
    owned: bool,
}

impl Hold {
    pub(super) fn new(limiter: &Arc<Limiter>, id: String) -> Self {
        lock(&limiter.live).insert(id.clone());
        Self { limiter: Arc::clone(limiter), id, owned: true }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Hands the hold over to an owner that settles it.
    pub(crate) fn into_id(mut self) -> String {
        self.owned = false;
        std::mem::take(&mut self.id)
    }

    /// The store holds nothing.
    pub(super) fn forget(mut self) {
        self.owned = false;
        lock(&self.limiter.live).remove(&self.id);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.owned {
            let (hold_id, now_ms) = (std::mem::take(&mut self.id), self.limiter.clock.now_ms());
            self.limiter.settle_later(vec![HoldSettlement { hold_id, used: Some(NOTHING), now_ms }]);
        }
    }
}

impl Limiter {
    /// Notes holds that a turn's write has settled.
    pub(crate) fn forget_settled(&self, settlements: &[HoldSettlement]) {
        let mut live = lock(&self.live);
        for settlement in settlements {
            live.remove(&settlement.hold_id);
        }
    }

    /// Settles holds outside of a turn's write, as soon as the store accepts it.
    pub(crate) fn settle_later(&self, settlements: Vec<HoldSettlement>) {
        if settlements.is_empty() {
            return;
        }
        lock(&self.unsettled).extend(settlements);
        self.added.notify_one();
    }

    /// Settles everything that waits. Returns whether the store accepted it.
    pub(crate) async fn settle_waiting(&self) -> bool {
        loop {
            let batch: Vec<HoldSettlement> = {
                let mut unsettled = lock(&self.unsettled);
                let size = unsettled.len().min(BATCH);
                unsettled.drain(..size).collect()
            };
            if batch.is_empty() {
                return true;
            }
            if let Err(error) = self.store.settle_holds(Operator::of_this_process(), batch.clone()).await {
                warn!(holds = batch.len(), "reservations of limits could not be settled yet: {error}");
                lock(&self.unsettled).splice(0..0, batch);
                return false;
            }
            self.forget_settled(&batch);
        }
    }

    /// Settles as long as it is polled.
    pub(crate) async fn settle_periodically(&self) {
        let mut orphans = HashSet::new();
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.added.notified() => {
                    if !self.settle_waiting().await {
                        sleep(RETRY_PAUSE).await;
                        self.added.notify_one();
                    }
                }
                _ = checks.tick() => {
                    if let Err(error) = self.check_holds(&mut orphans).await {
                        debug!("reservations of limits could not be checked: {error}");
                    }
                }
            }
        }
    }

    /// Ends the holds of dead processes, and those of this process that have no owner: the store made them although it
    /// reported an error. `orphans` holds the candidates of the last check.
    async fn check_holds(&self, orphans: &mut HashSet<String>) -> Result<(), StoreError> {
        if self.known().is_empty() {
            return Ok(());
        }
        self.settle_dead().await?;
        let held = self.store.holds(Operator::of_this_process(), self.process).await?;
        let left: HashSet<String> = {
            let live = lock(&self.live);
            held.into_iter().filter(|hold_id| !live.contains(hold_id)).collect()
        };
        let now_ms = self.clock.now_ms();
        let settlement = |hold_id: &String| HoldSettlement { hold_id: hold_id.clone(), used: None, now_ms };
        self.settle_later(left.intersection(orphans).map(settlement).collect());
        *orphans = left;
        Ok(())
    }

    /// Ends the holds of dead processes: what they had reserved counts as used.
    pub(crate) async fn settle_dead(&self) -> Result<(), StoreError> {
        let settled = self.store.settle_dead_holds(Operator::of_this_process(), self.clock.now_ms()).await?;
        if settled > 0 {
            info!(holds = settled, "reservations of dead processes count as used");
        }
        Ok(())
    }
}

/// Settlements that are part of a write. If the write does not happen, or its future is dropped, they are settled by themselves.
pub(crate) struct SettledByWrite {
    limiter: Arc<Limiter>,
    settlements: Vec<HoldSettlement>,
}

impl SettledByWrite {
    pub(crate) fn new(limiter: &Arc<Limiter>, settlements: Vec<HoldSettlement>) -> Self {
        Self { limiter: Arc::clone(limiter), settlements }
    }

    /// Waits for the write.
    pub(crate) async fn after(
        mut self,
        writing: BoxFuture<'static, Result<WriteOutcome, StoreError>>,
    ) -> Result<WriteOutcome, StoreError> {
        let written = writing.await;
        if matches!(written, Ok(WriteOutcome::Kept)) {
            self.limiter.forget_settled(&std::mem::take(&mut self.settlements));
        }
        written
    }
}

impl Drop for SettledByWrite {
    fn drop(&mut self) {
        self.limiter.settle_later(std::mem::take(&mut self.settlements));
    }
}
