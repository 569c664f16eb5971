//! How much memory all requests together may hold: bodies, WebSocket messages, uploads, remembered items.
//!
//! Bytes are taken from the budget before they are held and given back when the last reference to them is dropped. When
//! it is used up callers get 503, and what is held already goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{Fault, FaultKind};
use bytes::Bytes;

/// When a caller that found no memory should try again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The bytes that requests may hold. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestMemory(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    free: AtomicUsize,
    /// A part of another budget: what is taken here is taken there too.
    of: Option<RequestMemory>,
}

impl RequestMemory {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Budget { free: AtomicUsize::new(bytes), of: None }))
    }

    /// A budget of so many bytes which are taken from this one too.
    #[must_use]
    pub(crate) fn part(&self, bytes: usize) -> Self {
        Self(Arc::new(Budget { free: AtomicUsize::new(bytes), of: Some(self.clone()) }))
    }

    /// A reservation of nothing yet.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let Budget { free, of } = &*self.0;
        let taken = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
        if taken.is_err() {
            return false;
        }
        let whole = of.as_ref().is_none_or(|of| of.take(bytes));
        if !whole {
            free.fetch_add(bytes, Ordering::Relaxed);
        }
        whole
    }

    fn give_back(&self, bytes: usize) {
        let Budget { free, of } = &*self.0;
        free.fetch_add(bytes, Ordering::Relaxed);
        if let Some(of) = of {
            of.give_back(bytes);
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.free.load(Ordering::Relaxed)
    }
}

/// Bytes that were taken from the budget; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: RequestMemory,
    bytes: usize,
}

impl Reservation {
    /// Makes it this large; whether there was enough. It does not change where there was not.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let enough = match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.take(more),
            None => {
                self.budget.give_back(self.bytes - bytes);
                true
            }
        };
        if enough {
            self.bytes = bytes;
        }
        enough
    }

    /// Makes it at least this large; the fault that tells the caller where there is not enough.
    pub(crate) fn expect(&mut self, bytes: usize) -> Result<(), Fault> {
        match bytes <= self.bytes || self.resize(bytes) {
            true => Ok(()),
            false => Err(exhausted()),
        }
    }

    /// The bytes that this was reserved for: the reservation lasts as long as any part of them is held.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        match bytes.is_empty() {
            true => bytes,
            false => Bytes::from_owner(Held { bytes, _reservation: self }),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

struct Held {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a caller is told when there is no memory for its request.
pub(crate) fn exhausted() -> Fault {
    let message = "The server holds as many bytes of requests as it may. Try again shortly.";
    Fault::new(FaultKind::OutOfMemory, message).retry_after(Some(RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    // right E2
    #[test]
    fn bytes_count_until_the_last_part_of_them_is_dropped() {
        let memory = RequestMemory::new(1000);
        let mut reservation = memory.reservation();
        reservation.expect(800).unwrap();
        assert_eq!(reservation.expect(1001).unwrap_err().kind, FaultKind::OutOfMemory);
        assert_eq!(memory.free(), 200);
        let held = reservation.hold(Bytes::from(vec![7; 800]));
        let part = held.slice(10..20);
        drop(held);
        assert_eq!((memory.free(), &part[..]), (200, &[7; 10][..]));
        drop(part);
        assert_eq!(memory.free(), 1000);
    }

    // right E2
    #[test]
    fn a_part_is_bounded_by_itself_and_by_the_whole() {
        let whole = RequestMemory::new(1000);
        let part = whole.part(600);
        let (mut first, mut second) = (part.reservation(), whole.reservation());
        assert!(!first.resize(601) && first.resize(600) && second.resize(400));
        assert_eq!((part.free(), whole.free()), (0, 0));
        assert!(first.resize(100) && !second.resize(901) && second.resize(900) && !first.resize(101));
        drop(first);
        assert_eq!((part.free(), whole.free()), (600, 100));
    }
}
