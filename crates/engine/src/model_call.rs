//! Calls the candidates of a model in order until one accepts.

use std::collections::HashMap;

use amalgam_core::{
    Candidate, Delivery, Fault, FaultKind, Finish, History, Loss, Losses, ModelError, ModelEvent, ModelStream,
    PreparedRequest, Scope, UpstreamMemory, uploads,
};
use amalgam_protocol::{CreateResponse, Provenance, ResponseParameters};
use futures_util::StreamExt as _;
use tracing::{debug, warn};

use crate::{
    announcement::Announcement, call_record::CallRecord, context_window::FittedPrompt, engine::Engine, images,
    partial_usage::SentRequest, upstream_state::UpstreamState,
};

/// One model call, for any of its candidates.
#[derive(Debug)]
pub struct ModelCall<'a> {
    /// The caller, whose uploaded files the history may reference.
    pub scope: &'a Scope,
    /// The candidates, in order of preference.
    pub candidates: &'a [Candidate],
    /// The parameters as the caller sent them.
    pub parameters: &'a ResponseParameters,
    /// A view of the parameters.
    pub request: &'a CreateResponse<'a>,
    /// The prompt.
    pub history: &'a History<'a>,
    /// Whether the caller receives a stream or a whole answer.
    pub delivery: Delivery,
    /// The tenant and user that sealed values are bound to.
    pub seal_context: &'a str,
    /// Whether a loss is a fault.
    pub strict: bool,
    /// Whether the response is stored: only then may an upstream store it too.
    pub stored: bool,
    /// What an upstream stores of the history.
    pub memory: Option<&'a UpstreamMemory>,
    /// Losses before this call.
    pub losses: Vec<Loss>,
    /// Notified when the caller of a stream may receive the response head.
    pub announcement: Option<&'a Announcement>,
}

impl Engine {
    /// Calls the candidates in order until one accepts. Uploaded files are sent with their content.
    pub(crate) async fn call_model(
        &self,
        call: &ModelCall<'_>,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, Fault> {
        let has_uploads = uploads::named(call.history).next().is_some();
        match has_uploads {
            false => self.call_candidates(call, call_record).await,
            // Boxed, so that the futures of turns without files stay small.
            true => Box::pin(self.call_with_uploads(call, call_record)).await,
        }
    }

    async fn call_with_uploads(
        &self,
        call: &ModelCall<'_>,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, Fault> {
        let Some(expanded) = self.expand(call.scope, call.history).await? else {
            return self.call_candidates(call, call_record).await;
        };
        let history = expanded.history(call.history)?;
        self.call_candidates(&ModelCall { history: &history, losses: call.losses.clone(), ..*call }, call_record).await
    }

    async fn call_candidates(&self, call: &ModelCall<'_>, call_record: &mut CallRecord) -> Result<AcceptedCall, Fault> {
        let mut last = None;
        let candidates = self.permitted(call.candidates, call_record);
        for (index, candidate) in candidates.iter().enumerate() {
            let (first, more) = (candidates.first(), index + 1 < candidates.len());
            if let Some(first) = first.filter(|_| index > 0)
                && let Err(fault) = self.admit_fallback(first, candidate, call_record).await
            {
                warn_of_skipped(call, candidate, &fault);
                last = Some(fault);
                continue;
            }
            let mut result = self.call_candidate(call, candidate, call_record).await;
            if let (true, Ok(accepted)) = (more, &mut result) {
                // The last candidate's stream is returned unread: there is no fallback after it.
                match read_to_first_output(&mut accepted.stream).await {
                    Ok(first) => accepted.first = first,
                    Err(failed) => result = Err(failed),
                }
            }
            match result {
                Ok(accepted) => return Ok(accepted),
                Err(CandidateFailure { fault, .. }) if index > 0 && more && is_refused_by_limit(&fault) => {
                    warn_of_skipped(call, candidate, &fault);
                    last = Some(fault);
                }
                Err(CandidateFailure { fault, try_next }) => {
                    if !(try_next && more) {
                        return Err(fault);
                    }
                    call_record.failed(&fault, fault.kind, self.clock.now_ms());
                    warn!(
                        request.id = call.scope.request_id().map(|id| &**id),
                        upstream = candidate.upstream,
                        model = candidate.name,
                        class = fault.kind.name(),
                        code = fault.code.as_deref(),
                        detail = fault.detail,
                        "upstream failed, calling the next candidate"
                    );
                    debug!(upstream = candidate.upstream, quote = fault.quote, "why the upstream failed: {fault}");
                    last = Some(fault);
                }
            }
        }
        Err(last.unwrap_or_else(|| Fault::internal("a route without candidates")))
    }

    async fn call_candidate(
        &self,
        call: &ModelCall<'_>,
        candidate: &Candidate,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, CandidateFailure> {
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
        let mut prompt = FittedPrompt::new(call, candidate, images);
        let mut prepared = prompt.prepare().await?;
        let mut recovered = false;
        loop {
            if call.strict {
                refuse_losses(call, &prepared)?;
            }
            let terms = self.reserve_call(call, candidate, &prepared, call_record).await?;
            if let Some(announcement) = call.announcement {
                announcement.translated();
            }
            call_record.begin(candidate, terms, &mut prepared, self.clock.now_ms());
            let error = match model.ask(&prepared).await {
                Ok(stream) => {
                    // A history that was rewritten as text differs from what later turns would send.
                    let upstream_state = if recovered { None } else { prompt.upstream_state(&prepared).map(Box::new) };
                    let losses = all_losses(call, &prepared);
                    let (upstream, model) = (candidate.upstream.clone(), candidate.name.clone());
                    let sent_request = Some(Box::new(SentRequest::new(&candidate.model, prepared)));
                    return Ok(AcceptedCall {
                        stream,
                        first: Vec::new(),
                        losses,
                        upstream,
                        model,
                        upstream_state,
                        sent_request,
                    });
                }
                Err(error) => error,
            };
            let again = match prompt.without_chain(&error).or_else(|| prompt.shortened_after(&error)) {
                None if recovered => None,
                // O-48: once, and only if the adapter supports it.
                None => model.recover(&prompt.request(), &error).inspect(|_| {
                    recovered = true;
                    debug!("sending the tool history as text after the upstream lost a call");
                }),
                shorter => shorter,
            };
            let Some(again) = again else { return Err(error.into()) };
            // Only what an upstream has refused is sent in another form.
            call_record.failed(&error, FaultKind::UpstreamRejected, self.clock.now_ms());
            prepared = again?;
            prompt.add_losses(&mut prepared);
        }
    }
}

/// Whether a limit refuses a call before it is made.
fn is_refused_by_limit(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::RateLimited | FaultKind::QuotaExceeded | FaultKind::Forbidden)
}

