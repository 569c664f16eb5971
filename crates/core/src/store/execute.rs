//! Sessions of the strict contract: their turns, the steps of a turn, and the modes that they are in.
//!
//! A step is one submission that was taken: the user's, or the results of tools. It has one response, and how the step
//! stands is how that response stands, so that nothing has to be written twice when a turn ends.

use amalgam_protocol::{Json, Status};

use super::{Stored, Within, processes::ProcessId};
use crate::{audit::AuditDraft, scope::Scope};

/// A digest of the content of a request.
pub type Fingerprint = [u8; 32];

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    /// `sess_…`; later ones sort behind.
    pub id: String,
    /// The profile that answers; none for the tenant's usual assistant.
    pub profile: Option<String>,
    /// The name of the mode that it is in.
    pub mode: String,
    /// What the client has said about its solution.
    pub solution_context: Option<String>,
    /// How many turns it has.
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
    /// Why, in the model's words.
    pub reason: String,
    /// The turn in which it happened.
    pub turn_id: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// A turn with its steps, the user's first.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTurn {
    /// The client's name for it.
    pub turn_id: String,
    /// Its place in the session, from 1.
    pub number: u64,
    /// In order; never none.
    pub steps: Vec<AgentStep>,
}

/// A step of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    /// What the submission says.
    pub fingerprint: Fingerprint,
    /// What it is answered with.
    pub response_id: String,
    /// The mode that the session was in.
    pub mode: String,
    /// What the answer tells besides its response: a JSON object.
    pub notes: Json,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// How it stands.
    pub state: StepState,
}

/// How a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepState {
    /// It is being worked on.
    Running,
    /// Its response has ended like this.
    Ended(Status),
    /// It has no response: the process that took it died before there was one, or the response was deleted.
    Gone,
}

/// A submission that wants to be worked on.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// What the submission says.
    pub fingerprint: Fingerprint,
    /// The response whose calls these results are for; none for a user's submission.
    pub follows: Option<String>,
    /// The response that will answer.
    pub response_id: String,
    /// Who works on it.
    pub process: ProcessId,
    /// The mode that the session is in.
    pub mode: String,
    /// What the answer tells besides its response: a JSON object.
    pub notes: Json,
    /// What the session keeps from now on; none for what it has.
    pub solution_context: Option<String>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum TakenStep {
    /// The caller has taken the step and runs it. A step that failed, or whose process died, is taken again like this.
    First {
        /// The last response of the session that has ended well, for a user's submission; else what it follows.
        parent: Option<String>,
    },
    /// The same was submitted before.
    Already(AgentStep),
    /// The turn was begun with something else, or is not waiting for these results any more.
    Different,
    /// Another turn of the session is being worked on.
    Busy {
        /// Which.
        turn_id: String,
    },
    /// There is no such session, or no such turn to go on with.
    Missing,
}

/// A session as a submission to it finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct SubmittedSession {
    /// The session.
    pub session: AgentSession,
    /// The turn that the submission names, if it was begun.
    pub turn: Option<AgentTurn>,
    /// The newest turn, if there is one.
    pub newest: Option<AgentTurn>,
}

/// Sessions and turns.
pub trait ExecuteStore: Send + Sync {
    /// Opens a session.
    fn open_session<'a>(&'a self, scope: &'a Scope, session: AgentSession) -> Stored<'a, ()>;

    /// One of the caller's sessions.
    fn agent_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<AgentSession>>;

    /// The caller's sessions, the newest first, behind `after`.
    fn agent_sessions<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentSession>>;

    /// Forgets a session with its turns, and gives the responses that they had, which are the caller's to forget. Nothing when
    /// there is none.
    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<String>>>;

    /// A turn of one of the caller's sessions.
    fn agent_turn<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        turn_id: &'a str,
    ) -> Stored<'a, Option<AgentTurn>>;

    /// The turns of one of the caller's sessions, the newest first, behind the one of number `before`.
    fn agent_turns<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>>;

    /// One of the caller's sessions with the turn that a submission names, at one moment.
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

    /// Takes a submission to work on, or tells what became of it. Of several at once, on any number of processes, one is
    /// the first. Until there is a response, a step runs for as long as its process is known. After an error it is open
    /// whether it was taken; the store gives it back, so that its response must not be begun.
    fn take_step<'a>(&'a self, scope: &'a Scope, step: NewStep) -> Stored<'a, TakenStep>;

    /// Gives a submission back for which no response was begun: it can be sent again. Nothing when it is not this
    /// response's any more.
    fn drop_step<'a>(&'a self, scope: &'a Scope, session_id: &'a str, response_id: &'a str) -> Stored<'a, ()>;

    /// Changes the mode of one of the caller's sessions, and remembers that; `false` when there is no such session. What
    /// `change` says about the mode before is not looked at.
    fn change_mode<'a>(&'a self, scope: &'a Scope, session_id: &'a str, change: ModeChange) -> Stored<'a, bool>;

    /// The changes of a session's mode, oldest first; at most the newest `limit` of them.
    fn mode_changes<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: &'a str,
        limit: usize,
    ) -> Stored<'a, Option<Vec<ModeChange>>>;
}

/// What an agent is for a while: how it is told to be, what it may use, where it looks things up.
#[derive(Debug, Clone, PartialEq)]
pub struct Mode {
    /// Unique in its tenant, whatever its case.
    pub name: String,
    /// For people.
    pub display_name: String,
    /// What the model is told.
    pub system_prompt: String,
    /// The names of its tools besides those of the profile, in order.
    pub tools: Vec<String>,
    /// The tool that the model has to call first in each turn; none where it is free.
    pub tool_choice: Option<String>,
    /// Conditions of what is looked up, for turns that bring none: a JSON array.
    pub rag_scope: Json,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Modes that tenants have defined. Those that every tenant has are not kept here.
pub trait ModeStore: Send + Sync {
    /// The modes of the caller's tenant by name.
    fn modes<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Mode>>;

    /// The modes of a tenant by name.
    fn modes_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Mode>>;

    /// Keeps a mode in the place of the one of its name, which stays the one that was made first. `false` when there is no
    /// such tenant.
    fn put_mode<'a>(&'a self, within: Within<'a>, mode: Mode, audit: AuditDraft) -> Stored<'a, bool>;

    /// Forgets a mode; whether there was one.
    fn delete_mode<'a>(&'a self, within: Within<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool>;
}
