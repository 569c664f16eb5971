//! Files that callers have uploaded.

use amalgam_core::{
    Scope, StoreError,
    store::{FileListing, FileRecord, FileStore, Order, Stored},
};
use bytes::Bytes;

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine, TenantKey},
    rows,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql BYTES_OF_FILES = "
        SELECT CAST(COALESCE(sum(bytes), 0) AS bigint) FROM files
        WHERE tenant_id = $1 AND (expires_at IS NULL OR expires_at > $2)";
    UserSql ADD_FILE = "
        INSERT INTO files (tenant_id, user_id, id, filename, purpose, media_type, bytes, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    UserSql ADD_CONTENT = "INSERT INTO file_contents (tenant_id, user_id, file_id, content) VALUES ($1, $2, $3, $4)";
    UserSql FILE = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3 AND (expires_at IS NULL OR expires_at > $4)";
    UserSql FILE_WITH_CONTENT = "
        SELECT f.id, f.filename, f.purpose, f.media_type, f.bytes, f.created_at, f.expires_at, c.content
        FROM files AS f JOIN file_contents AS c ON c.tenant_id = $1 AND c.user_id = $2 AND c.file_id = f.id
        WHERE f.tenant_id = $1 AND f.user_id = $2 AND f.id = $3 AND (f.expires_at IS NULL OR f.expires_at > $4)";
    UserSql FILES_UPWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id > $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id LIMIT $5";
    UserSql FILES_DOWNWARDS = "
        SELECT id, filename, purpose, media_type, bytes, created_at, expires_at FROM files
        WHERE tenant_id = $1 AND user_id = $2 AND id < $3 AND (expires_at IS NULL OR expires_at > $4)
        ORDER BY id DESC LIMIT $5";
    /// Deletes a file by its id.
    pub UserSql FORGET_FILE = "DELETE FROM files WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    /// Deletes the content of a file.
    pub UserSql FORGET_CONTENT = "DELETE FROM file_contents WHERE tenant_id = $1 AND user_id = $2 AND file_id = $3";
}

impl<E: SqlEngine> FileStore for SqlStore<E> {
    fn put_file<'a>(&'a self, scope: &'a Scope, file: FileRecord, content: Bytes, most_bytes: u64) -> Stored<'a, bool> {
        let arguments = (scope.clone(), file, content, most_bytes);
        self.engine.transaction(Repeat::Safe, arguments, |connection, (scope, file, content, most_bytes)| {
            Box::pin(put(connection, scope, file, content, *most_bytes))
        })
    }

    fn file<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<FileRecord>> {
        self.engine.read((scope.clone(), id.to_owned(), now_ms), |connection, (scope, id, now_ms)| {
            Box::pin(connection.user(scope, FILE, values![id, *now_ms]).first(file))
        })
    }

    fn file_content<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        self.engine.read((scope.clone(), id.to_owned(), now_ms), |connection, (scope, id, now_ms)| {
            let query = connection.user(scope, FILE_WITH_CONTENT, values![id, *now_ms]);
            Box::pin(query.first(|row| Ok((file(row)?, row.get(7)?))))
        })
    }

    fn files<'a>(&'a self, scope: &'a Scope, listing: FileListing<'a>, now_ms: u64) -> Stored<'a, Vec<FileRecord>> {
        let FileListing { purpose, after, order, limit } = listing;
        let from = match order {
            Order::Ascending => after.unwrap_or_default(),
            Order::Descending => after.unwrap_or(rows::BEHIND_ALL),
        };
        let arguments = (scope.clone(), from.to_owned(), purpose.map(str::to_owned), order, limit, now_ms);
        self.engine.read(arguments, |connection, (scope, from, purpose, order, limit, now_ms)| {
            let (statement, of_purpose) = match order {
                Order::Ascending => (FILES_UPWARDS, connection.sql().files_of_purpose_upwards),
                Order::Descending => (FILES_DOWNWARDS, connection.sql().files_of_purpose_downwards),
            };
            let query = match purpose {
                None => connection.user(scope, statement, values![from, *now_ms, *limit]),
                Some(purpose) => connection.user(scope, of_purpose, values![from, *now_ms, *limit, purpose]),
            };
            Box::pin(query.all(file))
        })
    }

    fn delete_file<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        self.engine.transaction(Repeat::Never, (scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(async move {
                connection.user(scope, FORGET_CONTENT, values![id]).run().await?;
                Ok(connection.user(scope, FORGET_FILE, values![id]).run().await? == 1)
            })
        })
    }
}

/// Stores a file. Returns whether the tenant has space for it. Inside a transaction.
async fn put<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    file: &FileRecord,
    content: &Bytes,
    most_bytes: u64,
) -> Result<bool, C::Failure> {
    // One upload of a tenant at a time: otherwise two uploads could both use the remaining space.
    let tenant = TenantKey::of_caller(scope);
    connection.lock(format!("files {}", tenant.number())).await?;
    // The id is new: a file that exists when the work is repeated was written by its first run.
    let now_ms = file.created_at_ms;
    if connection.is_repeated() && connection.user(scope, FILE, values![&file.id, now_ms]).exists().await? {
        return Ok(true);
    }
    let has = connection.tenant(tenant, BYTES_OF_FILES, values![now_ms]).first(|row| row.get::<u64>(0)).await?;
    if has.unwrap_or_default().saturating_add(file.bytes) > most_bytes {
        return Ok(false);
    }
    let values = values![
        &file.id,
        rows::storable(&file.filename),
        rows::storable(&file.purpose),
        rows::storable(&file.media_type),
        file.bytes,
        file.created_at_ms,
        file.expires_at_ms,
    ];
    connection.user(scope, ADD_FILE, values).run().await?;
    connection.user(scope, ADD_CONTENT, values![&file.id, &content[..]]).run().await?;
    Ok(true)
}

fn file(row: &dyn SqlRow) -> Result<FileRecord, StoreError> {
    Ok(FileRecord {
        id: row.get(0)?,
        filename: row.get(1)?,
        purpose: row.get(2)?,
        media_type: row.get(3)?,
        bytes: row.get(4)?,
        created_at_ms: row.get(5)?,
        expires_at_ms: row.optional(6)?,
    })
}
