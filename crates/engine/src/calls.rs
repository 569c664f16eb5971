//! Takes down the calls of a turn's models, exactly as they were.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use amalgam_core::{
    Candidate, Clock, Fault, Loss, Prepared, Tap,
    store::{Base, Transcript},
};
use amalgam_protocol::{Json, Usage, Writer};
use bytes::Bytes;

use crate::record::Recorder;

/// Bytes of request bodies that are remembered, so that the next turn of a chain is written as what is new in it.
const REMEMBERED_BYTES: usize = 32 * 1024 * 1024;

/// A common beginning shorter than this is not worth a second row to read.
const WORTH_SHARING: usize = 1024;

/// The calls of one turn. Does nothing unless somebody keeps them.
#[derive(Debug, Default)]
pub(crate) struct Calling {
    kept: bool,
    /// Calls that are over.
    over: Vec<Transcript>,
    /// Calls that were handed on before.
    handed_on: usize,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    upstream: String,
    model: String,
    request: Bytes,
    tap: Tap,
    asked_at_ms: u64,
    first_token_ms: Option<u64>,
    losses: Vec<String>,
}

impl Calling {
    pub(crate) fn new(kept: bool) -> Self {
        Self { kept, ..Self::default() }
    }

    /// A model is about to be asked.
    pub(crate) fn begin(&mut self, candidate: &Candidate, prepared: &mut Prepared, now_ms: u64) {
        // Without a body nobody is asked.
        if !self.kept || prepared.body.is_empty() {
            return;
        }
        let tap = Tap::default();
        prepared.note.tap = Some(tap.clone());
        self.running = Some(Running {
            upstream: candidate.upstream.clone(),
            model: candidate.name.clone(),
            request: prepared.body.whole(),
            tap,
            asked_at_ms: now_ms,
            first_token_ms: None,
            losses: prepared.losses.iter().map(ToString::to_string).collect(),
        });
    }

    /// The model has accepted; this is all that it does not see.
    pub(crate) fn accepted(&mut self, losses: &[Loss]) {
        if let Some(running) = &mut self.running {
            running.losses = losses.iter().map(ToString::to_string).collect();
        }
    }

    /// The model says something.
    pub(crate) fn said(&mut self, clock: &dyn Clock) {
        if let Some(running) = &mut self.running
            && running.first_token_ms.is_none()
        {
            running.first_token_ms = Some(clock.now_ms().saturating_sub(running.asked_at_ms));
        }
    }

    /// The call failed, and another one follows.
    pub(crate) fn failed(&mut self, why: &dyn fmt::Display, now_ms: u64) {
        self.close(Some(why.to_string()), None, now_ms);
    }

    /// A call is over, and so are those before it.
    pub(crate) fn end(&mut self, fault: Option<&Fault>, usage: Option<Usage>, now_ms: u64, recorder: &mut Recorder) {
        self.close(fault.map(ToString::to_string), usage, now_ms);
        self.handed_on += self.over.len();
        self.over.drain(..).for_each(|call| recorder.called(call));
    }

    fn close(&mut self, error: Option<String>, usage: Option<Usage>, now_ms: u64) {
        let Some(running) = self.running.take() else { return };
        let heard = running.tap.take();
        let number = u32::try_from(self.handed_on + self.over.len()).unwrap_or(u32::MAX);
        self.over.push(Transcript {
            number,
            upstream: running.upstream,
            model: running.model,
            asked_at_ms: running.asked_at_ms,
            first_token_ms: running.first_token_ms,
            duration_ms: now_ms.saturating_sub(running.asked_at_ms),
            retries: heard.retries,
            base: None,
            request: running.request,
            response: heard.body,
            cut: heard.cut,
            usage: usage.map(|usage| {
                let mut writer = Writer::with_capacity(256);
                usage.write(&mut writer);
                Json::from_writer(writer)
            }),
            losses: running.losses,
            error,
        });
    }
}

