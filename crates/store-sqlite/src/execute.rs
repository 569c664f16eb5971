//! Sessions of the strict contract, their turns and steps.

use amalgam_core::Scope;
use amalgam_store::statements;

use super::{failure::SqliteFailure, query::Database};

statements! {
    UserSql LEAVE_STEP = "
        UPDATE agent_steps SET process = NULL WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
}

/// Releases the step of a deleted response, whichever process took it.
pub(super) fn leave(database: Database<'_>, scope: &Scope, response_id: &str) -> Result<(), SqliteFailure> {
    database.user(scope, LEAVE_STEP, &[&response_id])?.run().map(drop)
}
