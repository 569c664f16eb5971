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
    AnswerContext, BoxFuture, CallHead, CallKind, CallMap, Candidate, Clock, Delivery, Entry, Fault, FaultKind, Fetch,
    FetchedFile, Finish, Loss, Model, ModelError, ModelEvent, ModelRequest, ModelStream, Payload, PreparedRequest,
    Store, normalise, store::ProcessId,
};
use amalgam_engine::{
    Admission, AdmissionSettings, Engine, EngineSettings, ModelCall, Run, ToolLimits, TurnStart, TurnStorage,
};
use amalgam_protocol::{Effective, Literal, ResponseParameters, ResponseSettings, Usage};
use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use bytes::Bytes;
use futures_util::stream;

/// One step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Say(&'static str),
    Wait(Duration),
    /// Nothing, until all other tasks had a turn.
    Yield,
    Hang,
    Cut,
    /// A function's id, name and arguments.
    Call(&'static str, &'static str, &'static str),
    /// Tokens in and out.
    Cost(u64, u64),
    Event(ModelEvent),
    Finish,
    End(Finish),
}

/// What a model was asked, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// One line an entry; calls and their outputs are numbered by their ids.
    pub(crate) said: Vec<String>,
    pub(crate) choice: Option<String>,
    pub(crate) tools: usize,
    pub(crate) output_tokens: Option<u64>,
}

/// Plays one script a call; an error refuses the call.
pub(crate) struct Scripted {
    scripts: Mutex<VecDeque<Result<Vec<Step>, ModelError>>>,
    pub(crate) asked: AtomicUsize,
    pub(crate) dropped: Arc<AtomicUsize>,
    pub(crate) images: Mutex<HashMap<String, String>>,
    /// What it was asked, call by call.
    pub(crate) requests: Mutex<Vec<Asked>>,
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
            requests: Mutex::default(),
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
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        *self.images.lock().unwrap() = request.images.clone();
        let asked = Asked::of(request);
        let body = asked.said.join("\n").into_bytes().into();
        self.requests.lock().unwrap().push(asked);
        Ok(PreparedRequest {
            body,
            losses: vec![Loss::new("top_logprobs", "not here")],
            delivery: request.delivery,
            calls: CallMap::default(),
            answer_context: AnswerContext::default(),
        })
    }

    fn ask<'a>(&'a self, _prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let script = self.scripts.lock().unwrap().pop_front().expect("the script has an answer for this call");
        let guard = Guard(Arc::clone(&self.dropped));
        Box::pin(async move {
            let steps = script?;
            let answer = stream::unfold((VecDeque::from(steps), guard), |(mut steps, guard)| async move {
                loop {
                    let events = match steps.pop_front()? {
                        Step::Wait(pause) => {
                            tokio::time::sleep(pause).await;
                            continue;
                        }
                        Step::Yield => {
                            tokio::task::yield_now().await;
                            continue;
                        }
                        Step::Hang => {
                            std::future::pending::<()>().await;
                            continue;
                        }
                        Step::Cut => return Some((Err(ModelError::CutShort), (steps, guard))),
                        Step::Say(text) => vec![ModelEvent::Text { delta: Literal::from_text(text), logprobs: None }],
                        Step::Call(id, name, arguments) => call(id, name, arguments),
                        Step::Cost(input_tokens, output_tokens) => {
                            vec![ModelEvent::Usage(Usage { input_tokens, output_tokens, ..Usage::default() })]
                        }
                        Step::Event(event) => vec![event],
                        Step::Finish => vec![ModelEvent::Finish(Finish::Stop)],
                        Step::End(finish) => vec![ModelEvent::Finish(finish)],
                    };
                    return Some((Ok(events), (steps, guard)));
                }
            });
            let mut answer: ModelStream = Box::pin(answer);
            let answer = stream::poll_fn(move |context| answer.as_mut().poll_next(context));
            Ok(Box::pin(answer) as ModelStream)
        })
    }

    fn wants_image_bytes(&self) -> bool {
        self.wants_images
    }
}

impl Asked {
    fn of(request: &ModelRequest<'_>) -> Self {
        let mut ids: Vec<String> = Vec::new();
        let mut number = |id: &str| match ids.iter().position(|known| known == id) {
            Some(number) => number,
            None => {
                ids.push(id.to_owned());
                ids.len() - 1
            }
        };
        let said = request.history.instructions.iter().chain(&request.history.entries).map(|entry| match entry {
            Entry::Message { role, content, .. } => format!("{role:?}: {}", content.text()),
            Entry::Call(call) => {
                let Payload::Arguments(arguments) = call.payload else { panic!("{call:?}") };
                format!("call {}: {} {}", number(&call.call_id), call.name, arguments.decode())
            }
            Entry::Output(output) => format!("output {}: {}", number(&output.call_id), output.content.text()),
            other => format!("{other:?}"),
        });
        Self {
            said: said.collect(),
            choice: request.settings.tool_choice.as_ref().map(|choice| format!("{choice:?}")),
            tools: request.settings.tools.len(),
            output_tokens: request.settings.max_output_tokens,
        }
    }
}