/// The last request bodies of chains that go on, by the response that each was sent for. All clones are one.
#[derive(Clone, Default)]
pub(crate) struct Bodies(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    by_response: HashMap<String, (u32, Bytes)>,
    /// The oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Bodies {
    /// Takes the beginning that `call` has in common with the last one of the response it continues out of it, and
    /// remembers its body for the response that continues this one.
    pub(crate) fn share(&self, previous: Option<&str>, response_id: &str, call: &mut Transcript) {
        let whole = call.request.clone();
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(previous) = previous
            && let Some((number, earlier)) = remembered.by_response.get(previous)
        {
            let shared = common_beginning(earlier, &whole);
            if shared >= WORTH_SHARING {
                call.base = Some(Base { response_id: previous.to_owned(), number: *number, shared: shared as u64 });
                call.request = whole.slice(shared..);
            }
        }
        if whole.len() >= WORTH_SHARING {
            remembered.keep(response_id, call.number, whole);
        }
    }
}

impl Remembered {
    fn keep(&mut self, response_id: &str, number: u32, body: Bytes) {
        self.bytes += body.len();
        if let Some((_, replaced)) = self.by_response.insert(response_id.to_owned(), (number, body)) {
            self.bytes -= replaced.len();
        } else {
            self.order.push_back(response_id.to_owned());
        }
        while self.bytes > REMEMBERED_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some((_, forgotten)) = self.by_response.remove(&oldest) {
                self.bytes -= forgotten.len();
            }
        }
    }
}

/// How many bytes two bodies have in common at their beginning.
fn common_beginning(one: &[u8], other: &[u8]) -> usize {
    const STRIDE: usize = 256;
    let strides = one.chunks_exact(STRIDE).zip(other.chunks_exact(STRIDE)).take_while(|(one, other)| one == other);
    let same = strides.count() * STRIDE;
    let rest = one.iter().zip(other).skip(same).take_while(|(one, other)| one == other).count();
    same + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u32, request: &[u8]) -> Transcript {
        Transcript {
            number,
            upstream: String::new(),
            model: String::new(),
            asked_at_ms: 0,
            first_token_ms: None,
            duration_ms: 0,
            retries: 0,
            base: None,
            request: Bytes::copy_from_slice(request),
            response: Bytes::new(),
            cut: false,
            usage: None,
            losses: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn the_next_turn_of_a_chain_is_kept_as_what_is_new_in_it() {
        let bodies = Bodies::default();
        let long = "said before ".repeat(200);
        let mut first = call(1, format!("[{long}]").as_bytes());
        bodies.share(None, "a", &mut first);
        assert_eq!((first.base, first.request.len()), (None, long.len() + 2));
        let mut second = call(0, format!("[{long},new]").as_bytes());
        bodies.share(Some("a"), "b", &mut second);
        let shared = long.len() as u64 + 1;
        assert_eq!(second.base, Some(Base { response_id: "a".into(), number: 1, shared }));
        assert_eq!(second.request, Bytes::from_static(b",new]"));
        let mut third = call(0, format!("[{long},new,newer]").as_bytes());
        bodies.share(Some("b"), "c", &mut third);
        assert_eq!(third.base.unwrap().shared, shared + 4);
    }

    #[test]
    fn what_is_not_remembered_or_too_different_is_kept_whole() {
        let bodies = Bodies::default();
        let long = "x".repeat(4000);
        bodies.share(None, "a", &mut call(0, long.as_bytes()));
        for (previous, body) in [("never", long.clone()), ("a", format!("other{long}"))] {
            let mut next = call(0, body.as_bytes());
            bodies.share(Some(previous), "b", &mut next);
            assert_eq!((next.base, next.request.len()), (None, body.len()));
        }
    }

    #[test]
    fn no_more_is_remembered_than_the_bound() {
        let bodies = Bodies::default();
        let body = vec![b'x'; REMEMBERED_BYTES / 4];
        for id in 0..10 {
            bodies.share(None, &id.to_string(), &mut call(0, &body));
        }
        let remembered = bodies.0.lock().unwrap();
        assert_eq!((remembered.by_response.len(), remembered.order.len()), (4, 4));
        assert!(remembered.bytes <= REMEMBERED_BYTES && remembered.by_response.contains_key("9"));
    }
}
