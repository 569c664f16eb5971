//! Listens in on one call of a model, so that it can be shown exactly as it was.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// The most bytes of an answer that are kept.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Removes what must not be kept.
type Clean = Arc<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// What a transport notes while it carries one call. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Tap(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    heard: Vec<u8>,
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
}

impl Tap {
    /// More of the answer's body.
    pub fn hear(&self, piece: &[u8]) {
        let mut state = self.state();
        let room = KEPT_BYTES - state.heard.len();
        state.cut |= piece.len() > room;
        state.heard.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// The call is made once more; what was heard of the answer before does not count.
    pub fn again(&self) {
        let mut state = self.state();
        state.retries += 1;
        state.heard.clear();
        state.cut = false;
    }

    /// Everything that is heard goes through `clean` before anybody sees it.
    pub fn clean_with(&self, clean: Clean) {
        self.state().clean = Some(clean);
    }

    /// What was heard so far; listening is over.
    pub fn take(&self) -> Heard {
        let (heard, clean, cut, retries) = {
            let mut state = self.state();
            (std::mem::take(&mut state.heard), state.clean.clone(), state.cut, state.retries)
        };
        let body = match clean {
            Some(clean) => clean(heard),
            None => heard,
        };
        Heard { body: body.into(), cut, retries }
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
        tap.hear(&vec![b'x'; KEPT_BYTES - 1]);
        tap.hear(b"yz");
        tap.hear(b"more");
        let heard = tap.take();
        assert_eq!((heard.body.len(), heard.cut, heard.body.last()), (KEPT_BYTES, true, Some(&b'y')));
    }

    #[test]
    fn another_try_forgets_the_answer_before_and_is_counted() {
        let tap = Tap::default();
        tap.hear(b"refused");
        tap.again();
        tap.hear(b"fine");
        assert_eq!(tap.take(), Heard { body: Bytes::from_static(b"fine"), cut: false, retries: 1 });
    }

    // P12
    #[test]
    fn nobody_sees_what_was_to_be_removed() {
        let tap = Tap::default();
        tap.clean_with(Arc::new(|heard| String::from_utf8_lossy(&heard).replace("sk-1", "[redacted]").into_bytes()));
        tap.hear(b"wrong key sk-");
        tap.hear(b"1!");
        assert_eq!(tap.take().body, Bytes::from_static(b"wrong key [redacted]!"));
    }
}
