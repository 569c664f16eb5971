//! Listens in on one call of a model, so that it can be shown exactly as it was.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// Removes what must not be kept.
type Clean = Arc<dyn Fn(Bytes) -> Bytes + Send + Sync>;

/// What a transport notes while it carries one call. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Tap(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    heard: Vec<u8>,
    /// A body that came in one piece.
    whole: Option<Bytes>,
    last: Option<Bytes>,
    status: Option<u16>,
    keeps_last: bool,
    cut: bool,
    retries: u32,
    clean: Option<Clean>,
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The answer's body, as far as it came and is kept.
    pub body: Bytes,
    /// Whether it was longer.
    pub cut: bool,
    /// Tries after the first.
    pub retries: u32,
    /// The HTTP status of an answer that is no success, or has no body.
    pub status: Option<u16>,
    /// The data of the event that ended a stream, where that was asked for.
    pub last: Option<Bytes>,
}

impl Tap {
    /// The most bytes of a stream that are kept, and of any answer in a transcript.
    pub const KEPT_BYTES: usize = 4 * 1024 * 1024;

    /// A tap that keeps the event that ends a stream apart, however long the stream is.
    pub fn keeping_last() -> Self {
        let tap = Self::default();
        tap.state().keeps_last = true;
        tap
    }

    /// Whether the event that ends a stream is wanted.
    pub fn keeps_last(&self) -> bool {
        self.state().keeps_last
    }

    /// The data of the event that ended a stream.
    pub fn last(&self, data: Bytes) {
        self.state().last = Some(data);
    }

    /// The whole body of an answer.
    pub fn whole(&self, body: &Bytes) {
        let mut state = self.state();
        state.whole = Some(body.clone());
        if body.is_empty() {
            state.status = Some(200);
        }
    }

    /// The body of an answer that is no success.
    pub fn refused(&self, status: u16, body: &[u8]) {
        self.state().status = Some(status);
        self.hear(body);
    }

    /// More of the answer's body.
    pub fn hear(&self, piece: &[u8]) {
        let mut state = self.state();
        let room = Self::KEPT_BYTES - state.heard.len();
        state.cut |= piece.len() > room;
        state.heard.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// The call is made once more; what was heard of the answer before does not count.
    pub fn again(&self) {
        let mut state = self.state();
        state.retries += 1;
        state.heard.clear();
        state.cut = false;
        (state.whole, state.last, state.status) = (None, None, None);
    }

    /// Everything that is heard goes through `clean` before anybody sees it.
    pub fn clean_with(&self, clean: Clean) {
        self.state().clean = Some(clean);
    }

    /// What was heard so far; listening is over.
    pub fn take(&self) -> Heard {
        let State { heard, whole, last, status, clean, cut, retries, .. } = std::mem::take(&mut *self.state());
        let cleaned = |bytes: Bytes| match &clean {
            Some(clean) => clean(bytes),
            None => bytes,
        };
        let body = cleaned(whole.unwrap_or_else(|| heard.into()));
        Heard { body, cut, retries, status, last: last.map(cleaned) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tap")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_and_says_so() {
        let tap = Tap::default();
        tap.hear(&vec![b'x'; Tap::KEPT_BYTES - 1]);
        tap.hear(b"yz");
        tap.hear(b"more");
        let heard = tap.take();
        assert_eq!((heard.body.len(), heard.cut, heard.body.last()), (Tap::KEPT_BYTES, true, Some(&b'y')));
    }

    #[test]
    fn another_try_forgets_the_answer_before_and_is_counted() {
        let tap = Tap::default();
        tap.hear(b"refused");
        tap.again();
        tap.hear(b"fine");
        let body = Bytes::from_static(b"fine");
        assert_eq!(tap.take(), Heard { body, cut: false, retries: 1, status: None, last: None });
    }

    // P12
    #[test]
    fn nobody_sees_what_was_to_be_removed() {
        let tap = Tap::default();
        tap.clean_with(Arc::new(|heard| String::from_utf8_lossy(&heard).replace("sk-1", "[redacted]").into()));
        tap.hear(b"wrong key sk-");
        tap.hear(b"1!");
        assert_eq!(tap.take().body, Bytes::from_static(b"wrong key [redacted]!"));
    }
}
