//! Listens in on one call of a model, so that it can be shown exactly as it was.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// Removes what must not be kept.
type Redact = Arc<dyn Fn(Bytes) -> Bytes + Send + Sync>;

/// What a transport notes while it carries one call. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct CallRecorder(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    recorded: Vec<u8>,
    /// A body that came in one piece.
    whole: Option<Bytes>,
    last: Option<Bytes>,
    status: Option<u16>,
    keeps_last: bool,
    cut: bool,
    retries: u32,
    redact: Option<Redact>,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecording {
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

impl CallRecorder {
    /// The most bytes of a stream that are kept, and of any answer in a transcript.
    pub const KEPT_BYTES: usize = 4 * 1024 * 1024;

    /// A recorder that keeps the event that ends a stream apart, however long the stream is.
    pub fn keeping_last() -> Self {
        let recorder = Self::default();
        recorder.state().keeps_last = true;
        recorder
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
        self.record(body);
    }

    /// More of the answer's body.
    pub fn record(&self, piece: &[u8]) {
        let mut state = self.state();
        let room = Self::KEPT_BYTES - state.recorded.len();
        state.cut |= piece.len() > room;
        state.recorded.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }

    /// The call is made once more; what was recorded of the answer before does not count.
    pub fn restart(&self) {
        let mut state = self.state();
        state.retries += 1;
        state.recorded.clear();
        state.cut = false;
        (state.whole, state.last, state.status) = (None, None, None);
    }

    /// Everything that is recorded goes through `clean` before anybody sees it.
    pub fn redact_with(&self, redact: Redact) {
        self.state().redact = Some(redact);
    }

    /// What was recorded so far; listening is over.
    pub fn take(&self) -> CallRecording {
        let State { recorded, whole, last, status, redact, cut, retries, .. } = std::mem::take(&mut *self.state());
        let redacted = |bytes: Bytes| match &redact {
            Some(redact) => redact(bytes),
            None => bytes,
        };
        let body = redacted(whole.unwrap_or_else(|| recorded.into()));
        CallRecording { body, cut, retries, status, last: last.map(redacted) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CallRecorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CallRecorder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_is_cut_and_says_so() {
        let recorder = CallRecorder::default();
        recorder.record(&vec![b'x'; CallRecorder::KEPT_BYTES - 1]);
        recorder.record(b"yz");
        recorder.record(b"more");
        let recorded = recorder.take();
        assert_eq!(
            (recorded.body.len(), recorded.cut, recorded.body.last()),
            (CallRecorder::KEPT_BYTES, true, Some(&b'y'))
        );
    }

    #[test]
    fn another_try_forgets_the_answer_before_and_is_counted() {
        let recorder = CallRecorder::default();
        recorder.record(b"refused");
        recorder.restart();
        recorder.record(b"fine");
        let body = Bytes::from_static(b"fine");
        assert_eq!(recorder.take(), CallRecording { body, cut: false, retries: 1, status: None, last: None });
    }

    // P12
    #[test]
    fn nobody_sees_what_was_to_be_removed() {
        let recorder = CallRecorder::default();
        recorder
            .redact_with(Arc::new(|recorded| String::from_utf8_lossy(&recorded).replace("sk-1", "[redacted]").into()));
        recorder.record(b"wrong key sk-");
        recorder.record(b"1!");
        assert_eq!(recorder.take().body, Bytes::from_static(b"wrong key [redacted]!"));
    }
}
