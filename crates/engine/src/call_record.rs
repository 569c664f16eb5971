//! Takes down the calls of a turn's models, exactly as they were.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{
    CallRecorder, Candidate, Clock, Fault, Loss, PreparedRequest, RawAnswer,
    store::{Base, Transcript},
};
use amalgam_protocol::{Json, Usage, Writer};
use bytes::Bytes;

/// Bytes of request bodies that are remembered, so that the next turn of a chain is written as what is new in it.
const REMEMBERED_BYTES: usize = 32 * 1024 * 1024;

/// A common beginning shorter than this is not worth a second row to read.
const WORTH_SHARING: usize = 1024;

/// A call that is so near to the end of its time may be cleared away before one that builds on it is written.
const ON_ITS_WAY: Duration = Duration::from_secs(300);

/// The model calls of one turn, shared by the code that makes them and the code that stores them. Does nothing unless
/// they are stored.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallRecord {
    calls: Option<Arc<Mutex<Calls>>>,
    /// Whether the model of the running call has said something.
    said: bool,
}

#[derive(Debug, Default)]
struct Calls {
    keeping: Keeping,
    /// Calls that are over.
    over: Vec<Transcript>,
    /// What came in the last of them.
    raw: Option<RawAnswer>,
    running: Option<Running>,
}

/// What is kept of a turn's calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keeping {
    /// Requests and answers, for as long as the operator keeps them.
    pub(crate) transcripts: bool,
    /// The last answer as it came, for as long as the response is there.
    pub(crate) raw_answer: bool,
}

#[derive(Debug)]
struct Running {
    upstream: String,
    model: String,
    /// What the upstream calls the model.
    named: Option<String>,
    request: Bytes,
    recorder: CallRecorder,
    asked_at_ms: u64,
    first_token_ms: Option<u64>,
    losses: Vec<String>,
}

impl CallRecord {
    pub(crate) fn new(keeping: Keeping) -> Self {
        let kept = keeping.transcripts || keeping.raw_answer;
        let calls = kept.then(|| Arc::new(Mutex::new(Calls { keeping, ..Calls::default() })));
        Self { calls, said: false }
    }

