//! Limits the memory of all requests together: bodies, WebSocket messages, uploads, remembered items.
//!
//! Bytes are reserved before they are allocated, and released when the last reference to them is dropped. Beyond the
//! limit callers get a 503; requests that hold their memory already continue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{Fault, FaultKind};
use bytes::Bytes;

/// The `Retry-After` of a request without memory.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A memory budget for requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestMemory(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    free: AtomicUsize,
    /// The parent budget, from which every reservation is taken too.
    parent: Option<RequestMemory>,
}

impl RequestMemory {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Budget { free: AtomicUsize::new(bytes), parent: None }))
    }

    /// A sub-budget of this many bytes, which count in this budget too.
    #[must_use]
    pub(crate) fn part(&self, bytes: usize) -> Self {
        Self(Arc::new(Budget { free: AtomicUsize::new(bytes), parent: Some(self.clone()) }))
    }

    /// An empty reservation.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    fn reserve(&self, bytes: usize) -> bool {
        let Budget { free, parent } = &*self.0;
        let reserved = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
        if reserved.is_err() {
            return false;
        }
        let whole = parent.as_ref().is_none_or(|parent| parent.reserve(bytes));
        if !whole {
            free.fetch_add(bytes, Ordering::Relaxed);
        }
        whole
    }

    fn release(&self, bytes: usize) {
        let Budget { free, parent } = &*self.0;
        free.fetch_add(bytes, Ordering::Relaxed);
        if let Some(parent) = parent {
            parent.release(bytes);
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.free.load(Ordering::Relaxed)
    }
}

/// Reserved bytes; dropping it releases them.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: RequestMemory,
    bytes: usize,
}

impl Reservation {
    /// Resizes the reservation. Returns false and changes nothing if there is not enough memory.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let enough = match bytes.checked_sub(self.bytes) {
            Some(more) => self.budget.reserve(more),
            None => {
                self.budget.release(self.bytes - bytes);
                true
            }
        };
        if enough {
            self.bytes = bytes;
        }
        enough
    }

    /// Resizes the reservation to at least this size; the caller's fault if there is not enough memory.
    pub(crate) fn expect(&mut self, bytes: usize) -> Result<(), Fault> {
        match bytes <= self.bytes || self.resize(bytes) {
            true => Ok(()),
            false => Err(exhausted()),
        }
    }

    /// Ties the reservation to these bytes: it lasts as long as any part of them is referenced.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        match bytes.is_empty() {
            true => bytes,
            false => Bytes::from_owner(ReservedBytes { bytes, _reservation: self }),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The fault for a request without memory.
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
