//! Counts what a store does: its commits, and the budgets that were reached.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::LimitKind;

/// Upper bounds of the time of a commit, in seconds.
const BOUNDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0];

/// Counts commits and reached budgets. Clones share one count.
#[derive(Debug, Clone, Default)]
pub struct StoreMeter(Arc<StoreCounts>);

#[derive(Debug, Default)]
struct StoreCounts {
    /// For each kind of limit one for each threshold.
    budgets: [[AtomicU64; THRESHOLDS.len()]; LimitKind::ALL.len()],
    /// One for each bound, and one for longer commits.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
    writes: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct FlushReading {
    /// Commits by upper bound of their time in seconds, not cumulative; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// The time of all commits.
    pub seconds: f64,
    /// The number of commits.
    pub count: u64,
    /// The writes in them.
    pub writes: u64,
}

/// The shares of a budget, in per cent, that are announced when they are reached.
const THRESHOLDS: [u64; 2] = [80, 100];

impl StoreMeter {
    /// Counts a budget that has reached a threshold.
    pub fn budget_reached(&self, kind: LimitKind, percent: u64) {
        if let Some(count) = self.of_budget(kind, percent) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often budgets have reached a threshold: kind of limit, per cent, number.
    pub fn budgets(&self) -> Vec<(LimitKind, u64, u64)> {
        let each = LimitKind::ALL.into_iter().flat_map(|kind| THRESHOLDS.map(|percent| (kind, percent)));
        let count = |(kind, percent)| {
            (kind, percent, self.of_budget(kind, percent).map_or(0, |count| count.load(Ordering::Relaxed)))
        };
        each.map(count).collect()
    }

    fn of_budget(&self, kind: LimitKind, percent: u64) -> Option<&AtomicU64> {
        let kind = LimitKind::ALL.iter().position(|known| *known == kind)?;
        let threshold = THRESHOLDS.iter().position(|known| *known == percent)?;
        self.0.budgets.get(kind)?.get(threshold)
    }

    /// Counts a commit with so many writes.
    pub fn add(&self, writes: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.0.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.0.writes.fetch_add(writes as u64, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn read(&self) -> FlushReading {
        let counts = self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = BOUNDS.into_iter().chain([f64::INFINITY]).zip(counts).collect();
        FlushReading {
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
            seconds: self.0.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9,
            writes: self.0.writes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_counted_by_kind_and_threshold() {
        let meter = StoreMeter::default();
        meter.clone().budget_reached(LimitKind::Model, 80);
        meter.budget_reached(LimitKind::Model, 80);
        meter.budget_reached(LimitKind::Tenant, 100);
        let counted: Vec<_> = meter.budgets().into_iter().filter(|(_, _, count)| *count > 0).collect();
        assert_eq!(counted, [(LimitKind::Tenant, 100, 1), (LimitKind::Model, 80, 2)]);
        assert_eq!(meter.budgets().len(), 8);
    }

    #[test]
    fn commits_are_counted_by_their_time() {
        let meter = StoreMeter::default();
        meter.clone().add(3, Duration::from_millis(2));
        meter.add(1, Duration::from_secs(60));
        let reading = meter.read();
        assert_eq!((reading.count, reading.writes), (2, 4));
        assert!((reading.seconds - 60.002).abs() < 1e-6, "{reading:?}");
        let counted: Vec<_> = reading.buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(0.0025, 1), (f64::INFINITY, 1)]);
    }
}
