//! One turn from request to answer: a place, images that must be fetched, a model that accepts, and then its events.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use amalgam_core::{
    Candidate, Clock, Delivery, Emitter, Fault, FaultKind, Fetch, History, Ids, Loss, Model, ModelError, ModelRequest,
    ModelStream, Prepared, Start,
};
use amalgam_protocol::{Content, CreateResponse, ErrorObject, PartKind, Settings};
use futures_util::StreamExt;
use tracing::{debug, warn};

use crate::{
    admission::{Admission, Place},
    allowed::Allowed,
    frames::Frames,
};

/// The most bytes that one fetched image may have.
const IMAGE_BYTES: usize = 20 * 1024 * 1024;

/// The most images that are fetched for one turn.
const IMAGES_PER_TURN: usize = 32;

/// How turns run.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// The most that a turn may take, from its first byte to its last.
    pub turn_deadline: Duration,
    /// Silence after which a stream gets a sign of life.
    pub keepalive: Duration,
}

/// Runs turns.
#[derive(Clone)]
pub struct Engine {
    settings: EngineSettings,
    admission: Admission,
    clock: Arc<dyn Clock>,
    fetch: Arc<dyn Fetch>,
}

/// One turn to run.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Who may answer, in this order.
    pub candidates: &'a [Candidate],
    /// Everything that the caller set.
    pub request: &'a CreateResponse<'a>,
    /// What is said.
    pub history: &'a History<'a>,
    /// What the response repeats of its request.
    pub settings: Settings,
    /// How the caller wants its answer.
    pub delivery: Delivery,
    /// Whom sealed content is bound to.
    pub seal_context: &'a str,
    /// Whether a loss is a fault.
    pub strict: bool,
    /// What was lost before this point.
    pub losses: Vec<Loss>,
}

/// A turn that a model has accepted.
pub struct Run {
    pub(crate) emitter: Emitter,
    pub(crate) stream: ModelStream,
    pub(crate) started: Instant,
    pub(crate) deadline: tokio::time::Instant,
    pub(crate) keepalive: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    allowed: Allowed,
    /// Held until the turn is over.
    pub(crate) place: Place,
    losses: Vec<Loss>,
    upstream: String,
}

impl Engine {
    /// An engine over this process's clock and its one way out.
    pub fn new(settings: EngineSettings, admission: Admission, clock: Arc<dyn Clock>, fetch: Arc<dyn Fetch>) -> Self {
        Self { settings, admission, clock, fetch }
    }

    /// Turns that run now.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Starts a turn: comes back when a model has accepted it, or when none will. Dropping the future ends the call.
    pub async fn start(&self, ask: Ask<'_>) -> Result<Run, Fault> {
        let place = self.admission.enter()?;
        let started = Instant::now();
        let deadline = tokio::time::Instant::now() + self.settings.turn_deadline;
        let over = place.over();
        let accepted = tokio::select! {
            biased;
            accepted = tokio::time::timeout_at(deadline, self.ask_in_turn(&ask)) => accepted,
            fault = over => return Err(fault),
        };
        let Accepted { stream, prepared, upstream } = accepted.map_err(|_| past_deadline())??;
        let now_ms = self.clock.now_ms();
        let mut ids = Ids::Unguessable;
        let losses = all_losses(&ask, &prepared).into_iter().cloned().collect();
        let emitter = Emitter::new(Start {
            response_id: ids.response(now_ms),
            created_at: now_ms / 1000,
            settings: ask.settings,
            delivery: ask.delivery,
            ids,
        });
        let keepalive = self.settings.keepalive;
        let clock = Arc::clone(&self.clock);
        let allowed = Allowed::by(ask.request.tool_choice.as_ref());
        Ok(Run { emitter, stream, started, deadline, keepalive, clock, allowed, place, losses, upstream })
    }

    /// Asks one candidate after the other until one accepts.
    async fn ask_in_turn(&self, ask: &Ask<'_>) -> Result<Accepted, Fault> {
        let mut last = None;
        for (index, candidate) in ask.candidates.iter().enumerate() {
            match self.ask_one(ask, candidate).await {
                Ok(accepted) => return Ok(accepted),
                Err(Failed { fault, elsewhere }) => {
                    let more = index + 1 < ask.candidates.len();
                    if !(elsewhere && more) {
                        return Err(fault);
                    }
                    warn!(
                        upstream = candidate.upstream,
                        detail = fault.detail,
                        "upstream failed, going on to the next"
                    );
                    last = Some(fault);
                }
            }
        }
        Err(last.unwrap_or_else(|| Fault::internal("a route without candidates")))
    }

    async fn ask_one(&self, ask: &Ask<'_>, candidate: &Candidate) -> Result<Accepted, Failed> {
        let model = &*candidate.model;
        let images = match model.wants_image_bytes() {
            true => self.fetch_images(ask.history).await?,
            false => HashMap::new(),
        };
        let request = ModelRequest {
            model: &candidate.name,
            settings: ask.request,
            history: ask.history,
            delivery: ask.delivery,
            seal_context: ask.seal_context,
            images: &images,
        };
        let prepared = model.prepare(&request)?;
        if ask.strict {
            refuse_losses(ask, &prepared)?;
        }
        match model.ask(&prepared).await {
            Ok(stream) => Ok(Accepted { stream, prepared, upstream: candidate.upstream.clone() }),
            Err(error) => match recover(model, &request, &error).await {
                Some(recovered) => recovered.map(|(stream, prepared)| Accepted {
                    stream,
                    prepared,
                    upstream: candidate.upstream.clone(),
                }),
                None => Err(error.into()),
            },
        }
    }

