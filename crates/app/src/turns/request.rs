//! The request for a turn, in the same form for every wire.

use std::sync::Arc;

use amalgam_core::{
    Loss, Route, Scope, ServerTool, SessionTurn, TenantState, TurnOrigin, UpstreamMemory, Wire, store::IdempotencyKey,
};
use amalgam_engine::{Announcement, Identity};
use amalgam_protocol::{Json, ResponseParameters};

use super::context::ConnectionMemory;

/// A turn to start, as a wire has parsed it.
pub struct TurnRequest<'a> {
    /// The id and the creation time of the response.
    pub identity: Identity,
    /// The API that the request came through.
    pub wire: Wire,
    /// The origin of a queued turn; none for a new turn.
    pub queued_origin: Option<TurnOrigin>,
    /// The model's input and settings. Boxed: the struct is large, and the request is moved often.
    pub parameters: Box<ResponseParameters>,
    /// What the wire left out of the parameters.
    pub losses: Vec<Loss>,
    /// Whether a loss is an error.
    pub strict: bool,
    /// The idempotency claim that the turn's last write settles.
    pub idempotency: Option<IdempotencyKey>,
    /// Responses that only the caller's connection remembers.
    pub connection: Option<&'a dyn ConnectionMemory>,
    /// How many events a queued turn has sent already; none for a new turn.
    pub resumes_after: Option<u64>,
    /// Whether a model is called; if not, the turn only prepares the next one.
    pub generate: bool,
    /// The decisions of the wire, or of a profile that was requested as a model.
    pub policy: Option<Box<TurnPolicy>>,
    /// Notified when the caller of a stream can be sent its head.
    pub announcement: Option<Announcement>,
}

/// What a wire or a profile decides about a turn.
pub struct TurnPolicy {
    /// The models that may answer.
    pub route: Route,
    /// The source of the history.
    pub history: HistorySource,
    /// The profile that the turn uses.
    pub profile: Option<String>,
    /// The id of the session that the turn belongs to.
    pub session_id: Option<String>,
    /// What the turn adds to its session when it ends.
    pub session: Option<Arc<dyn SessionTurn>>,
    /// Which of the tools that are requested only by name are offered.
    pub offered: OfferedTools,
    /// The wire's own tools, in addition to the requested ones.
    pub own_tools: Vec<ServerTool>,
    /// The tool that the model has to call first, if it is offered.
    pub first_tool: Option<String>,
    /// The maximum number of tool rounds.
    pub max_rounds: Option<u32>,
    /// Whether `max_output_tokens` applies to each model call instead of the whole response.
    pub limit_each_call: bool,
    /// Which parameters the response shows.
    pub shown: ShownParameters,
    /// Whether the raw answer of the upstream is stored with the response.
    pub keep_raw_answer: bool,
    /// Whether the response is stored even for a stateless tenant. C-18
    pub always_stored: bool,
}

/// The source of a turn's history.
pub enum HistorySource {
    /// The response or the conversation that the parameters name.
    Parameters,
    /// Arrays of items, and what an upstream that stores state has stored of them.
    Given(Vec<Json>, Option<UpstreamMemory>),
}

/// Which parameters of its request a response shows.
pub enum ShownParameters {
    /// The parameters without instructions, which the caller does not see.
    WithoutInstructions,
    /// These parameters: the caller's, with its model name and metadata.
    Sent(Arc<ResponseParameters>),
}

/// Which of the tools that a request names without a definition are offered to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedTools {
    /// All. The caller runs those that the server does not have.
    All,
    /// The tools that the server has, whether the server or the caller runs them.
    Known,
    /// The tools that the server runs: no client could run another one. RNCC-30
    ServerRun,
}

impl TurnRequest<'_> {
    /// A turn that starts now, without a policy.
    pub fn new(wire: Wire, identity: Identity, parameters: ResponseParameters) -> Self {
        Self {
            identity,
            wire,
            queued_origin: None,
            parameters: Box::new(parameters),
            losses: Vec::new(),
            strict: false,
            idempotency: None,
            connection: None,
            resumes_after: None,
            generate: true,
            policy: None,
            announcement: None,
        }
    }

    /// The origin of the turn; `model` is the requested name.
    pub(super) fn origin(&self, scope: &Scope, policy: Option<&TurnPolicy>, model: &str) -> TurnOrigin {
        let TurnOrigin { wire, request_id, request, trace, key_id, .. } = match &self.queued_origin {
            Some(origin) => origin.clone(),
            None => TurnOrigin {
                wire: self.wire,
                request_id: scope.request_id().cloned(),
                request: scope.request().cloned(),
                trace: scope.trace(),
                key_id: scope.key_id().cloned(),
                ..TurnOrigin::default()
            },
        };
        TurnOrigin {
            wire,
            request_id,
            request,
            trace,
            key_id,
            profile: policy.and_then(|policy| policy.profile.clone()),
            session_id: policy.and_then(|policy| policy.session_id.clone()),
            model: model.to_owned(),
        }
    }

    /// Whether responses are stored: some wires store everything, for every tenant. C-18
    pub(super) fn state(&self, state: TenantState) -> TenantState {
        match self.policy.as_ref().is_some_and(|policy| policy.always_stored) {
            true => TenantState::Stored,
            false => state,
        }
    }
}
