//! Records one call of a model, so that its transcript can be stored and returned byte for byte.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// Removes secrets from recorded bytes.
type Redact = Arc<dyn Fn(Bytes) -> Bytes + Send + Sync>;

/// Records the answer of one call while the transport reads it. Cheap to clone; all clones share one recording.
#[derive(Clone, Default)]
pub struct CallRecorder(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    recorded: Vec<u8>,
    /// A body that arrived as one chunk.
    whole: Option<Bytes>,
    last: Option<Bytes>,
    status: Option<u16>,
    keeps_last: bool,
    /// Whether only attempts are counted.
    counts_only: bool,
    cut: bool,
    retries: u32,
    redact: Option<Redact>,
}

/// The recording of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRecording {
    /// The answer's body, as far as it arrived, up to [`CallRecorder::KEPT_BYTES`].
    pub body: Bytes,
    /// Whether the body was longer.
    pub cut: bool,
    /// Attempts after the first.
    pub retries: u32,
    /// The HTTP status of an answer that is not successful or has no body.
    pub status: Option<u16>,
    /// The data of the event that ended a stream, if the recorder stores it.
    pub last: Option<Bytes>,
}

impl CallRecorder {
    /// The maximum number of recorded bytes of a stream, and of any answer in a transcript.
    pub const KEPT_BYTES: usize = 4 * 1024 * 1024;

    /// A recorder that stores the last event of a stream separately, however long the stream is.
    pub fn keeping_last() -> Self {
        let recorder = Self::default();
        recorder.state().keeps_last = true;
        recorder
    }

    /// A recorder that counts attempts and stores no answer.
    pub fn counting_only() -> Self {
        let recorder = Self::default();
        recorder.state().counts_only = true;
        recorder
    }

    /// Whether the last event of a stream is stored.
    pub fn keeps_last(&self) -> bool {
        self.state().keeps_last
    }

    /// Records the data of the last event of a stream.
    pub fn last(&self, data: Bytes) {
        self.state().last = Some(data);
    }

    /// Records a complete body.
    pub fn whole(&self, body: &Bytes) {
        let mut state = self.state();
        if state.counts_only {
            return;
        }
        state.whole = Some(body.clone());
        if body.is_empty() {
            state.status = Some(200);
        }
    }

    /// Records an answer that is not successful.
    pub fn refused(&self, status: u16, body: &[u8]) {
        self.state().status = Some(status);
        self.record(body);
    }

    /// Appends to the recorded body.
    pub fn record(&self, chunk: &[u8]) {
        let mut state = self.state();
        if state.counts_only {
            return;
        }
        let room = Self::KEPT_BYTES - state.recorded.len();
        state.cut |= chunk.len() > room;
        state.recorded.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    }

    /// Starts over for another attempt, and discards the recorded answer.
    pub fn restart(&self) {
        let mut state = self.state();
        state.retries += 1;
        state.recorded.clear();
        state.cut = false;
        (state.whole, state.last, state.status) = (None, None, None);
    }

    /// Passes everything through `redact` before it leaves the recorder.
    pub fn redact_with(&self, redact: Redact) {
        self.state().redact = Some(redact);
    }

    /// Ends the recording and returns it.
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
    fn secrets_are_removed_from_the_recording() {
        let recorder = CallRecorder::default();
        recorder
            .redact_with(Arc::new(|recorded| String::from_utf8_lossy(&recorded).replace("sk-1", "[redacted]").into()));
        recorder.record(b"wrong key sk-");
        recorder.record(b"1!");
        assert_eq!(recorder.take().body, Bytes::from_static(b"wrong key [redacted]!"));
    }
}
