//! Sessions of the strict contract, their turns and steps.

use amalgam_core::Scope;
use amalgam_store::statements;

use super::connection::{Connection, PostgresFailure};

statements! {
    UserSql LEAVE_STEP = "
        UPDATE agent_steps SET process = NULL WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3";
}

/// Releases the step of a deleted response, whichever process took it.
pub(super) async fn leave(connection: &Connection, scope: &Scope, response_id: &str) -> Result<(), PostgresFailure> {
    connection.execute(LEAVE_STEP, &[&scope.tenant_id(), &scope.user(), &response_id]).await.map(drop)
}
