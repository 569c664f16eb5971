//! Files that callers have uploaded.

use std::sync::atomic::{AtomicBool, Ordering};

use amalgam_core::{
    Scope,
    store::{FileListing, FileRecord, FileStore, Order, Stored},
};
use bytes::Bytes;
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, Failure, Param},
    job::{most, signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{assistant, rows};

statements! {
    /// One upload of a tenant at a time: else two could both take the last room.
    Operator LOCK_FILES = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    Admin BYTES_OF_FILES = "
        SELECT COALESCE(sum(bytes), 0)::bigint FROM files
        WHERE tenant_id = $1 AND (expires_at IS NULL OR expires_at > $2)";
    Caller ADD_FILE = "
        INSERT INTO files (tenant_id, user_id, id, filename, purpose, media_type, bytes, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    Caller ADD_CONTENT = "INSERT INTO file_contents (tenant_id, user_id, file_id, content) VALUES ($1, $2, $3, $4)";
    Caller FILE = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3 AND (expires_at IS NULL OR expires_at > $4)";
    Caller FILE_WITH_CONTENT = "
        SELECT f.id, f.filename, f.purpose, f.media_type, f.bytes, f.created_at, f.expires_at, c.content
        FROM files f JOIN file_contents c ON c.tenant_id = $1 AND c.user_id = $2 AND c.file_id = f.id
        WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.id = $3 AND (f.expires_at IS NULL OR f.expires_at > $4)";
    Caller FILES_UPWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id > $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id LIMIT $5";
    Caller FILES_DOWNWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id DESC LIMIT $5";
    Caller FILES_OF_PURPOSE_UPWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND purpose = $6 AND id > $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id LIMIT $5";
    Caller FILES_OF_PURPOSE_DOWNWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND purpose = $6 AND id < $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id DESC LIMIT $5";
    Caller DELETE_FILE = "
        WITH content AS (
            DELETE FROM file_contents WHERE tenant_id = $1 AND user_id = $2 AND file_id = $3
        )
        DELETE FROM files WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
}

impl FileStore for Postgres {
    fn put_file<'a>(&'a self, scope: &'a Scope, file: FileRecord, content: Bytes, most_bytes: u64) -> Stored<'a, bool> {
        Box::pin(async move {
            let (file, content) = (&file, &content);
            // The id is new: one that is there after a first try was put there by it.
            let tried = &AtomicBool::new(false);
            let put = self.pool.repeatably(move |mut connection: Lease| async move {
                let again = tried.swap(true, Ordering::Relaxed);
                connection.begin().await?;
                let put = put(&connection, scope, file, content, most_bytes, again).await;
                connection.end(put).await
            });
            put.await
        })
    }

    fn file<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<FileRecord>> {
        Box::pin(
            self.pool.repeatably(move |connection: Lease| async move { get(&connection, scope, id, now_ms).await }),
        )
    }

    fn file_content<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &id, &signed(now_ms)];
            let row = connection.row(&FILE_WITH_CONTENT, &params).await?;
            row.map(|row| Ok((file_from(&row)?, Bytes::copy_from_slice(row.try_get(7)?)))).transpose()
        }))
    }

    fn files<'a>(&'a self, scope: &'a Scope, listing: FileListing<'a>, now_ms: u64) -> Stored<'a, Vec<FileRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let FileListing { purpose, after, order, limit } = listing;
            let (from, sql, sql_of_purpose) = match order {
                Order::Ascending => (after.unwrap_or_default(), &FILES_UPWARDS, &FILES_OF_PURPOSE_UPWARDS),
                Order::Descending => (after.unwrap_or(rows::BEHIND_ALL), &FILES_DOWNWARDS, &FILES_OF_PURPOSE_DOWNWARDS),
            };
            let (tenant_id, user, now) = (scope.tenant_id(), scope.user(), signed(now_ms));
            let limit = most(limit);
            let mut params: Vec<Param<'_>> = vec![&tenant_id, &user, &from, &now, &limit];
            let found = match &purpose {
                None => connection.rows(sql, &params).await?,
                Some(purpose) => {
                    params.push(purpose);
                    connection.rows(sql_of_purpose, &params).await?
                }
            };
            found.iter().map(file_from).collect()
        }))
    }

    fn delete_file<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |connection: Lease| async move {
            Ok(connection.execute(&DELETE_FILE, &[&scope.tenant_id(), &scope.user(), &id]).await? == 1)
        }))
    }
}

/// Inside a transaction. `tried` says that the same may have been done before, with the answer lost.
async fn put(
    connection: &Connection,
    scope: &Scope,
    file: &FileRecord,
    content: &Bytes,
    most_bytes: u64,
    tried: bool,
) -> Result<bool, Failure> {
    let (tenant_id, user, now) = (scope.tenant_id(), scope.user(), signed(file.created_at_ms));
    connection.row(&LOCK_FILES, &[&format!("files {tenant_id}")]).await?;
    if tried && get(connection, scope, &file.id, file.created_at_ms).await?.is_some() {
        return Ok(true);
    }
    let has = connection.row(&BYTES_OF_FILES, &[&tenant_id, &now]).await?;
    let has = has.map(|row| row.try_get::<_, i64>(0)).transpose()?.map(unsigned).unwrap_or_default();
    if has.saturating_add(file.bytes) > most_bytes {
        return Ok(false);
    }
    let params: [Param<'_>; 9] = [
        &tenant_id,
        &user,
        &file.id,
        &assistant::content(&file.filename),
        &assistant::content(&file.purpose),
        &assistant::content(&file.media_type),
        &signed(file.bytes),
        &now,
        &file.expires_at_ms.map(signed),
    ];
    connection.execute(&ADD_FILE, &params).await?;
    connection.execute(&ADD_CONTENT, &[&tenant_id, &user, &file.id, &content.as_ref()]).await?;
    Ok(true)
}

async fn get(connection: &Connection, scope: &Scope, id: &str, now_ms: u64) -> Result<Option<FileRecord>, Failure> {
    let row = connection.row(&FILE, &[&scope.tenant_id(), &scope.user(), &id, &signed(now_ms)]).await?;
    row.as_ref().map(file_from).transpose()
}

fn file_from(row: &Row) -> Result<FileRecord, Failure> {
    Ok(FileRecord {
        id: row.try_get(0)?,
        filename: row.try_get(1)?,
        purpose: row.try_get(2)?,
        media_type: row.try_get(3)?,
        bytes: unsigned(row.try_get(4)?),
        created_at_ms: unsigned(row.try_get(5)?),
        expires_at_ms: row.try_get::<_, Option<i64>>(6)?.map(unsigned),
    })
}