    fn calls(&self) -> Option<MutexGuard<'_, Calls>> {
        self.calls.as_ref().map(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A model is about to be asked.
    pub(crate) fn begin(&mut self, candidate: &Candidate, prepared: &mut PreparedRequest, now_ms: u64) {
        self.said = false;
        // Without a body no upstream is asked.
        let Some(mut calls) = self.calls().filter(|_| !prepared.body.is_empty()) else { return };
        let recorder = match calls.keeping.raw_answer {
            true => CallRecorder::keeping_last(),
            false => CallRecorder::default(),
        };
        prepared.answer_context.recorder = Some(recorder.clone());
        calls.running = Some(Running {
            upstream: candidate.upstream.clone(),
            model: candidate.name.clone(),
            named: None,
            request: match calls.keeping.transcripts {
                true => prepared.body.clone(),
                false => Bytes::new(),
            },
            recorder,
            asked_at_ms: now_ms,
            first_token_ms: None,
            losses: prepared.losses.iter().map(ToString::to_string).collect(),
        });
    }

    /// The model has accepted; this is all that it does not see.
    pub(crate) fn accepted(&mut self, losses: &[Loss]) {
        if let Some(running) = self.calls().as_mut().and_then(|calls| calls.running.as_mut()) {
            running.losses = losses.iter().map(ToString::to_string).collect();
        }
    }

    /// The upstream has said what it calls the model.
    pub(crate) fn named(&mut self, model: &str) {
        if let Some(running) = self.calls().as_mut().and_then(|calls| calls.running.as_mut()) {
            running.named = Some(model.to_owned());
        }
    }

    /// The model says something.
    pub(crate) fn said(&mut self, clock: &dyn Clock) {
        if std::mem::replace(&mut self.said, true) {
            return;
        }
        if let Some(running) = self.calls().as_mut().and_then(|calls| calls.running.as_mut()) {
            running.first_token_ms = Some(clock.now_ms().saturating_sub(running.asked_at_ms));
        }
    }

    /// The call failed, and another one follows.
    pub(crate) fn failed(&mut self, why: &dyn fmt::Display, now_ms: u64) {
        self.close(Some(why), None, now_ms);
    }

    /// A call is over.
    pub(crate) fn end(&mut self, fault: Option<&Fault>, usage: Option<Usage>, now_ms: u64) {
        self.close(fault.map(|fault| fault as &dyn fmt::Display), usage, now_ms);
    }

    fn close(&self, error: Option<&dyn fmt::Display>, usage: Option<Usage>, now_ms: u64) {
        if let Some(mut calls) = self.calls() {
            calls.close(error, usage, now_ms);
        }
    }

    /// All calls of a turn that is over. One whose end was not seen ends here, for this reason.
    pub(crate) fn take(&self, why: &dyn fmt::Display, now_ms: u64) -> Vec<Transcript> {
        let Some(mut calls) = self.calls() else { return Vec::new() };
        calls.close(Some(why), None, now_ms);
        std::mem::take(&mut calls.over)
    }

    /// What came in the last call of a turn that is over, where that is kept.
    pub(crate) fn take_raw(&self) -> Option<RawAnswer> {
        self.calls()?.raw.take()
    }
}

impl Calls {
    fn close(&mut self, error: Option<&dyn fmt::Display>, usage: Option<Usage>, now_ms: u64) {
        let Some(running) = self.running.take() else { return };
        let heard = running.recorder.take();
        if self.keeping.raw_answer {
            let model = running.named.or_else(|| Some(running.model.clone()));
            self.raw = Some(RawAnswer::of(&heard, model, error.is_some()));
        }
        if !self.keeping.transcripts {
            return;
        }
        self.over.push(Transcript {
            number: u32::try_from(self.over.len()).unwrap_or(u32::MAX),
            upstream: running.upstream,
            model: running.model,
            asked_at_ms: running.asked_at_ms,
            first_token_ms: running.first_token_ms,
            duration_ms: now_ms.saturating_sub(running.asked_at_ms),
            retries: heard.retries,
            base: None,
            request: running.request,
            response: heard.body.slice(..heard.body.len().min(CallRecorder::KEPT_BYTES)),
            cut: heard.cut || heard.body.len() > CallRecorder::KEPT_BYTES,
            usage: usage.map(|usage| {
                let mut writer = Writer::with_capacity(256);
                usage.write(&mut writer);
                Json::from_writer(writer)
            }),
            losses: running.losses,
            error: error.map(ToString::to_string),
        });
    }
}

/// The last request bodies of chains that go on, by the response that each was sent for. All clones are one.
#[derive(Clone, Default)]
pub(crate) struct Bodies {
    remembered: Arc<Mutex<Remembered>>,
    /// How long the store keeps calls.
    kept_for: Duration,
}

#[derive(Default)]
struct Remembered {
    by_response: HashMap<String, Sent>,
    /// The oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// A request body that is kept whole, or can be put together.
#[derive(Clone)]
pub(crate) struct Sent {
    number: u32,
    asked_at_ms: u64,
    body: Bytes,
}

impl Bodies {
    pub(crate) fn new(kept_for: Duration) -> Self {
        Self { remembered: Arc::default(), kept_for }
    }

    /// Takes out of each of a response's calls the beginning that it has in common with the one before it; before the first
    /// is the last one of the response that this one continues. What comes is to be remembered for the response that
    /// continues this one, once the calls are in the store: nothing builds on what is not there.
    pub(crate) fn share(
        &self,
        previous: Option<&str>,
        response_id: &str,
        calls: &mut [Transcript],
        now_ms: u64,
    ) -> Option<Sent> {
        let earlier = previous.and_then(|id| Some((id, self.lock().by_response.get(id)?.clone())));
        let mut before = earlier.filter(|(_, sent)| self.stays(sent, now_ms));
        for call in calls {
            let whole = call.request.clone();
            if let Some((id, sent)) = &before {
                let shared = common_beginning(&sent.body, &whole);
                if shared >= WORTH_SHARING {
                    let (response_id, number) = ((*id).to_owned(), sent.number);
                    call.base = Some(Base { response_id, number, shared: shared as u64 });
                    call.request = whole.slice(shared..);
                }
            }
            if whole.len() >= WORTH_SHARING {
                let sent = Sent { number: call.number, asked_at_ms: call.asked_at_ms, body: whole };
                before = Some((response_id, sent));
            }
        }
        before.filter(|(id, _)| *id == response_id).map(|(_, sent)| sent)
    }

    /// Remembers a body that is in the store.
    pub(crate) fn remember(&self, response_id: &str, sent: Sent) {
        self.lock().keep(response_id, sent);
    }

