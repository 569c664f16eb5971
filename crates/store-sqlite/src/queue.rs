//! A bounded queue of jobs, between callers and the threads of the store.
use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Why a job was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueError {
    /// The queue is full.
    Full,
    /// The store is being closed.
    Closed,
}

/// A push into a full queue is refused at once; a worker waits while it is empty.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    bound: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// The number of workers that wait. Waking costs a system call even if no worker sleeps.
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

    /// Adds a job at the end.
    pub(super) fn push(&self, job: T) -> Result<(), QueueError> {
        let mut state = self.lock();
        if state.closed {
            return Err(QueueError::Closed);
        }
        if state.waiting.len() >= self.bound {
            return Err(QueueError::Full);
        }
        state.waiting.push_back(job);
        let wakes = state.idle > 0;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for elements and appends at most `limit` of them to `taken`. After the queue was closed, the accepted
    /// elements are still returned; then this returns `false`.
    pub(super) fn take(&self, taken: &mut Vec<T>, limit: usize) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            state.idle += 1;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        state.hand_out(taken, limit);
        true
    }

    /// Appends at most `limit` waiting elements to `taken`, up to the first that does not `fit`, without waiting.
    pub(super) fn take_waiting(&self, taken: &mut Vec<T>, limit: usize, fits: impl Fn(&T) -> bool) {
        let mut state = self.lock();
        let count = state.waiting.iter().take(limit).take_while(|job| fits(job)).count();
        state.hand_out(taken, count);
    }

    /// Refuses further elements.
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
        assert_eq!([queue.push(1), queue.push(2), queue.push(3)], [Ok(()), Ok(()), Err(QueueError::Full)]);
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, 1));
        assert_eq!(queue.push(4), Ok(()));
        queue.close();
        assert_eq!(queue.push(5), Err(QueueError::Closed));
        assert!(queue.take(&mut taken, 8));
        assert_eq!(taken, [1, 2, 4]);
        assert!(!queue.take(&mut taken, 8));
    }

    #[test]
    fn what_waits_is_taken_up_to_a_limit_without_waiting() {
        let queue = Queue::new(4);
        let mut taken = Vec::new();
        queue.take_waiting(&mut taken, 8, |_| true);
        (1..=4).for_each(|job| queue.push(job).unwrap());
        queue.take_waiting(&mut taken, 2, |_| true);
        assert_eq!(taken, [1, 2]);
        queue.take_waiting(&mut taken, 8, |job| *job < 4);
        assert_eq!(taken, [1, 2, 3]);
    }
}