/// A limit of a fallback refuses the turn, which goes on without that fallback.
fn warn_of_skipped(call: &ModelCall<'_>, candidate: &Candidate, fault: &Fault) {
    warn!(
        request.id = call.scope.request_id().map(|id| &**id),
        tenant = call.scope.tenant_id(),
        upstream = candidate.upstream,
        model = candidate.name,
        class = fault.kind.name(),
        code = fault.code.as_deref(),
        "a limit keeps the turn from a fallback: {fault}"
    );
}

/// A model that has accepted a call.
pub(crate) struct AcceptedCall {
    pub(crate) stream: ModelStream,
    /// Events that were read already.
    pub(crate) first: Vec<ModelEvent>,
    /// All losses of the call.
    pub(crate) losses: Vec<Loss>,
    pub(crate) upstream: String,
    /// The model's name at the upstream.
    pub(crate) model: String,
    /// What the upstream stores, if it stores anything.
    pub(crate) upstream_state: Option<Box<UpstreamState>>,
    /// The request; none before the first call.
    pub(crate) sent_request: Option<Box<SentRequest>>,
}

/// Why a candidate did not accept, and whether the next one may be called.
struct CandidateFailure {
    fault: Fault,
    try_next: bool,
}

impl From<Fault> for CandidateFailure {
    fn from(fault: Fault) -> Self {
        Self { fault, try_next: false }
    }
}

impl From<ModelError> for CandidateFailure {
    fn from(error: ModelError) -> Self {
        let try_next = !error.is_of_the_request();
        Self { fault: error.into_fault(), try_next }
    }
}

impl AcceptedCall {
    /// A placeholder for a turn whose model was not called yet.
    pub(crate) fn none() -> Self {
        Self {
            stream: Box::pin(futures_util::stream::pending()),
            first: Vec::new(),
            losses: Vec::new(),
            upstream: String::new(),
            model: String::new(),
            upstream_state: None,
            sent_request: None,
        }
    }

    /// Model and losses, for the response object.
    pub(crate) fn provenance(&self) -> Provenance {
        provenance(&self.upstream, &self.model, &self.losses)
    }
}

/// Model and losses, for the response object.
pub(crate) fn provenance(upstream: &str, model: &str, losses: &[Loss]) -> Provenance {
    let losses = losses.iter().map(ToString::to_string).collect();
    Provenance { model: Some(format!("{upstream}/{model}")), losses, provider_id: None }
}

/// Reads an answer until its first visible event. A failure before that can go to the next candidate, because the
/// caller has received nothing.
async fn read_to_first_output(stream: &mut ModelStream) -> Result<Vec<ModelEvent>, CandidateFailure> {
    let mut events: Vec<ModelEvent> = Vec::new();
    loop {
        let mut batch = stream.next().await.unwrap_or(Err(ModelError::CutShort))?;
        let failed = batch.iter().find_map(|event| match event {
            ModelEvent::Finish(Finish::Failed(fault)) => Some(fault.clone()),
            _ => None,
        });
        let invisible = batch.iter().all(is_invisible);
        if let (Some(fault), true) = (failed, batch.iter().filter(|event| !is_invisible(event)).count() == 1) {
            let try_next = !matches!(
                fault.kind,
                FaultKind::UpstreamRejected | FaultKind::ContextLength | FaultKind::ContentPolicy
            );
            return Err(CandidateFailure { fault, try_next });
        }
        events.append(&mut batch);
        if !invisible {
            return Ok(events);
        }
    }
}

/// Whether the caller sees nothing of an event.
fn is_invisible(event: &ModelEvent) -> bool {
    matches!(
        event,
        ModelEvent::Begun { .. } | ModelEvent::MessageStart { .. } | ModelEvent::Usage(_) | ModelEvent::Loss(_)
    )
}

/// The losses of the wire, the history and the translation, without duplicates.
fn all_losses(call: &ModelCall<'_>, prepared: &PreparedRequest) -> Vec<Loss> {
    let mut losses = Losses::default();
    losses.extend(call.losses.iter().chain(&call.history.losses).chain(&prepared.losses).cloned());
    losses.into_list()
}

/// Strict mode: a loss of the translation is a fault of the request.
fn refuse_losses(call: &ModelCall<'_>, prepared: &PreparedRequest) -> Result<(), Fault> {
    let losses = all_losses(call, prepared);
    let Some(first) = losses.first() else { return Ok(()) };
    let texts: Vec<String> = losses.iter().map(ToString::to_string).collect();
    Err(Fault::invalid(
        first.field.clone(),
        format!("Strict mode: not everything can be carried over: {}.", texts.join("; ")),
    )
    .code("unsupported_parameter"))
}
