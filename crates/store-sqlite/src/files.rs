//! Files that callers have uploaded.

use amalgam_core::Operator;
use amalgam_store::{
    files::{FORGET_CONTENT, FORGET_FILE},
    rows, statements,
};

use super::{
    failure::SqliteFailure,
    query::{Database, text},
};

statements! {
    OperatorSql EXPIRED_FILES = "
        SELECT tenant_id, user_id, id FROM files WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2";
}

/// Deletes a bounded number of expired files. Returns the number of deleted rows.
pub(super) fn prune(database: Database<'_>, operator: Operator, before: i64, most: i64) -> Result<u64, SqliteFailure> {
    let expired = database
        .operator(operator, EXPIRED_FILES, &[&before, &most])?
        .all(|row| Ok((rows::owner(row.get(0)?, text(row, 1)?, None)?, row.get::<_, String>(2)?)))?;
    expired.iter().try_fold(0, |rows, (scope, id)| {
        let content = database.user(scope, FORGET_CONTENT, &[id])?.run()?;
        Ok(rows + content + database.user(scope, FORGET_FILE, &[id])?.run()?)
    })
}
