//! Queue entries of sessions, and steps of turns, that this process may hold without a request that uses them: the
//! request was cancelled while it took them, or releasing them failed. Other requests would wait for them until this
//! process ends, so their release is retried.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use amalgam_core::{
    Scope,
    store::{MetadataRecord, Ticket},
};

/// An entry that does not appear within this time was never made: no statement takes so long.
const LONGEST: Duration = Duration::from_secs(60);

/// The pending releases of one store.
#[derive(Debug, Default)]
pub(crate) struct PendingReleases(Mutex<Vec<PendingRelease>>);

/// A reservation that has to be released.
#[derive(Debug, Clone)]
pub(crate) struct PendingRelease {
    pub(crate) scope: Scope,
    pub(crate) reservation: Reservation,
    since: Instant,
}

/// An entry or a step that this process has taken, or may have taken.
#[derive(Debug, Clone)]
pub(crate) enum Reservation {
    /// A queue entry, by the mark that was drawn for it.
    Marked(i64),
    /// A queue entry, and the error to add to the user's message if there is one.
    Entry(Ticket, Option<MetadataRecord>),
    /// A step of a session, by the response that should have answered it.
    Step { session_id: String, response_id: String },
}

impl PendingReleases {
    /// A reservation that is to be released unless [`ReleaseGuard::disarm`] is called.
    pub(crate) fn guard(&self, scope: &Scope, reservation: Reservation) -> ReleaseGuard<'_> {
        ReleaseGuard {
            releases: self,
            pending: Some(PendingRelease { scope: scope.clone(), reservation, since: Instant::now() }),
        }
    }

    /// How many releases are pending.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The oldest one. It stays pending until its guard is disarmed.
    pub(crate) fn next(&self) -> Option<ReleaseGuard<'_>> {
        let mut releases = self.lock();
        let pending = (!releases.is_empty()).then(|| releases.remove(0))?;
        Some(ReleaseGuard { releases: self, pending: Some(pending) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PendingRelease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds its reservation to the pending releases when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub(crate) struct ReleaseGuard<'a> {
    releases: &'a PendingReleases,
    pending: Option<PendingRelease>,
}

impl ReleaseGuard<'_> {
    /// The pending release.
    pub(crate) fn pending(&self) -> PendingRelease {
        self.pending.clone().expect("it is there until the guard is disarmed")
    }

    /// Call this when the reservation is used or released.
    pub(crate) fn disarm(mut self) {
        self.pending = None;
    }

    /// The reservation was searched for, and removed if `found`. One that may still appear is searched for again.
    pub(crate) fn searched(self, found: bool) {
        let may_come = self
            .pending
            .as_ref()
            .is_some_and(|it| !matches!(it.reservation, Reservation::Entry(..)) && it.since.elapsed() < LONGEST);
        if found || !may_come {
            self.disarm();
        }
    }
}

impl Drop for ReleaseGuard<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.releases.lock().push(pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_core::{Rights, TenantState};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests have no authenticated caller")]
    fn a_reservation_stays_pending_until_it_is_known_to_be_gone() {
        let releases = PendingReleases::default();
        let scope = Scope::authenticated(1, "anna", TenantState::Stored, Rights::USE);
        releases.guard(&scope, Reservation::Marked(1)).disarm();
        assert_eq!(releases.count(), 0);
        drop(releases.guard(&scope, Reservation::Marked(2)));
        drop(releases.guard(&scope, Reservation::Entry(Ticket { session_id: 1, number: 7 }, None)));
        assert_eq!(releases.count(), 2);

        // The entry with the mark may still appear, so its search is repeated; the other entry is removed or was
        // already.
        releases.next().unwrap().searched(false);
        releases.next().unwrap().searched(false);
        assert_eq!(releases.count(), 1);
        drop(releases.next().unwrap());
        assert!(matches!(releases.next().unwrap().pending().reservation, Reservation::Marked(2)));
        releases.next().unwrap().searched(true);
        assert_eq!(releases.count(), 0);
    }
}