    /// Images of the history by their address, as `data:` URIs.
    async fn fetch_images(&self, history: &History<'_>) -> Result<HashMap<String, String>, Fault> {
        let mut images = HashMap::new();
        for url in image_urls(history) {
            if images.contains_key(&url) {
                continue;
            }
            if images.len() >= IMAGES_PER_TURN {
                return Err(Fault::invalid("input", format!("At most {IMAGES_PER_TURN} images can be fetched.")));
            }
            let fetched = self.fetch.fetch(&url, IMAGE_BYTES).await?;
            if !fetched.media_type.starts_with("image/") {
                return Err(Fault::invalid("input", "An image address does not lead to an image."));
            }
            images.insert(url, fetched.data_uri());
        }
        Ok(images)
    }
}

struct Accepted {
    stream: ModelStream,
    prepared: Prepared,
    upstream: String,
}

/// Why a candidate did not accept, and whether another one may be asked.
struct Failed {
    fault: Fault,
    elsewhere: bool,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, elsewhere: false }
    }
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        let elsewhere = error.is_transient()
            || matches!(error, ModelError::NoKey { .. } | ModelError::Silent(_) | ModelError::Resting(_));
        Self { fault: error.into_fault(), elsewhere }
    }
}

/// O-48: once, and only if the model knows how.
async fn recover(
    model: &dyn Model,
    request: &ModelRequest<'_>,
    error: &ModelError,
) -> Option<Result<(ModelStream, Prepared), Failed>> {
    let prepared = match model.recover(request, error)? {
        Ok(prepared) => prepared,
        Err(fault) => return Some(Err(fault.into())),
    };
    debug!("sending the tool history as text after the upstream lost a call");
    Some(match model.ask(&prepared).await {
        Ok(stream) => Ok((stream, prepared)),
        Err(error) => Err(error.into()),
    })
}

/// What the door, the history and the translation have lost, each told once.
fn all_losses<'a>(ask: &'a Ask<'_>, prepared: &'a Prepared) -> Vec<&'a Loss> {
    let mut losses: Vec<&Loss> = Vec::new();
    for loss in ask.losses.iter().chain(&ask.history.losses).chain(&prepared.losses) {
        if !losses.contains(&loss) {
            losses.push(loss);
        }
    }
    losses
}

fn refuse_losses(ask: &Ask<'_>, prepared: &Prepared) -> Result<(), Fault> {
    let losses = all_losses(ask, prepared);
    let Some(first) = losses.first() else { return Ok(()) };
    let told: Vec<String> = losses.iter().map(ToString::to_string).collect();
    Err(Fault::invalid(
        first.field.clone(),
        format!("Strict mode: not everything can be carried over: {}.", told.join("; ")),
    )
    .code("unsupported_parameter"))
}

fn image_urls(history: &History<'_>) -> Vec<String> {
    use amalgam_core::Entry;
    let mut urls = Vec::new();
    for entry in history.instructions.iter().chain(&history.entries) {
        let content = match entry {
            Entry::Message { content, .. } => content,
            Entry::Output(output) => &output.content,
            _ => continue,
        };
        let Content::Parts(parts) = content else { continue };
        for part in parts {
            if let PartKind::Image(image) = &part.kind
                && let Some(url) = image.url
            {
                let url = url.0.decode();
                if !url.starts_with("data:") {
                    urls.push(url.into_owned());
                }
            }
        }
    }
    urls
}

fn past_deadline() -> Fault {
    Fault::new(FaultKind::Deadline, "The request took longer than the server allows.")
}

impl Run {
    /// What the upstream does not see as it was sent.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The operator's name of the upstream that answers.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// The response's id.
    pub fn response_id(&self) -> &str {
        self.emitter.response_id()
    }

    /// The whole response. Dropping the future ends the upstream call.
    pub async fn finish(mut self) -> Result<Vec<u8>, Fault> {
        let deadline = self.deadline;
        let over = self.place.over();
        tokio::select! {
            biased;
            driven = tokio::time::timeout_at(deadline, self.drive()) => driven.map_err(|_| past_deadline())??,
            fault = over => return Err(fault),
        }
        self.emitter.conclude(self.clock.now_ms() / 1000);
        self.log();
        Ok(self.emitter.response())
    }

    async fn drive(&mut self) -> Result<(), Fault> {
        while !self.emitter.is_finished() {
            match self.stream.next().await {
                Some(Ok(batch)) => self.take(batch)?,
                Some(Err(error)) => return Err(error.into_fault()),
                None => return Err(ModelError::CutShort.into_fault()),
            }
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, batch: Vec<amalgam_core::ModelEvent>) -> Result<(), Fault> {
        batch.into_iter().try_for_each(|event| {
            self.allowed.check(&event)?;
            self.emitter.on(event)
        })
    }

    /// The frames of the response as they come; `tell` says what a caller of this wire reads of a fault.
    pub fn into_frames(self, tell: fn(&Fault) -> ErrorObject) -> Frames {
        Frames::new(self, tell)
    }

    pub(crate) fn past_deadline(&self) -> Fault {
        past_deadline()
    }

    pub(crate) fn log(&self) {
        let usage = self.emitter.usage().unwrap_or_default();
        debug!(
            response.id = self.emitter.response_id(),
            upstream = self.upstream,
            status = self.emitter.status().name(),
            input_tokens = usage.input_tokens,
            output_tokens = usage.output_tokens,
            duration_ms = self.started.elapsed().as_millis() as u64,
            "turn ended",
        );
    }
}
