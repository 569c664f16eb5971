//! Limits how many unknown keys an address may try.
//!
//! Each address has a budget that refills slowly. Only failed lookups use it. The budget decides how a failure is
//! answered, and never whether a key is looked up: a valid key works at once, whatever else its address sent. A
//! repeated unknown key is answered from the cache.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use amalgam_listener::network_of;
use tokio::time::Instant;

/// The maximum number of unknown keys in a burst.
const BUDGET: f64 = 20.0;
/// The refill per second.
const REFILL: f64 = 2.0;
/// The maximum number of addresses with a budget of their own; further addresses share one.
const MAX_ADDRESSES: usize = 4096;

/// The remaining budgets of addresses.
#[derive(Default)]
pub(super) struct Attempts {
    budgets: Mutex<HashMap<IpAddr, Budget>>,
}

#[derive(Clone, Copy)]
struct Budget {
    remaining: f64,
    at: Instant,
}

impl Attempts {
    /// How long this address has to wait before it may try another unknown key; none if it may now.
    pub(super) fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = match budgets.get(&network(address)) {
            None if budgets.len() >= MAX_ADDRESSES => budgets.get(&SHARED_BUDGET),
            budget => budget,
        };
        let remaining = budget.map_or(BUDGET, |budget| budget.remaining(now));
        (remaining < 1.0).then(|| Duration::from_secs_f64((1.0 - remaining) / REFILL))
    }

    /// Counts an unknown key of this address; how long to wait if there were too many.
    pub(super) fn failed(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        if let Some(wait) = self.wait(address, now) {
            return Some(wait);
        }
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut network = network(address);
        if budgets.len() >= MAX_ADDRESSES && !budgets.contains_key(&network) {
            budgets.retain(|_, budget| budget.remaining(now) < BUDGET);
            if budgets.len() >= MAX_ADDRESSES {
                network = SHARED_BUDGET;
            }
        }
        let budget = budgets.entry(network).or_insert(Budget { remaining: BUDGET, at: now });
        *budget = Budget { remaining: (budget.remaining(now) - 1.0).max(0.0), at: now };
        None
    }
}

impl Budget {
    fn remaining(&self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() * REFILL;
        (self.remaining + refilled).min(BUDGET)
    }
}

/// Stands for all addresses without a budget of their own.
const SHARED_BUDGET: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The address or network that has a budget.
fn network(address: Option<IpAddr>) -> IpAddr {
    address.map_or(SHARED_BUDGET, network_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn an_address_that_has_tried_too_much_waits_and_others_do_not() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..20 {
            assert_eq!(attempts.wait(address("192.0.2.1"), now), None);
            assert_eq!(attempts.failed(address("192.0.2.1"), now), None);
        }
        assert_eq!(attempts.failed(address("192.0.2.1"), now), Some(Duration::from_millis(500)));
        assert_eq!(attempts.wait(address("192.0.2.1"), now), Some(Duration::from_millis(500)));
        assert_eq!(attempts.wait(address("::ffff:192.0.2.1"), now), Some(Duration::from_millis(500)));
        assert_eq!(attempts.wait(address("192.0.2.2"), now), None);
        assert_eq!(attempts.wait(address("192.0.2.1"), now + Duration::from_secs(1)), None);
    }

    #[test]
    fn all_addresses_of_one_network_share_a_budget() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for index in 0..20 {
            attempts.failed(address(&format!("2001:db8::{index}")), now);
        }
        assert!(attempts.wait(address("2001:db8::ffff"), now).is_some());
        assert!(attempts.wait(address("2001:db8:0:1::1"), now).is_none());
    }

    #[test]
    fn a_crowd_of_addresses_costs_no_more_than_the_table() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for index in 0..10_000_u32 {
            attempts.failed(Some(IpAddr::V4(index.into())), now);
        }
        assert!(attempts.budgets.lock().unwrap().len() <= MAX_ADDRESSES + 1);
        assert!(attempts.wait(address("203.0.113.9"), now).is_some(), "strangers share one budget");
        let later = now + Duration::from_secs(60);
        attempts.failed(address("192.0.2.1"), later);
        assert_eq!(attempts.budgets.lock().unwrap().len(), 1, "what has refilled is dropped");
    }
}
