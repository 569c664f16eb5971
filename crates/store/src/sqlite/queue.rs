//! A queue with a bound, between many who ask and a few threads that work.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Why something was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// As many wait as may wait.
    Full,
    /// Nobody works any more.
    Closed,
}

/// What came of waiting for something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is something.
    Something,
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

/// Whoever asks is refused at once when it is full; whoever works waits when it is empty.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    bound: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// Workers that wait. Waking costs a call of the system even where nobody sleeps.
    idle: usize,
    closed: bool,
}

impl<T> State<T> {
    fn hand_out(&mut self, taken: &mut Vec<T>, limit: usize) {
        let count = limit.min(self.waiting.len());
        taken.extend(self.waiting.drain(..count));
    }
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        let state = Mutex::new(State { waiting: VecDeque::new(), idle: 0, closed: false });
        Self { state, filled: Condvar::new(), bound }
    }

    /// Adds one at the end.
    pub(super) fn push(&self, job: T) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.waiting.len() >= self.bound {
            return Err(Refused::Full);
        }
        state.waiting.push_back(job);
        let wakes = state.idle > 0;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until there is something and moves at most `limit` of it behind `taken`. When the queue is closed, what was
    /// accepted is handed out first.
    pub(super) fn take(&self, taken: &mut Vec<T>, limit: usize, until: Option<Instant>) -> Taken {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return Taken::Closed;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Taken::Nothing;
            }
            state.idle += 1;
            state = match left {
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.idle -= 1;
        }
        state.hand_out(taken, limit);
        Taken::Something
    }

    /// Moves at most `limit` of what is there behind `taken`, without waiting.
    pub(super) fn take_waiting(&self, taken: &mut Vec<T>, limit: usize) {
        self.lock().hand_out(taken, limit);
    }

    /// Accepts nothing any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_hands_out_what_it_accepted() {
        // S16
        let queue = Queue::new(2);
        assert_eq!([queue.push(1), queue.push(2), queue.push(3)], [Ok(()), Ok(()), Err(Refused::Full)]);
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, 1, None), Taken::Something);
        assert_eq!(queue.push(4), Ok(()));
        queue.close();
        assert_eq!(queue.push(5), Err(Refused::Closed));
        assert_eq!(queue.take(&mut taken, 8, None), Taken::Something);
        assert_eq!(taken, [1, 2, 4]);
        assert_eq!(queue.take(&mut taken, 8, None), Taken::Closed);
    }

    #[test]
    fn whoever_waits_until_a_moment_waits_no_longer() {
        let queue = Queue::new(2);
        let mut taken = Vec::new();
        assert_eq!(queue.take(&mut taken, 8, Some(Instant::now())), Taken::Nothing);
        queue.push(1).unwrap();
        assert_eq!(queue.take(&mut taken, 8, Some(Instant::now())), Taken::Something);
        queue.take_waiting(&mut taken, 8);
        assert_eq!(taken, [1]);
        queue.push(2).unwrap();
        queue.push(3).unwrap();
        queue.take_waiting(&mut taken, 1);
        assert_eq!(taken, [1, 2]);
    }
}
