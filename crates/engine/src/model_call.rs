//! Asks models until one accepts.

use std::collections::HashMap;

use amalgam_core::{
    Candidate, Delivery, Fault, FaultKind, Finish, History, Loss, Losses, ModelError, ModelEvent, ModelStream,
    PreparedRequest, Scope, UpstreamMemory, uploads,
};
use amalgam_protocol::{CreateResponse, Provenance, ResponseParameters};
use futures_util::StreamExt as _;
use tracing::{debug, warn};

use crate::{
    announcement::Announcement, call_record::CallRecord, context_window::FittedPrompt, images,
    partial_usage::AskedModel, run::Engine, upstream_state::UpstreamState,
};

/// One call of a model, whichever of those that may answer takes it.
#[derive(Debug)]
pub struct ModelCall<'a> {
    /// Whose uploaded files it may name.
    pub scope: &'a Scope,
    /// Who may answer, in this order.
    pub candidates: &'a [Candidate],
    /// What the model is asked, and how: as it was sent, and as adapters of models read it.
    pub parameters: &'a ResponseParameters,
    /// A view of the parameters.
    pub request: &'a CreateResponse<'a>,
    /// What is said.
    pub history: &'a History<'a>,
    /// How the caller wants its answer.
    pub delivery: Delivery,
    /// Whom sealed content is bound to.
    pub seal_context: &'a str,
    /// Whether a loss is a fault.
    pub strict: bool,
    /// Whether the response is kept: only then may an upstream keep it too.
    pub kept: bool,
    /// What an upstream keeps of what was said before.
    pub memory: Option<&'a UpstreamMemory>,
    /// What was lost before this point.
    pub losses: Vec<Loss>,
    /// Told as soon as the caller of a stream may be shown its head, whatever the model does.
    pub announcement: Option<&'a Announcement>,
}

impl Engine {
    /// Asks one candidate after the other until one accepts, uploaded files with their content.
    pub(crate) async fn ask_in_turn(&self, call: &ModelCall<'_>, calling: &mut CallRecord) -> Result<Accepted, Fault> {
        let has_uploads = uploads::named(call.history).next().is_some();
        match has_uploads {
            false => self.ask_as_it_is(call, calling).await,
            // In a box: few turns have files, and the others need no room for it.
            true => Box::pin(self.ask_with_uploads(call, calling)).await,
        }
    }

    async fn ask_with_uploads(&self, call: &ModelCall<'_>, calling: &mut CallRecord) -> Result<Accepted, Fault> {
        let Some(expanded) = self.expand(call.scope, call.history).await? else {
            return self.ask_as_it_is(call, calling).await;
        };
        let history = expanded.history(call.history)?;
        self.ask_as_it_is(&ModelCall { history: &history, losses: call.losses.clone(), ..*call }, calling).await
    }

