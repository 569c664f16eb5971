//! The running and the waiting turns of each tenant, and which of them is next. Plain data: callers lock it and wait.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::AdmissionSettings;

/// Turns that run and wait. `W` is what a granted slot is passed on with.
#[derive(Debug)]
pub(super) struct Queue<W> {
    settings: AdmissionSettings,
    closed: bool,
    in_flight: usize,
    /// The running turns of tenants that have some.
    running: HashMap<i64, usize>,
    /// The waiting turns of tenants that have some, in order of arrival.
    waiting: HashMap<i64, VecDeque<(u64, W)>>,
    /// The tenants with waiting turns; the first is next.
    tenants: VecDeque<i64>,
    /// The sum over `waiting`.
    waiting_turns: usize,
    last_ticket: u64,
}

/// The position of a waiting turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    tenant_id: i64,
    number: u64,
}

/// A slot for a turn that waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grant<W> {
    pub(super) tenant_id: i64,
    pub(super) waiter: W,
}

impl<W> Queue<W> {
    pub(super) fn new(settings: AdmissionSettings) -> Self {
        Self {
            settings,
            closed: false,
            in_flight: 0,
            running: HashMap::new(),
            waiting: HashMap::new(),
            tenants: VecDeque::new(),
            waiting_turns: 0,
            last_ticket: 0,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting_turns
    }

    pub(super) fn queue_wait(&self) -> Duration {
        self.settings.queue_wait
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The number of turns that can start now, if their tenants are not at their own limit.
    pub(super) fn room(&self) -> usize {
        match self.closed {
            true => 0,
            false => self.settings.max_in_flight.saturating_sub(self.in_flight),
        }
    }

    /// Takes a slot, if one is free. Every waiting turn is one that cannot start, so a turn that can overtakes none.
    pub(super) fn enter(&mut self, tenant_id: i64) -> bool {
        let free = self.has_room_for(tenant_id);
        if free {
            self.occupy(tenant_id);
        }
        free
    }

    /// Adds a turn to the queue, unless the queue is full.
    pub(super) fn wait(&mut self, tenant_id: i64, waiter: W) -> Option<Ticket> {
        if self.waiting_turns >= self.settings.max_waiting {
            return None;
        }
        self.last_ticket += 1;
        let turns = self.waiting.entry(tenant_id).or_default();
        if turns.is_empty() {
            self.tenants.push_back(tenant_id);
        }
        turns.push_back((self.last_ticket, waiter));
        self.waiting_turns += 1;
        Some(Ticket { tenant_id, number: self.last_ticket })
    }

    /// Removes a turn that no longer waits.
    pub(super) fn leave(&mut self, Ticket { tenant_id, number }: Ticket) {
        let Some(turns) = self.waiting.get_mut(&tenant_id) else { return };
        let before = turns.len();
        turns.retain(|(waiting, _)| *waiting != number);
        self.waiting_turns -= before - turns.len();
        if turns.is_empty() {
            self.waiting.remove(&tenant_id);
            self.tenants.retain(|tenant| *tenant != tenant_id);
        }
    }

    /// Releases a slot, and grants the slots that are free then.
    pub(super) fn release(&mut self, tenant_id: i64) -> Vec<Grant<W>> {
        self.in_flight -= 1;
        if let Some(running) = self.running.get_mut(&tenant_id) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&tenant_id);
            }
        }
        self.grant()
    }

    /// Changes the limits, and grants the slots that are free then.
    pub(super) fn change(&mut self, settings: AdmissionSettings) -> Vec<Grant<W>> {
        self.settings = settings;
        self.grant()
    }

    /// Refuses turns from now on, and returns those that waited.
    pub(super) fn close(&mut self) -> Vec<W> {
        self.closed = true;
        self.tenants.clear();
        self.waiting_turns = 0;
        self.waiting.drain().flat_map(|(_, turns)| turns).map(|(_, waiter)| waiter).collect()
    }

    fn has_room_for(&self, tenant_id: i64) -> bool {
        let running = self.running.get(&tenant_id).copied().unwrap_or(0);
        self.in_flight < self.settings.max_in_flight && running < self.settings.max_in_flight_per_tenant
    }

    fn occupy(&mut self, tenant_id: i64) {
        self.in_flight += 1;
        *self.running.entry(tenant_id).or_default() += 1;
    }

    /// Grants free slots to the waiting tenants in turn. A tenant at its own limit keeps its position.
    fn grant(&mut self) -> Vec<Grant<W>> {
        let mut granted = Vec::new();
        while let Some(position) = self.tenants.iter().position(|tenant| self.has_room_for(*tenant)) {
            let Some(tenant_id) = self.tenants.remove(position) else { break };
            let Some(turns) = self.waiting.get_mut(&tenant_id) else { continue };
            let next = turns.pop_front();
            match turns.is_empty() {
                true => drop(self.waiting.remove(&tenant_id)),
                // After the other tenants, which have waited for their slot.
                false => self.tenants.push_back(tenant_id),
            }
            if let Some((_, waiter)) = next {
                self.waiting_turns -= 1;
                self.occupy(tenant_id);
                granted.push(Grant { tenant_id, waiter });
            }
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(max_in_flight: usize, of_tenant: usize) -> AdmissionSettings {
        AdmissionSettings {
            max_in_flight,
            max_in_flight_per_tenant: of_tenant,
            max_waiting: 16,
            queue_wait: Duration::from_secs(1),
        }
    }

    fn of<W>(granted: Vec<Grant<W>>) -> Vec<W> {
        granted.into_iter().map(|grant| grant.waiter).collect()
    }

    #[test]
    fn free_slots_go_to_the_waiting_tenants_in_turn() {
        let mut queue = Queue::new(settings(2, 2));
        assert!(queue.enter(1) && queue.enter(1), "one tenant may use an idle server alone");
        for (tenant_id, name) in [(1, "1a"), (1, "1b"), (1, "1c"), (2, "2a"), (3, "3a"), (2, "2b")] {
            assert!(queue.wait(tenant_id, name).is_some());
        }
        let order: Vec<&str> = [1, 1, 1, 2, 3, 1].into_iter().flat_map(|ended| of(queue.release(ended))).collect();
        assert_eq!(order, ["1a", "2a", "3a", "1b", "2b", "1c"]);
        assert_eq!((queue.waiting(), queue.in_flight()), (0, 2));
    }

    #[test]
    fn a_tenant_at_its_own_limit_does_not_hold_up_the_others() {
        let mut queue = Queue::new(settings(4, 1));
        assert!(queue.enter(1));
        assert!(!queue.enter(1));
        queue.wait(1, "1a").unwrap();
        assert!(queue.enter(2), "the other slots are free");
        queue.wait(2, "2a").unwrap();
        assert_eq!(of(queue.release(2)), ["2a"]);
        assert_eq!(of(queue.release(1)), ["1a"]);
    }

    #[test]
    fn a_full_queue_refuses() {
        let mut queue = Queue::new(AdmissionSettings { max_waiting: 1, ..settings(1, 1) });
        assert!(queue.enter(1));
        assert!(queue.wait(1, ()).is_some());
        assert!(queue.wait(2, ()).is_none());
    }

    #[test]
    fn a_changed_limit_counts_the_turns_that_run() {
        let mut queue = Queue::new(settings(3, 3));
        assert!((0..3).all(|_| queue.enter(1)));
        queue.wait(2, "2a").unwrap();
        assert_eq!(of(queue.change(settings(1, 1))), [""; 0]);
        assert_eq!(of(queue.release(1)), [""; 0], "two turns still run");
        assert_eq!(of(queue.change(settings(3, 3))), ["2a"]);
        assert_eq!((queue.in_flight(), queue.room()), (3, 0));
    }

    proptest! {
        #[test]
        fn no_slot_is_lost_or_given_twice(
            size in 1..4_usize,
            of_tenant in 1..4_usize,
            steps in prop::collection::vec((0..3_u8, 0..3_i64, 0..16_usize), 1..200),
        ) {
            let mut queue = Queue::new(settings(size, of_tenant));
            let (mut running, mut waiting) = (Vec::<i64>::new(), Vec::<Ticket>::new());
            for (step, tenant_id, index) in steps {
                let granted = match step {
                    0 => {
                        if queue.enter(tenant_id) {
                            running.push(tenant_id);
                        } else {
                            let number = queue.last_ticket + 1;
                            waiting.extend(queue.wait(tenant_id, number));
                        }
                        Vec::new()
                    }
                    1 if !running.is_empty() => queue.release(running.swap_remove(index % running.len())),
                    2 if !waiting.is_empty() => {
                        queue.leave(waiting.swap_remove(index % waiting.len()));
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
                for Grant { tenant_id, waiter } in granted {
                    running.push(tenant_id);
                    let position = waiting.iter().position(|ticket| ticket.number == waiter);
                    waiting.swap_remove(position.expect("only a waiting turn gets a slot, once"));
                }
                prop_assert_eq!((queue.in_flight(), queue.waiting()), (running.len(), waiting.len()));
                prop_assert!(running.len() <= size);
                for tenant_id in 0..3 {
                    let of_this = running.iter().filter(|running| **running == tenant_id).count();
                    prop_assert!(of_this <= of_tenant);
                    // No turn waits for a slot that is free.
                    let waits = waiting.iter().any(|ticket| ticket.tenant_id == tenant_id);
                    prop_assert!(!waits || running.len() == size || of_this == of_tenant);
                }
            }
        }
    }
}