    /// Whether a call is still there when one that builds on it comes into the store.
    fn stays(&self, sent: &Sent, now_ms: u64) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(sent.asked_at_ms));
        age + ON_ITS_WAY < self.kept_for
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn keep(&mut self, response_id: &str, sent: Sent) {
        self.bytes += sent.body.len();
        if let Some(replaced) = self.by_response.insert(response_id.to_owned(), sent) {
            self.bytes -= replaced.body.len();
        } else {
            self.order.push_back(response_id.to_owned());
        }
        while self.bytes > REMEMBERED_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(forgotten) = self.by_response.remove(&oldest) {
                self.bytes -= forgotten.body.len();
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

    const HOUR: Duration = Duration::from_secs(3600);

    /// A response with one call, which is kept.
    fn kept(bodies: &Bodies, previous: Option<&str>, id: &str, mut call: Transcript) -> Transcript {
        let now_ms = call.asked_at_ms;
        if let Some(sent) = bodies.share(previous, id, std::slice::from_mut(&mut call), now_ms) {
            bodies.remember(id, sent);
        }
        call
    }

    #[test]
    fn the_next_turn_of_a_chain_is_kept_as_what_is_new_in_it() {
        let bodies = Bodies::new(HOUR);
        let long = "said before ".repeat(200);
        let first = kept(&bodies, None, "a", call(1, format!("[{long}]").as_bytes()));
        assert_eq!((first.base, first.request.len()), (None, long.len() + 2));
        let second = kept(&bodies, Some("a"), "b", call(0, format!("[{long},new]").as_bytes()));
        let shared = long.len() as u64 + 1;
        assert_eq!(second.base, Some(Base { response_id: "a".into(), number: 1, shared }));
        assert_eq!(second.request, Bytes::from_static(b",new]"));
        let third = kept(&bodies, Some("b"), "c", call(0, format!("[{long},new,newer]").as_bytes()));
        assert_eq!(third.base.unwrap().shared, shared + 4);
    }

    #[test]
    fn a_later_round_is_kept_as_what_is_new_in_it() {
        let bodies = Bodies::default();
        let long = "x".repeat(2000);
        let mut calls = [call(0, long.as_bytes()), call(1, format!("{long}y").as_bytes())];
        assert!(bodies.share(None, "a", &mut calls, 0).is_some_and(|sent| sent.number == 1));
        assert_eq!(calls[1].base, Some(Base { response_id: "a".into(), number: 0, shared: 2000 }));
        assert_eq!(calls[1].request, Bytes::from_static(b"y"));
    }

    #[test]
    fn what_is_not_remembered_or_too_different_is_kept_whole() {
        let bodies = Bodies::new(HOUR);
        let long = "x".repeat(4000);
        kept(&bodies, None, "a", call(0, long.as_bytes()));
        for (previous, body) in [("never", long.clone()), ("a", format!("other{long}"))] {
            let next = kept(&bodies, Some(previous), "b", call(0, body.as_bytes()));
            assert_eq!((next.base, next.request.len()), (None, body.len()));
        }
    }

    #[test]
    fn nothing_builds_on_a_call_that_is_about_to_be_cleared_away_or_was_not_kept() {
        let bodies = Bodies::new(HOUR);
        let long = "x".repeat(4000);
        kept(&bodies, None, "a", call(0, long.as_bytes()));
        let last = u64::try_from((HOUR - ON_ITS_WAY).as_millis()).unwrap();
        for (asked_at_ms, shares) in [(last - 1, true), (last, false), (2 * last, false)] {
            let next = kept(&bodies, Some("a"), "b", Transcript { asked_at_ms, ..call(0, long.as_bytes()) });
            assert_eq!(next.base.is_some(), shares, "{asked_at_ms}");
        }
        // Its end could not be written.
        assert!(bodies.share(None, "c", &mut [call(0, long.as_bytes())], 0).is_some());
        assert_eq!(kept(&bodies, Some("c"), "d", call(0, long.as_bytes())).base, None);
    }

    #[test]
    fn no_more_is_remembered_than_the_bound() {
        let bodies = Bodies::new(HOUR);
        let body = vec![b'x'; REMEMBERED_BYTES / 4];
        for id in 0..10 {
            kept(&bodies, None, &id.to_string(), call(0, &body));
        }
        let remembered = bodies.lock();
        assert_eq!((remembered.by_response.len(), remembered.order.len()), (4, 4));
        assert!(remembered.bytes <= REMEMBERED_BYTES && remembered.by_response.contains_key("9"));
    }
}
