//! What a turn is asked to do, whichever wire it came through.

use std::sync::Arc;

use amalgam_core::{Route, ServerTool, TenantState, UpstreamMemory, store::Keyed};
use amalgam_engine::{Announcement, Identity, Thread};
use amalgam_protocol::{Json, ResponseParameters};

use super::context::ConnectionMemory;

/// One turn to begin: what a wire has read, owned, in the canonical language.
pub struct TurnRequest<'a> {
    /// The id and the time of the response to be.
    pub identity: Identity,
    /// What the model is asked, and how. In a box: it is large, and the request is moved often.
    pub parameters: Box<ResponseParameters>,
    /// Whether a loss of the translation is an error.
    pub strict: bool,
    /// The idempotency claim that the end of the turn settles.
    pub idempotency: Option<Keyed>,
    /// Responses that only the caller's connection remembers.
    pub connection: Option<&'a dyn ConnectionMemory>,
    /// How many events were sent of a turn that has waited in the queue; nothing for one that begins now.
    pub resumes_after: Option<u64>,
    /// Whether a model is asked; else the turn only prepares the next one.
    pub generate: bool,
    /// What the wire, or a profile in the place of a model, decides about the turn.
    pub policy: Option<Box<TurnPolicy>>,
    /// Notified as soon as the caller of a stream may be sent its head.
    pub announcement: Option<Announcement>,
}

/// What a wire or a profile decides about a turn before it begins.
pub struct TurnPolicy {
    /// The models that may answer.
    pub route: Route,
    /// Where the history comes from.
    pub history: HistorySource,
    /// The thread that the turn belongs to.
    pub thread: Option<Box<Thread>>,
    /// Which of the tools that are requested by name alone are offered.
    pub offered: OfferedTools,
    /// Tools of the wire's own, besides those that are requested.
    pub own_tools: Vec<ServerTool>,
    /// The tool that has to be called first, if it is offered.
    pub first_tool: Option<String>,
    /// The most rounds of tools.
    pub max_rounds: Option<u32>,
    /// Whether `max_output_tokens` bounds every call of the model, instead of the whole response.
    pub limit_each_call: bool,
    /// What the response shows of the request.
    pub shown: ShownParameters,
    /// Whether the raw answer of the upstream is stored with the response.
    pub keep_raw_answer: bool,
    /// Whether the response is stored even for a tenant without state. C-18
    pub always_stored: bool,
}

/// Where the history of a turn comes from.
pub enum HistorySource {
    /// From the response or the conversation that the parameters name.
    Parameters,
    /// It is given: arrays of items, and what an upstream that keeps state knows of them.
    Given(Vec<Json>, Option<UpstreamMemory>),
}

/// What a response shows of the request that it was created with.
pub enum ShownParameters {
    /// The request without its instructions: they are between the wire and the model.
    WithoutInstructions,
    /// The parameters that the caller sent, under this model and with this metadata.
    Sent(Arc<ResponseParameters>),
}

/// Which of the tools that a request names by name alone are offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedTools {
    /// All of them: one that the server does not know is run by the caller.
    All,
    /// Those that the server knows, whether it runs them itself or the caller does.
    Known,
    /// Those that the server runs itself: no client could run another one. RNCC-30
    ServerRun,
}

impl TurnRequest<'_> {
    /// A turn that begins now, on the terms of its parameters alone.
    pub fn new(identity: Identity, parameters: ResponseParameters) -> Self {
        Self {
            identity,
            parameters: Box::new(parameters),
            strict: false,
            idempotency: None,
            connection: None,
            resumes_after: None,
            generate: true,
            policy: None,
            announcement: None,
        }
    }

    /// What is stored for the caller: some wires store everything, for every tenant. C-18
    pub(super) fn state(&self, state: TenantState) -> TenantState {
        match self.policy.as_ref().is_some_and(|policy| policy.always_stored) {
            true => TenantState::Stored,
            false => state,
        }
    }
}
