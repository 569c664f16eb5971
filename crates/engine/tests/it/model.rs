//! A model that plays a script, and a turn to run it in.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{
    BoxFuture, CallMap, Candidate, Clock, Delivery, Fault, FaultKind, Fetch, Fetched, Finish, Loss, Model, ModelError,
    ModelEvent, ModelRequest, ModelStream, Note, Prepared, Store, normalise, store::ProcessId,
};
use amalgam_engine::{Admission, Ask, Engine, EngineSettings, Keep, Run};
use amalgam_protocol::{CreateResponse, Effective, ErrorObject, Literal, Raw, Settings};
use amalgam_store::sqlite::{Options, Sqlite};
use bytes::Bytes;
use futures_util::stream;

/// One step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Say(&'static str),
    Wait(Duration),
    Hang,
    Cut,
    Finish,
}

/// Plays one script a call; an error refuses the call.
pub(crate) struct Scripted {
    scripts: Mutex<VecDeque<Result<Vec<Step>, ModelError>>>,
    pub(crate) asked: AtomicUsize,
    pub(crate) dropped: Arc<AtomicUsize>,
    pub(crate) images: Mutex<HashMap<String, String>>,
    wants_images: bool,
}

impl Scripted {
    pub(crate) fn new(scripts: Vec<Result<Vec<Step>, ModelError>>) -> Arc<Self> {
        Arc::new(Self::bare(scripts, false))
    }

    pub(crate) fn wanting_images(scripts: Vec<Result<Vec<Step>, ModelError>>) -> Arc<Self> {
        Arc::new(Self::bare(scripts, true))
    }

    fn bare(scripts: Vec<Result<Vec<Step>, ModelError>>, wants_images: bool) -> Self {
        Self {
            scripts: Mutex::new(scripts.into()),
            asked: AtomicUsize::new(0),
            dropped: Arc::default(),
            images: Mutex::default(),
            wants_images,
        }
    }
}

/// Counts when the stream that holds it is dropped.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Model for Scripted {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<Prepared, Fault> {
        *self.images.lock().unwrap() = request.images.clone();
        Ok(Prepared {
            body: Bytes::from_static(b"{}"),
            losses: vec![Loss::new("top_logprobs", "not here")],
            delivery: request.delivery,
            calls: CallMap::default(),
            note: Note::default(),
        })
    }

    fn ask<'a>(&'a self, _prepared: &'a Prepared) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let script = self.scripts.lock().unwrap().pop_front().expect("the script has an answer for this call");
        let guard = Guard(Arc::clone(&self.dropped));
        Box::pin(async move {
            let steps = script?;
            let answer = stream::unfold((VecDeque::from(steps), guard), |(mut steps, guard)| async move {
                loop {
                    let event = match steps.pop_front()? {
                        Step::Wait(pause) => {
                            tokio::time::sleep(pause).await;
                            continue;
                        }
                        Step::Hang => {
                            std::future::pending::<()>().await;
                            continue;
                        }
                        Step::Cut => return Some((Err(ModelError::CutShort), (steps, guard))),
                        Step::Say(text) => ModelEvent::Text { delta: Literal::from_text(text), logprobs: None },
                        Step::Finish => ModelEvent::Finish(Finish::Stop),
                    };
                    return Some((Ok(vec![event]), (steps, guard)));
                }
            });
            Ok(Box::pin(answer) as ModelStream)
        })
    }

    fn wants_image_bytes(&self) -> bool {
        self.wants_images
    }
}

struct StandingClock;

impl Clock for StandingClock {
    fn now_ms(&self) -> u64 {
        1_700_000_000_000
    }
}

/// Finds a one-byte image everywhere but at addresses that say `text`.
struct Found;

impl Fetch for Found {
    fn fetch<'a>(&'a self, url: &'a str, _limit: usize) -> BoxFuture<'a, Result<Fetched, Fault>> {
        Box::pin(async move {
            if url.contains("forbidden") {
                return Err(Fault::new(FaultKind::Invalid, "refused"));
            }
            let media_type = if url.contains("text") { "text/html" } else { "image/png" };
            Ok(Fetched { media_type: media_type.to_owned(), bytes: Bytes::from_static(b"A") })
        })
    }
}

/// An engine over a store, as the process of this number.
pub(crate) fn engine_over(store: Arc<dyn Store>, admission: Admission, process: u128) -> Engine {
    let settings = EngineSettings {
        turn_deadline: Duration::from_secs(60),
        keepalive: Duration::from_secs(10),
        transcripts: true,
    };
    Engine::new(settings, admission, Arc::new(StandingClock), Arc::new(Found), store, ProcessId(process))
}

pub(crate) fn tell(fault: &Fault) -> ErrorObject {
    ErrorObject { message: fault.message.to_string(), kind: "server_error".into(), param: None, code: Some("x".into()) }
}

pub(crate) fn engine(room: usize) -> (Engine, Admission) {
    let admission = Admission::new(room);
    // Turns that are not kept never touch it, so that it may be gone by then.
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("store.db"), Options::default()).unwrap();
    (engine_over(Arc::new(store), admission.clone(), 1), admission)
}

pub(crate) fn candidate(model: &Arc<Scripted>) -> Candidate {
    Candidate {
        upstream: "u".to_owned(),
        model: Arc::clone(model) as Arc<dyn Model>,
        name: "m".to_owned(),
        context_window: None,
    }
}

/// Starts a turn with this body.
pub(crate) async fn start(
    engine: &Engine,
    candidates: &[Candidate],
    body: &str,
    delivery: Delivery,
    strict: bool,
) -> Result<Run, Fault> {
    start_kept(engine, candidates, body, delivery, strict, None).await
}

/// A turn that is kept, if it is said how.
pub(crate) async fn start_kept(
    engine: &Engine,
    candidates: &[Candidate],
    body: &str,
    delivery: Delivery,
    strict: bool,
    keep: Option<fn(&Settings) -> Keep>,
) -> Result<Run, Fault> {
    let request = CreateResponse::read(Raw::parse(body.as_bytes()).unwrap()).unwrap();
    let history = normalise(None, request.input.as_ref());
    let settings = Settings::new(&request, Effective { model: "m", stored: false, background: false });
    let ask = Ask {
        identity: engine.identity(),
        keep: keep.map(|keep| keep(&settings)),
        waited: None,
        candidates,
        request: &request,
        history: &history,
        settings,
        delivery,
        seal_context: "t",
        strict,
        losses: Vec::new(),
    };
    engine.start(ask, tell).await
}
