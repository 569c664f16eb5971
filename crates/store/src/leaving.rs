//! Places in lines, and steps of turns, that this process perhaps has without anybody knowing: those of callers that went
//! away while they took them, and those that could not be given up. Everybody behind them would wait for as long as this
//! process lives, so it sees to it that they go.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use amalgam_core::{
    Scope,
    store::{MetadataRecord, Ticket},
};

/// A place that was not found within this time was never taken: no statement is on its way for so long.
const LONGEST: Duration = Duration::from_secs(60);

/// The places of one store.
#[derive(Debug, Default)]
pub(crate) struct Leaving(Mutex<Vec<Left>>);

/// A place to be given up.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    pub(crate) scope: Scope,
    pub(crate) place: LeftPlace,
    since: Instant,
}

/// What is known of it.
#[derive(Debug, Clone)]
pub(crate) enum LeftPlace {
    /// The mark that was drawn for it.
    Marked(i64),
    /// Everything.
    At(Ticket, Option<MetadataRecord>),
    /// A step of a session, by the response that was to answer it.
    Step { session_id: String, response_id: String },
}

impl Leaving {
    /// A place that is to be given up unless [`Unsure::settle`] is called.
    pub(crate) fn unsure(&self, scope: &Scope, place: LeftPlace) -> Unsure<'_> {
        Unsure { leaving: self, left: Some(Left { scope: scope.clone(), place, since: Instant::now() }) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// One of them. It stays one until it is settled.
    pub(crate) fn next(&self) -> Option<Unsure<'_>> {
        let mut places = self.lock();
        let left = (!places.is_empty()).then(|| places.remove(0))?;
        Some(Unsure { leaving: self, left: Some(left) })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place whose fate is not known.
#[derive(Debug)]
pub(crate) struct Unsure<'a> {
    leaving: &'a Leaving,
    left: Option<Left>,
}

impl Unsure<'_> {
    /// What is to be given up.
    pub(crate) fn left(&self) -> Left {
        self.left.clone().expect("it is there until it is settled")
    }

    /// It is known what became of it.
    pub(crate) fn settle(mut self) {
        self.left = None;
    }

    /// It was looked for, and is gone or not. One that may still come is looked for again.
    pub(crate) fn looked_for(self, found: bool) {
        let may_come = self
            .left
            .as_ref()
            .is_some_and(|left| !matches!(left.place, LeftPlace::At(..)) && left.since.elapsed() < LONGEST);
        if found || !may_come {
            self.settle();
        }
    }
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.leaving.lock().push(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use amalgam_core::{Rights, TenantState};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "nobody is authenticated in tests")]
    fn a_place_stays_until_its_fate_is_known() {
        let leaving = Leaving::default();
        let scope = Scope::authenticated(1, "anna", TenantState::Stored, Rights::USE);
        leaving.unsure(&scope, LeftPlace::Marked(1)).settle();
        assert_eq!(leaving.count(), 0);
        drop(leaving.unsure(&scope, LeftPlace::Marked(2)));
        drop(leaving.unsure(&scope, LeftPlace::At(Ticket { session_id: 1, number: 7 }, None)));
        assert_eq!(leaving.count(), 2);

        // Nobody can say yet whether the mark will be there; the place itself is gone or not.
        leaving.next().unwrap().looked_for(false);
        leaving.next().unwrap().looked_for(false);
        assert_eq!(leaving.count(), 1);
        drop(leaving.next().unwrap());
        assert!(matches!(leaving.next().unwrap().left().place, LeftPlace::Marked(2)));
        leaving.next().unwrap().looked_for(true);
        assert_eq!(leaving.count(), 0);
    }
}
