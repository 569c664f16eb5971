//! Deletes responses, and their items as soon as no other response continues them.
//!
//! The row of items of a deleted response stays, marked as deleted. Rows at the end of a run that are not needed any
//! more are emptied but stay: their positions must not be taken by others while a request may still be about to
//! continue the deleted response. A run in which no row is needed is deleted as a whole, and then its parent's run is
//! examined.
use amalgam_core::{Scope, StoreError};
use amalgam_store::{
    session_queue::{deleted_record, release},
    statements,
};

use super::{
    connection::{Connection, PostgresFailure},
    execute, journal,
    pool::{Lease, Pool},
};

statements! {
    UserSql DELETE_HEAD = "
        WITH deleted AS (
            DELETE FROM responses WHERE tenant_id = $1 AND user_id = $2 AND stem = $3 AND id = $4
            RETURNING chain, position, id, created_at
        ), listed AS (
            UPDATE turns SET stored = false FROM deleted
            WHERE turns.tenant_id = $1 AND turns.user_id = $2 AND turns.created_at = deleted.created_at
                AND turns.response_id = deleted.id
        )
        SELECT chain, position, pg_notify('amalgam_changed', id)::text FROM deleted";
    UserSql DELETE_EVENTS = "DELETE FROM stream_events WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3";
    /// The model calls of these responses, except those that other calls refer to.
    UserSql DELETE_TRANSCRIPTS = "
        WITH RECURSIVE needed (response_id, number) AS (
            SELECT later.base_response, later.base_number FROM transcripts later
            WHERE later.tenant_id = $1 AND later.base_response = ANY ($3) AND NOT later.response_id = ANY ($3)
            UNION
            SELECT call.base_response, call.base_number FROM needed
            JOIN transcripts call ON call.tenant_id = $1 AND call.response_id = needed.response_id
                AND call.number = needed.number
        )
        DELETE FROM transcripts
        WHERE tenant_id = $1 AND user_id = $2 AND response_id = ANY ($3)
            AND NOT EXISTS (SELECT FROM needed
                WHERE needed.response_id = transcripts.response_id AND needed.number = transcripts.number)";
    /// One deletion in a run at a time: of two concurrent ones each would see the items of the other as needed.
    OperatorSql LOCK_CHAIN = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    /// Waits for children that are being inserted; later ones find the row deleted.
    UserSql LOCK_ROW = "
        SELECT 1 FROM items WHERE tenant_id = $1 AND user_id = $2 AND chain = $3 AND position = $4 FOR UPDATE";
    UserSql MARK_GONE = "
        UPDATE items SET gone = true WHERE tenant_id = $1 AND user_id = $2 AND chain = $3 AND position = $4";
    /// The last row of a run that its own response or a fork still needs.
    UserSql LAST_NEEDED = "
        SELECT position FROM items
        WHERE tenant_id = $1 AND user_id = $2 AND chain = $3
            AND (NOT gone OR EXISTS (SELECT FROM items fork
                WHERE fork.parent_chain = items.chain AND fork.parent_position = items.position))
        ORDER BY position DESC LIMIT 1";
    UserSql EMPTY_BEHIND = "
        UPDATE items SET input = '[]', output = '[]'
        WHERE tenant_id = $1 AND user_id = $2 AND chain = $3 AND position > $4
            AND (input <> '[]' OR output IS DISTINCT FROM '[]')
        RETURNING response_id";
    UserSql DELETE_CHAIN = "
        DELETE FROM items WHERE tenant_id = $1 AND user_id = $2 AND chain = $3
        RETURNING response_id, parent_chain";
}

/// A response to be deleted.
#[derive(Clone, Copy)]
pub(super) struct DeletedResponse<'a> {
    pub(super) scope: &'a Scope,
    pub(super) stem: &'a str,
    pub(super) id: &'a str,
}

/// Deletes a response. Returns whether it existed.
pub(super) async fn delete(pool: &Pool, response: DeletedResponse<'_>) -> Result<bool, StoreError> {
    pool.once(move |mut connection: Lease| async move {
        connection.begin().await?;
        let deleted = delete_within(&connection, response).await;
        connection.end(deleted).await
    })
    .await
}

async fn delete_within(connection: &Connection, response: DeletedResponse<'_>) -> Result<bool, PostgresFailure> {
    let DeletedResponse { scope, stem, id } = response;
    let (tenant_id, user) = (scope.tenant_id(), scope.user());
    let Some(row) = connection.row(DELETE_HEAD, &[&tenant_id, &user, &stem, &id]).await? else { return Ok(false) };
    let (chain, position): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    connection.execute(DELETE_EVENTS, &[&tenant_id, &user, &id]).await?;
    journal::forget(connection, tenant_id, user, id).await?;
    release(connection, scope, id, Some(&deleted_record())).await?;
    execute::leave(connection, scope, id).await?;
    connection.row(LOCK_CHAIN, &[&chain]).await?;
    connection.row(LOCK_ROW, &[&tenant_id, &user, &chain, &position]).await?;
    connection.execute(MARK_GONE, &[&tenant_id, &user, &chain, &position]).await?;
    // The model calls of a response are deleted with its items: a turn that continues it may be about to store only the
    // part of its request that is new.
    let gone = tidy(connection, tenant_id, user, chain).await?;
    if !gone.is_empty() {
        connection.execute(DELETE_TRANSCRIPTS, &[&tenant_id, &user, &gone]).await?;
    }
    Ok(true)
}

/// Empties the rows at the end of a locked run that are not needed. Returns the responses whose items were deleted.
/// Runs are locked from a fork to its parent, so that two transactions cannot deadlock.
async fn tidy(
    connection: &Connection,
    tenant_id: i64,
    user: &str,
    mut chain: String,
) -> Result<Vec<String>, PostgresFailure> {
    let mut gone = Vec::new();
    loop {
        if let Some(row) = connection.row(LAST_NEEDED, &[&tenant_id, &user, &chain]).await? {
            let last: i64 = row.try_get(0)?;
            for row in connection.rows(EMPTY_BEHIND, &[&tenant_id, &user, &chain, &last]).await? {
                gone.push(row.try_get(0)?);
            }
            return Ok(gone);
        }
        let mut parent = None;
        for row in connection.rows(DELETE_CHAIN, &[&tenant_id, &user, &chain]).await? {
            gone.push(row.try_get(0)?);
            parent = parent.or(row.try_get::<_, Option<String>>(1)?);
        }
        let Some(next) = parent else { return Ok(gone) };
        connection.row(LOCK_CHAIN, &[&next]).await?;
        chain = next;
    }
}
