//! How many unknown keys an address may try.
//!
//! A budget for each address that refills slowly. Only lookups that found nothing are taken from it. It decides how a
//! failure is answered, and never whether a key is looked up: a good key works at once, whatever else came from its
//! address. A bad key that is sent again is answered from memory.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::proxies;

/// Unknown keys that may be tried at once.
const BUDGET: f64 = 20.0;
/// How many more there are each second.
const REFILL: f64 = 2.0;
/// The most addresses that are told apart; beyond them strangers share one budget.
const ADDRESSES: usize = 4096;

/// What addresses have left.
#[derive(Default)]
pub(super) struct Attempts {
    budgets: Mutex<HashMap<IpAddr, Budget>>,
}

#[derive(Clone, Copy)]
struct Budget {
    left: f64,
    at: Instant,
}

impl Attempts {
    /// How long it takes until this address may try another unknown key; nothing when it may now.
    pub(super) fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = match budgets.get(&network(address)) {
            None if budgets.len() >= ADDRESSES => budgets.get(&STRANGERS),
            budget => budget,
        };
        let left = budget.map_or(BUDGET, |budget| budget.left(now));
        (left < 1.0).then(|| Duration::from_secs_f64((1.0 - left) / REFILL))
    }

    /// Notes that a key of this address was unknown; how long to wait where there were too many.
    pub(super) fn failed(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        if let Some(wait) = self.wait(address, now) {
            return Some(wait);
        }
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut network = network(address);
        if budgets.len() >= ADDRESSES && !budgets.contains_key(&network) {
            budgets.retain(|_, budget| budget.left(now) < BUDGET);
            if budgets.len() >= ADDRESSES {
                network = STRANGERS;
            }
        }
        let budget = budgets.entry(network).or_insert(Budget { left: BUDGET, at: now });
        *budget = Budget { left: (budget.left(now) - 1.0).max(0.0), at: now };
        None
    }
}

impl Budget {
    fn left(&self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() * REFILL;
        (self.left + refilled).min(BUDGET)
    }
}

/// Callers whose address is not told apart.
const STRANGERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Who has a budget of its own.
fn network(address: Option<IpAddr>) -> IpAddr {
    address.map_or(STRANGERS, proxies::network)
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
        assert!(attempts.budgets.lock().unwrap().len() <= ADDRESSES + 1);
        assert!(attempts.wait(address("203.0.113.9"), now).is_some(), "strangers share one budget");
        let later = now + Duration::from_secs(60);
        attempts.failed(address("192.0.2.1"), later);
        assert_eq!(attempts.budgets.lock().unwrap().len(), 1, "what has refilled is dropped");
    }
}