/// The events of a function call, whole. Its key follows from its id.
pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Vec<ModelEvent> {
    let key = id.bytes().fold(0_u64, |key, byte| key * 256 + u64::from(byte));
    let head =
        CallHead { kind: CallKind::Function, call_id: Some(id.to_owned()), name: name.to_owned(), namespace: None };
    vec![
        ModelEvent::CallStart { key, call: head },
        ModelEvent::CallDelta { key, delta: Literal::from_text(arguments) },
        ModelEvent::CallEnd { key },
    ]
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
    fn fetch<'a>(&'a self, url: &'a str, _limit: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>> {
        Box::pin(async move {
            if url.contains("forbidden") {
                return Err(Fault::new(FaultKind::Invalid, "refused"));
            }
            let media_type = if url.contains("text") { "text/html" } else { "image/png" };
            Ok(FetchedFile { media_type: media_type.to_owned(), bytes: Bytes::from_static(b"A") })
        })
    }

    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match url.contains("private") {
                true => Err(Fault::new(FaultKind::Invalid, "refused")),
                false => Ok(()),
            }
        })
    }
}

/// An engine over a store, as the process of this number.
pub(crate) fn engine_over(store: Arc<dyn Store>, admission: Admission, process: u128) -> Engine {
    engine_with(store, admission, process, ToolLimits::default())
}

/// The same with limits for its tools.
pub(crate) fn engine_with(store: Arc<dyn Store>, admission: Admission, process: u128, tools: ToolLimits) -> Engine {
    let settings = EngineSettings {
        turn_deadline: Duration::from_secs(60),
        keepalive: Duration::from_secs(10),
        head_after: Duration::from_secs(1),
        transcripts: Some(Duration::from_secs(3600)),
        upload_bytes: 1024 * 1024,
        tools,
        reserve_output_tokens: 1024,
    };
    Engine::new(
        settings,
        admission,
        Arc::new(StandingClock),
        Arc::new(Found),
        store,
        ProcessId(process),
        Arc::new(amalgam_core::NoObserver),
    )
}

pub(crate) fn engine(room: usize) -> (Engine, Admission) {
    let admission = Admission::new(AdmissionSettings::without_queue(room));
    // Turns that are not stored never use it, so it may be deleted by then.
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("store.db"), SqliteOptions::default()).unwrap();
    (engine_over(Arc::new(store), admission.clone(), 1), admission)
}

pub(crate) fn candidate(model: &Arc<Scripted>) -> Candidate {
    Candidate {
        upstream: "u".to_owned(),
        model: Arc::clone(model) as Arc<dyn Model>,
        name: "m".to_owned(),
        alias: None,
        context_window: None,
        price: None,
    }
}

/// Starts a turn with this body.
pub(crate) async fn start(
    engine: &Engine,
    candidates: &[Candidate],
    body: &str,
    delivery: Delivery,
    strict: bool,
) -> Result<Box<Run>, Fault> {
    start_kept(engine, candidates, body, delivery, strict, None).await
}

/// Starts a turn; stored, if `keep` says how.
pub(crate) async fn start_kept(
    engine: &Engine,
    candidates: &[Candidate],
    body: &str,
    delivery: Delivery,
    strict: bool,
    keep: Option<fn(&ResponseSettings) -> TurnStorage>,
) -> Result<Box<Run>, Fault> {
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    let settings = ResponseSettings::new(&request, Effective { model: "m", stored: false, background: false });
    let identity = engine.identity();
    let scope = crate::kept::scope();
    let ask = Box::new(TurnStart {
        identity: &identity,
        storage: keep.map(|keep| keep(&settings)),
        origin: amalgam_core::TurnOrigin::default(),
        began: tokio::time::Instant::now(),
        resumes_after: None,
        settings,
        call: ModelCall {
            scope: &scope,
            candidates,
            parameters: &parameters,
            request: &request,
            history: &history,
            delivery,
            seal_context: "t",
            strict,
            stored: keep.is_some(),
            memory: None,
            losses: Vec::new(),
            announcement: None,
        },
        tools: None,
        call_ids: false,
        used_calls: std::collections::HashSet::new(),
        format: None,
        counts_prompt: false,
    });
    engine.start(ask).await
}