    async fn ask_as_it_is(&self, call: &ModelCall<'_>, calling: &mut CallRecord) -> Result<Accepted, Fault> {
        let mut last = None;
        for (index, candidate) in call.candidates.iter().enumerate() {
            let more = index + 1 < call.candidates.len();
            let mut asked = self.ask_one(call, candidate, calling).await;
            if let (true, Ok(accepted)) = (more, &mut asked) {
                // The last one has no one behind it, and its failure can as well be told later.
                match first_word(&mut accepted.stream).await {
                    Ok(first) => accepted.first = first,
                    Err(failed) => asked = Err(failed),
                }
            }
            match asked {
                Ok(accepted) => return Ok(accepted),
                Err(Failed { fault, elsewhere }) => {
                    if !(elsewhere && more) {
                        return Err(fault);
                    }
                    calling.failed(&fault, self.clock.now_ms());
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

    async fn ask_one(
        &self,
        call: &ModelCall<'_>,
        candidate: &Candidate,
        calling: &mut CallRecord,
    ) -> Result<Accepted, Failed> {
        let model = &*candidate.model;
        let images = match model.wants_image_bytes() {
            true => self.fetch_images(call).await?,
            false => HashMap::new(),
        };
        if model.sends_addresses() {
            let handed_on = images::handed_on(call, &images);
            if !handed_on.is_empty() {
                Box::pin(self.check_addresses(call, &handed_on)).await?;
            }
        }
        let mut fitting = FittedPrompt::new(call, candidate, images);
        let mut prepared = fitting.prepare().await?;
        let mut recovered = false;
        loop {
            if call.strict {
                refuse_losses(call, &prepared)?;
            }
            if let Some(announcement) = call.announcement {
                announcement.translated();
            }
            calling.begin(candidate, &mut prepared, self.clock.now_ms());
            let error = match model.ask(&prepared).await {
                Ok(stream) => {
                    // What was told as text is not what was said.
                    let remembering = if recovered { None } else { fitting.remembering(&prepared).map(Box::new) };
                    let losses = all_losses(call, &prepared);
                    let (upstream, model) = (candidate.upstream.clone(), candidate.name.clone());
                    let asked = call.kept.then(|| Box::new(AskedModel::new(&candidate.model, prepared)));
                    return Ok(Accepted { stream, first: Vec::new(), losses, upstream, model, remembering, asked });
                }
                Err(error) => error,
            };
            let again = match fitting.anew(&error).or_else(|| fitting.shorter(&error)) {
                None if recovered => None,
                // O-48: once, and only if the model knows how.
                None => model.recover(&fitting.request(), &error).inspect(|_| {
                    recovered = true;
                    debug!("sending the tool history as text after the upstream lost a call");
                }),
                shorter => shorter,
            };
            let Some(again) = again else { return Err(error.into()) };
            calling.failed(&error, self.clock.now_ms());
            prepared = again?;
            fitting.tell(&mut prepared);
        }
    }
}

/// A model that has accepted.
pub(crate) struct Accepted {
    pub(crate) stream: ModelStream,
    /// What it has said already.
    pub(crate) first: Vec<ModelEvent>,
    /// All that was lost on the way to it.
    pub(crate) losses: Vec<Loss>,
    pub(crate) upstream: String,
    /// What the upstream was asked for.
    pub(crate) model: String,
    /// What the upstream keeps, if it keeps anything.
    pub(crate) remembering: Option<Box<UpstreamState>>,
    /// What it was asked, if the response is kept.
    pub(crate) asked: Option<Box<AskedModel>>,
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
        let elsewhere = !error.is_of_the_request();
        Self { fault: error.into_fault(), elsewhere }
    }
}

impl Accepted {
    /// No model was asked yet.
    pub(crate) fn none() -> Self {
        Self {
            stream: Box::pin(futures_util::stream::pending()),
            first: Vec::new(),
            losses: Vec::new(),
            upstream: String::new(),
            model: String::new(),
            remembering: None,
            asked: None,
        }
    }

    /// Who answers, as the response object tells it.
    pub(crate) fn provenance(&self) -> Provenance {
        provenance(&self.upstream, &self.model, &self.losses)
    }
}

/// Who answers, as the response object tells it.
pub(crate) fn provenance(upstream: &str, model: &str, losses: &[Loss]) -> Provenance {
    let losses = losses.iter().map(ToString::to_string).collect();
    Provenance { model: Some(format!("{upstream}/{model}")), losses, provider_id: None }
}

/// Reads an answer up to the model's first word. What fails until then can be asked of another upstream, since the caller
/// has seen nothing of it.
async fn first_word(stream: &mut ModelStream) -> Result<Vec<ModelEvent>, Failed> {
    let mut heard: Vec<ModelEvent> = Vec::new();
    loop {
        let mut batch = stream.next().await.unwrap_or(Err(ModelError::CutShort))?;
        let failed = batch.iter().find_map(|event| match event {
            ModelEvent::Finish(Finish::Failed(fault)) => Some(fault.clone()),
            _ => None,
        });
        let silent = batch.iter().all(is_silent);
        if let (Some(fault), true) = (failed, batch.iter().filter(|event| !is_silent(event)).count() == 1) {
            let elsewhere = !matches!(
                fault.kind,
                FaultKind::UpstreamRejected | FaultKind::ContextLength | FaultKind::ContentPolicy
            );
            return Err(Failed { fault, elsewhere });
        }
        heard.append(&mut batch);
        if !silent {
            return Ok(heard);
        }
    }
}

/// Whether an event says nothing that the caller sees.
fn is_silent(event: &ModelEvent) -> bool {
    matches!(
        event,
        ModelEvent::Begun { .. } | ModelEvent::MessageStart { .. } | ModelEvent::Usage(_) | ModelEvent::Loss(_)
    )
}

/// What the door, the history and the translation have lost, each told once.
fn all_losses(call: &ModelCall<'_>, prepared: &PreparedRequest) -> Vec<Loss> {
    let mut losses = Losses::default();
    losses.extend(call.losses.iter().chain(&call.history.losses).chain(&prepared.losses).cloned());
    losses.into_list()
}

/// Strict mode: a loss of the translation is a fault of the request.
fn refuse_losses(call: &ModelCall<'_>, prepared: &PreparedRequest) -> Result<(), Fault> {
    let losses = all_losses(call, prepared);
    let Some(first) = losses.first() else { return Ok(()) };
    let told: Vec<String> = losses.iter().map(ToString::to_string).collect();
    Err(Fault::invalid(
        first.field.clone(),
        format!("Strict mode: not everything can be carried over: {}.", told.join("; ")),
    )
    .code("unsupported_parameter"))
}
