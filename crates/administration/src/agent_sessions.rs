//! The sessions of the strict contract of all users of a tenant.

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Fault, Scope,
    store::{AgentSession, AgentStep, AgentTurn, OwnedBy, Page, StepState},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::{admin, known_id, user_scope, within},
    audit::snapshot,
    fields::UnixSeconds,
    list::{List, number_after},
};

/// The session in not-found errors.
const SESSION: &str = "Agent session";

const DELETE: AuditAction = AuditAction::new("agent_session.delete");

/// A session of the strict contract.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ExecuteSessionHead")]
pub struct AgentSessionView {
    /// The id of the session.
    pub id: String,
    #[schemars(extend("const" = "agent_session"))]
    object: &'static str,
    /// The owner.
    pub user: String,
    /// The profile; null for the tenant's usual assistant.
    pub profile: Option<String>,
    /// The mode that it is in.
    pub mode: String,
    /// The number of turns.
    pub turns: u64,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

/// A session of the strict contract with a page of its turns, newest first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ExecuteSession")]
pub struct AgentSessionTurns {
    #[serde(flatten)]
    session: AgentSessionView,
    data: Vec<AgentTurnView>,
    first_id: Option<u64>,
    last_id: Option<u64>,
    /// Whether there are older turns.
    has_more: bool,
}

/// A turn of a session.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct AgentTurnView {
    /// Its place in the session, from 1.
    number: u64,
    /// The client's name for it.
    turn_id: String,
    /// The accepted submissions, in order.
    steps: Vec<AgentStepView>,
}

/// A submission that was accepted.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct AgentStepView {
    /// The response that answers it; `GET /admin/turns/{response_id}` has its content.
    response_id: String,
    /// The mode that the session was in.
    mode: String,
    /// The status of the response; `gone` if it was deleted.
    status: &'static str,
    created_at: UnixSeconds,
}

impl From<OwnedBy<AgentSession>> for AgentSessionView {
    fn from(OwnedBy { user, object: session }: OwnedBy<AgentSession>) -> Self {
        Self {
            id: session.id,
            object: "agent_session",
            user,
            profile: session.profile,
            mode: session.mode,
            turns: session.turns,
            created_at: UnixSeconds::from_ms(session.created_at_ms),
            updated_at: UnixSeconds::from_ms(session.updated_at_ms),
        }
    }
}

impl From<AgentTurn> for AgentTurnView {
    fn from(turn: AgentTurn) -> Self {
        let step = |step: AgentStep| AgentStepView {
            response_id: step.response_id,
            mode: step.mode,
            status: match step.state {
                StepState::Running => "in_progress",
                StepState::Ended(status) => status.name(),
                StepState::Gone => "gone",
            },
            created_at: UnixSeconds::from_ms(step.created_at_ms),
        };
        Self { number: turn.number, turn_id: turn.turn_id, steps: turn.steps.into_iter().map(step).collect() }
    }
}

impl Administration<'_> {
    /// Sessions, newest first; with `user` those of one user.
    pub async fn agent_sessions(
        &self,
        scope: &Scope,
        user: Option<&str>,
        page: &Page,
    ) -> Result<List<AgentSessionView, String>, Fault> {
        let found = self.store.agent_sessions_within(within(scope)?, user, page.after.as_deref(), page.limit + 1);
        let views = found.await?.into_iter().map(AgentSessionView::from).collect();
        Ok(List::new(views, page.limit, |session: &AgentSessionView| session.id.clone()))
    }

    /// One session with a page of its turns, newest first.
    pub async fn agent_session(&self, scope: &Scope, id: &str, page: &Page) -> Result<AgentSessionTurns, Fault> {
        let after: Option<u64> = number_after(page, "it is a number")?;
        let found = self.owned_session(scope, id).await?;
        let user = user_scope(admin(scope)?, scope, &found.user);
        let turns = self.store.agent_turns(&user, id, after, page.limit + 1).await?;
        let turns = turns.ok_or_else(|| not_found(SESSION, id))?;
        let turns = turns.into_iter().map(AgentTurnView::from).collect();
        let List { data, first_id, last_id, has_more, .. } =
            List::new(turns, page.limit, |turn: &AgentTurnView| turn.number);
        Ok(AgentSessionTurns { session: found.into(), data, first_id, last_id, has_more })
    }

    /// Deletes a session with its responses.
    pub async fn delete_agent_session(&self, scope: &Scope, id: &str) -> Result<(), Fault> {
        let found = self.owned_session(scope, id).await?;
        let user = user_scope(admin(scope)?, scope, &found.user);
        let audit = self.change(scope.tenant_id(), DELETE, id).before(snapshot(&AgentSessionView::from(found)));
        self.store.append_audit(amalgam_core::Operator::of_this_process(), audit).await?;
        let responses = self.store.delete_session(&user, id).await?.ok_or_else(|| not_found(SESSION, id))?;
        for response in &responses {
            self.store.delete_response(&user, response).await?;
        }
        Ok(())
    }

    async fn owned_session(&self, scope: &Scope, id: &str) -> Result<OwnedBy<AgentSession>, Fault> {
        let found = self.store.agent_session_within(within(scope)?, known_id(SESSION, id)?).await?;
        found.ok_or_else(|| not_found(SESSION, id))
    }
}
