//! Files that callers have uploaded.

use amalgam_core::{
    Operator, Scope,
    store::{FileListing, FileRecord, FileStore, Order, Stored},
};
use bytes::Bytes;
use rusqlite::Row;

use super::{
    Sqlite,
    failure::Failure,
    query::{Database, Tenant, bytes, int, most, optional_int, optional_uint, owner_of, uint},
    sql,
};
use crate::{assistant, rows};

impl FileStore for Sqlite {
    fn put_file<'a>(&'a self, scope: &'a Scope, file: FileRecord, content: Bytes, most_bytes: u64) -> Stored<'a, bool> {
        let scope = scope.clone();
        self.change(move |transaction| put(transaction.database, &scope, &file, &content, most_bytes))
    }

    fn file<'a>(&'a self, scope: &'a Scope, id: &'a str, now_ms: u64) -> Stored<'a, Option<FileRecord>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(move |transaction| get(transaction.database, &scope, &id, now_ms))
    }

    fn file_content<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(move |transaction| {
            let database = transaction.database;
            let Some(file) = get(database, &scope, &id, now_ms)? else { return Ok(None) };
            let content =
                database.user(&scope, sql::CONTENT, &[&id])?.first(|row| Ok(Bytes::copy_from_slice(bytes(row, 0)?)))?;
            let content = content.ok_or_else(|| Failure::Broken("a file is there without its content".into()))?;
            Ok(Some((file, content)))
        })
    }

    fn files<'a>(&'a self, scope: &'a Scope, listing: FileListing<'a>, now_ms: u64) -> Stored<'a, Vec<FileRecord>> {
        let FileListing { purpose, after, order, limit } = listing;
        let from = match order {
            Order::Ascending => after.unwrap_or_default(),
            Order::Descending => after.unwrap_or(rows::BEHIND_ALL),
        };
        let (scope, from, purpose) = (scope.clone(), from.to_owned(), purpose.map(str::to_owned));
        self.read(move |transaction| {
            let database = transaction.database;
            let (now, limit) = (int(now_ms)?, most(limit));
            let found = match (order, &purpose) {
                (Order::Ascending, None) => database.user(&scope, sql::FILES_UPWARDS, &[&from, &now, &limit])?,
                (Order::Descending, None) => database.user(&scope, sql::FILES_DOWNWARDS, &[&from, &now, &limit])?,
                (Order::Ascending, Some(purpose)) => {
                    database.user(&scope, sql::FILES_OF_PURPOSE_UPWARDS, &[&from, &now, &limit, purpose])?
                }
                (Order::Descending, Some(purpose)) => {
                    database.user(&scope, sql::FILES_OF_PURPOSE_DOWNWARDS, &[&from, &now, &limit, purpose])?
                }
            };
            found.all(file)
        })
    }

    fn delete_file<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.change(move |transaction| Ok(forget(transaction.database, &scope, &id)? > 0))
    }
}

fn put(
    database: Database<'_>,
    scope: &Scope,
    file: &FileRecord,
    content: &Bytes,
    most_bytes: u64,
) -> Result<bool, Failure> {
    let has = database
        .tenant(Tenant::of_caller(scope), sql::BYTES_OF_FILES, &[&int(file.created_at_ms)?])?
        .first(|row| uint(row, 0))?;
    if has.unwrap_or_default().saturating_add(file.bytes) > most_bytes {
        return Ok(false);
    }
    let params: [&dyn rusqlite::ToSql; 7] = [
        &file.id,
        &assistant::content(&file.filename),
        &assistant::content(&file.purpose),
        &assistant::content(&file.media_type),
        &int(file.bytes)?,
        &int(file.created_at_ms)?,
        &optional_int(file.expires_at_ms)?,
    ];
    database.user(scope, sql::ADD_FILE, &params)?.run()?;
    database.user(scope, sql::ADD_CONTENT, &[&file.id, &&content[..]])?.run()?;
    Ok(true)
}

fn get(database: Database<'_>, scope: &Scope, id: &str, now_ms: u64) -> Result<Option<FileRecord>, Failure> {
    database.user(scope, sql::FILE, &[&id, &int(now_ms)?])?.first(file)
}

/// Forgets a file; how many rows went.
fn forget(database: Database<'_>, scope: &Scope, id: &str) -> Result<u64, Failure> {
    let content = database.user(scope, sql::FORGET_CONTENT, &[&id])?.run()?;
    Ok(content + database.user(scope, sql::FORGET_FILE, &[&id])?.run()?)
}

/// Forgets a bounded number of files whose end has come; how many rows went.
pub(super) fn prune(database: Database<'_>, operator: Operator, before: i64, most: i64) -> Result<u64, Failure> {
    let expired = database
        .operator(operator, sql::EXPIRED_FILES, &[&before, &most])?
        .all(|row| Ok((owner_of(row.get(0)?, row.get(1)?, None)?, row.get::<_, String>(2)?)))?;
    expired.iter().try_fold(0, |rows, (scope, id)| Ok(rows + forget(database, scope, id)?))
}

fn file(row: &Row<'_>) -> Result<FileRecord, Failure> {
    Ok(FileRecord {
        id: row.get(0)?,
        filename: row.get(1)?,
        purpose: row.get(2)?,
        media_type: row.get(3)?,
        bytes: uint(row, 4)?,
        created_at_ms: uint(row, 5)?,
        expires_at_ms: optional_uint(row, 6)?,
    })
}
