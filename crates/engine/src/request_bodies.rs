//! The last request bodies of chains: a later call is stored as its difference from the one before it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::store::{Base, Transcript};
use bytes::Bytes;

/// The size of the cache of request bodies. A later turn of a chain is stored as its difference from a cached body.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// A shorter common prefix is not worth reading a second row.
const MIN_SHARED_BYTES: usize = 1024;

/// A base call that expires within this time may be pruned before the call that refers to it is written.
const WRITE_MARGIN: Duration = Duration::from_secs(300);

/// The last request bodies of chains, by response. Clones share one cache.
#[derive(Clone, Default)]
pub(crate) struct RequestBodies {
    remembered: Arc<Mutex<BodyCache>>,
    /// The retention of transcripts.
    kept_for: Duration,
}

#[derive(Default)]
struct BodyCache {
    by_response: HashMap<String, SentBody>,
    /// Oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// A request body that the store has, whole or as base and difference.
#[derive(Clone)]
pub(crate) struct SentBody {
    number: u32,
    asked_at_ms: u64,
    body: Bytes,
}

impl RequestBodies {
    pub(crate) fn new(kept_for: Duration) -> Self {
        Self { remembered: Arc::default(), kept_for }
    }

    /// Removes from each call the prefix that it shares with the call before it; the call before the first one is the
    /// last call of the `previous` response. Returns the body to [`Self::remember`] once the calls are in the store: a
    /// call must not refer to one that is not stored.
    pub(crate) fn share(
        &self,
        previous: Option<&str>,
        response_id: &str,
        calls: &mut [Transcript],
        now_ms: u64,
    ) -> Option<SentBody> {
        let earlier = previous.and_then(|id| Some((id, self.lock().by_response.get(id)?.clone())));
        let mut before = earlier.filter(|(_, sent)| self.outlives_write(sent, now_ms));
        for call in calls {
            let whole = call.request.clone();
            if let Some((id, sent)) = &before {
                let shared = common_beginning(&sent.body, &whole);
                if shared >= MIN_SHARED_BYTES {
                    let (response_id, number) = ((*id).to_owned(), sent.number);
                    call.base = Some(Base { response_id, number, shared: shared as u64 });
                    call.request = whole.slice(shared..);
                }
            }
            if whole.len() >= MIN_SHARED_BYTES {
                let sent = SentBody { number: call.number, asked_at_ms: call.asked_at_ms, body: whole };
                before = Some((response_id, sent));
            }
        }
        before.filter(|(id, _)| *id == response_id).map(|(_, sent)| sent)
    }

    /// Caches a body that is in the store.
    pub(crate) fn remember(&self, response_id: &str, sent: SentBody) {
        self.lock().insert(response_id, sent);
    }

    /// Whether a base call is still stored when the call that refers to it is written.
    fn outlives_write(&self, sent: &SentBody, now_ms: u64) -> bool {
        let age = Duration::from_millis(now_ms.saturating_sub(sent.asked_at_ms));
        age + WRITE_MARGIN < self.kept_for
    }

    fn lock(&self) -> MutexGuard<'_, BodyCache> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyCache {
    fn insert(&mut self, response_id: &str, sent: SentBody) {
        self.bytes += sent.body.len();
        if let Some(replaced) = self.by_response.insert(response_id.to_owned(), sent) {
            self.bytes -= replaced.body.len();
        } else {
            self.order.push_back(response_id.to_owned());
        }
        while self.bytes > CACHE_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(forgotten) = self.by_response.remove(&oldest) {
                self.bytes -= forgotten.body.len();
            }
        }
    }
}

/// The length of the common prefix of two bodies.
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

    /// A stored response with one call.
    fn recorded(bodies: &RequestBodies, previous: Option<&str>, id: &str, mut call: Transcript) -> Transcript {
        let now_ms = call.asked_at_ms;
        if let Some(sent) = bodies.share(previous, id, std::slice::from_mut(&mut call), now_ms) {
            bodies.remember(id, sent);
        }
        call
    }

    #[test]
    fn the_next_turn_of_a_chain_is_kept_as_what_is_new_in_it() {
        let bodies = RequestBodies::new(HOUR);
        let long = "said before ".repeat(200);
        let first = recorded(&bodies, None, "a", call(1, format!("[{long}]").as_bytes()));
        assert_eq!((first.base, first.request.len()), (None, long.len() + 2));
        let second = recorded(&bodies, Some("a"), "b", call(0, format!("[{long},new]").as_bytes()));
        let shared = long.len() as u64 + 1;
        assert_eq!(second.base, Some(Base { response_id: "a".into(), number: 1, shared }));
        assert_eq!(second.request, Bytes::from_static(b",new]"));
        let third = recorded(&bodies, Some("b"), "c", call(0, format!("[{long},new,newer]").as_bytes()));
        assert_eq!(third.base.unwrap().shared, shared + 4);
    }

    #[test]
    fn a_later_round_is_kept_as_what_is_new_in_it() {
        let bodies = RequestBodies::default();
        let long = "x".repeat(2000);
        let mut calls = [call(0, long.as_bytes()), call(1, format!("{long}y").as_bytes())];
        assert!(bodies.share(None, "a", &mut calls, 0).is_some_and(|sent| sent.number == 1));
        assert_eq!(calls[1].base, Some(Base { response_id: "a".into(), number: 0, shared: 2000 }));
        assert_eq!(calls[1].request, Bytes::from_static(b"y"));
    }

    #[test]
    fn what_is_not_remembered_or_too_different_is_kept_whole() {
        let bodies = RequestBodies::new(HOUR);
        let long = "x".repeat(4000);
        recorded(&bodies, None, "a", call(0, long.as_bytes()));
        for (previous, body) in [("never", long.clone()), ("a", format!("other{long}"))] {
            let next = recorded(&bodies, Some(previous), "b", call(0, body.as_bytes()));
            assert_eq!((next.base, next.request.len()), (None, body.len()));
        }
    }

    #[test]
    fn nothing_builds_on_a_call_that_is_about_to_be_cleared_away_or_was_not_kept() {
        let bodies = RequestBodies::new(HOUR);
        let long = "x".repeat(4000);
        recorded(&bodies, None, "a", call(0, long.as_bytes()));
        let last = u64::try_from((HOUR - WRITE_MARGIN).as_millis()).unwrap();
        for (asked_at_ms, shares) in [(last - 1, true), (last, false), (2 * last, false)] {
            let next = recorded(&bodies, Some("a"), "b", Transcript { asked_at_ms, ..call(0, long.as_bytes()) });
            assert_eq!(next.base.is_some(), shares, "{asked_at_ms}");
        }
        // The end of `c` was not written.
        assert!(bodies.share(None, "c", &mut [call(0, long.as_bytes())], 0).is_some());
        assert_eq!(recorded(&bodies, Some("c"), "d", call(0, long.as_bytes())).base, None);
    }

    #[test]
    fn no_more_is_remembered_than_the_bound() {
        let bodies = RequestBodies::new(HOUR);
        let body = vec![b'x'; CACHE_BYTES / 4];
        for id in 0..10 {
            recorded(&bodies, None, &id.to_string(), call(0, &body));
        }
        let remembered = bodies.lock();
        assert_eq!((remembered.by_response.len(), remembered.order.len()), (4, 4));
        assert!(remembered.bytes <= CACHE_BYTES && remembered.by_response.contains_key("9"));
    }
}
