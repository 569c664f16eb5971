//! Sessions of the strict contract: their turns, the steps of a turn, and their modes.
//!
//! A step is one accepted submission: the user's, or the results of tools. It has one response, and its state is the
//! state of that response, so the end of a turn is written only once.

use amalgam_protocol::{Json, Status};

use super::{Stored, Within, processes::ProcessId};
use crate::{audit::AuditDraft, scope::Scope};

/// A digest of the content of a submission.
pub type Fingerprint = [u8; 32];

/// A session of the strict contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    /// `sess_…`; ids sort by creation.
    pub id: String,
    /// The profile that answers; `None` for the tenant's default assistant.
    pub profile: Option<String>,
    /// The name of the session's current mode.
    pub mode: String,
    /// The description of the solution that the client sent last.
    pub solution_context: Option<String>,
    /// The number of turns.
    pub turns: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A change of a session's mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange {
    /// The mode before.
    pub previous: String,
    /// The mode from then on.
    pub mode: String,
    /// The reason, in the model's words.
    pub reason: String,
    /// The turn in which the mode changed.
    pub turn_id: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// A turn with its steps; the first one is the user's.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTurn {
    /// The id that the client gave the turn.
    pub turn_id: String,
    /// The position in the session, from 1.
    pub number: u64,
    /// The steps in order, at least one.
    pub steps: Vec<AgentStep>,
}

/// A step of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    /// The digest of the submission.
    pub fingerprint: Fingerprint,
    /// The response that answers it.
    pub response_id: String,
    /// The session's mode when the step was accepted.
    pub mode: String,
    /// Fields of the answer that are not in the response: a JSON object.
    pub notes: Json,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The state of the step.
    pub state: StepState,
}

/// The state of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    /// A process works on the step.
    Running,
    /// The response has ended with this status.
    Ended(Status),
    /// The step has no response: its process died before it began one, or the response was deleted.
    Gone,
}

/// A submission to be accepted as a step.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The digest of the submission.
    pub fingerprint: Fingerprint,
    /// The response whose calls these results answer; `None` for a user's submission.
    pub follows: Option<String>,
    /// The response that will answer.
    pub response_id: String,
    /// The process that works on the step.
    pub process: ProcessId,
    /// The session's mode.
    pub mode: String,
    /// Fields of the answer that are not in the response: a JSON object.
    pub notes: Json,
    /// The new description of the client's solution; `None` keeps the stored one.
    pub solution_context: Option<String>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The outcome of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum TakenStep {
    /// The caller has taken the step and must run it. Also for a step that failed, or whose process died, if it is
    /// submitted again.
    First {
        /// The response to continue: for results the one that they follow, for a user's submission the last one of the
        /// session that ended `completed` or `incomplete`.
        parent: Option<String>,
    },
    /// The same submission was accepted before, as this step.
    Already(AgentStep),
    /// The turn began with another submission, or does not wait for these results.
    Different,
    /// Another turn of the session is running.
    Busy {
        /// The id of the running turn.
        turn_id: String,
    },
    /// The session does not exist, or for results the turn does not exist.
    Missing,
}

/// A session as it was at one moment, for a submission.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmittedSession {
    /// The session.
    pub session: AgentSession,
    /// The turn that the submission names, if it has begun.
    pub turn: Option<AgentTurn>,
    /// The newest turn of the session, if there is one.
    pub newest: Option<AgentTurn>,
}

/// Sessions of the strict contract and their turns.
pub trait ExecuteStore: Send + Sync {
    /// Stores a new session.
    fn open_session<'a>(&'a self, scope: &'a Scope, session: AgentSession) -> Stored<'a, ()>;

    /// Returns one of the caller's sessions; `None` if the caller has none with this id.
    fn agent_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<AgentSession>>;

    /// Returns at most `limit` of the caller's sessions with ids below `after`, newest first.
    fn agent_sessions<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentSession>>;

    /// Deletes a session and its turns. Returns the ids of their responses, which the caller has to delete; `None` if
    /// the session does not exist.
    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<String>>>;

    /// Returns a turn of one of the caller's sessions; `None` if the session or the turn does not exist.
    fn agent_turn<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>>;

    /// Returns at most `limit` turns with numbers below `before`, newest first; `None` if the caller has no such
    /// session.
    fn agent_turns<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>>;

    /// Returns one of the caller's sessions with the turn that a submission names, read at one moment; `None` if there
    /// is no such session.
    fn submitted_session<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<SubmittedSession>> {
        Box::pin(async move {
            let Some(session) = self.agent_session(scope, session_id).await? else { return Ok(None) };
            let turn = self.agent_turn(scope, session_id, turn_id).await?;
            let newest = self.agent_turns(scope, session_id, None, 1).await?.unwrap_or_default().pop();
            Ok(Some(SubmittedSession { session, turn, newest }))
        })
    }

    /// Takes the step of a submission, or returns why it cannot be taken. If several processes submit the same step at
    /// once, one of them gets [`TakenStep::First`]. A step without a response counts as running as long as its process
    /// is registered. If the call fails, the step may or may not have been taken: the store releases it, and the caller
    /// must not begin its response.
    fn take_step<'a>(&'a self, scope: &'a Scope, step: NewStep) -> Stored<'a, TakenStep>;

    /// Releases a step whose response was not begun, so that the submission can be sent again. No effect if the step
    /// has a response by now or belongs to another one.
    fn drop_step<'a>(&'a self, scope: &'a Scope, session_id: &'a str, response_id: &'a str) -> Stored<'a, ()>;

    /// Changes the mode of one of the caller's sessions and records the change. The store fills in the previous mode
    /// and ignores `change.previous`. Returns `false` if the session does not exist.
    fn change_mode<'a>(&'a self, scope: &'a Scope, session_id: &'a str, change: ModeChange) -> Stored<'a, bool>;

    /// Returns the newest `limit` changes of a session's mode, oldest first; `None` if the caller has no such session.
    fn mode_changes<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        limit: usize,
    ) -> Stored<'a, Option<Vec<ModeChange>>>;
}

/// A mode of agents: a system prompt, tools, and conditions of searches.
#[derive(Debug, Clone, PartialEq)]
pub struct Mode {
    /// The name; unique in its tenant, ignoring case.
    pub name: String,
    /// The name for users.
    pub display_name: String,
    /// The system prompt.
    pub system_prompt: String,
    /// The tools besides those of the profile, in order.
    pub tools: Vec<String>,
    /// The tool that the model must call first in each turn; `None` lets the model choose.
    pub tool_choice: Option<String>,
    /// The conditions of searches, as a JSON array, for turns that do not send their own.
    pub rag_scope: Json,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Modes that tenants have defined. Built-in modes are not in the store.
pub trait ModeStore: Send + Sync {
    /// Returns the modes of the caller's tenant, sorted by name. May be a cached copy.
    fn modes<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Mode>>;

    /// Returns the modes of a tenant, sorted by name.
    fn modes_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Mode>>;

    /// Adds a mode, or replaces the one with the same name but keeps its creation time. Returns `false` if the tenant
    /// does not exist.
    fn put_mode<'a>(&'a self, within: Within<'a>, mode: Mode, audit: AuditDraft) -> Stored<'a, bool>;

    /// Deletes a mode. Returns whether it existed.
    fn delete_mode<'a>(&'a self, within: Within<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool>;
}
