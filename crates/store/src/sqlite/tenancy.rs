//! Tenants, keys, and what the installation remembers.

use amalgam_core::{
    Operator, TenantState,
    store::{KeyRecord, NewKey, Stored, TenancyStore, TenantChange, TenantRecord},
};
use rusqlite::Row;

use super::{
    Sqlite,
    failure::Failure,
    query::{int, most, optional_int, optional_uint, text, uint},
    sql,
};
use crate::{bank, rows};

impl TenancyStore for Sqlite {
    fn create_tenant<'a>(
        &'a self,
        operator: Operator,
        id: Option<i64>,
        name: &'a str,
        state: TenantState,
        now_ms: u64,
    ) -> Stored<'a, Option<TenantRecord>> {
        let name = name.to_owned();
        if id == Some(bank::COMMON) {
            // Reserved: the tools of such a tenant would be shared by all.
            return Box::pin(async { Ok(None) });
        }
        self.change(move |transaction| {
            let params: [&dyn rusqlite::ToSql; 4] = [&id, &name, &state.name(), &int(now_ms)?];
            transaction.database.operator(operator, sql::ADD_TENANT, &params)?.first(|row| tenant(row, 0))
        })
    }

    fn tenants(&self, operator: Operator, after: Option<i64>, limit: usize) -> Stored<'_, Vec<TenantRecord>> {
        let (after, limit) = (after.unwrap_or(i64::MIN), most(limit));
        self.read(move |transaction| {
            transaction.database.operator(operator, sql::TENANTS, &[&after, &limit])?.all(|row| tenant(row, 0))
        })
    }

    fn tenant(&self, operator: Operator, id: i64) -> Stored<'_, Option<TenantRecord>> {
        self.read(move |transaction| {
            transaction.database.operator(operator, sql::TENANT, &[&id])?.first(|row| tenant(row, 0))
        })
    }

    fn change_tenant(&self, operator: Operator, id: i64, change: TenantChange) -> Stored<'_, Option<TenantRecord>> {
        self.change(move |transaction| {
            let state = change.state.map(TenantState::name);
            transaction
                .database
                .operator(operator, sql::CHANGE_TENANT, &[&id, &change.name, &state, &change.ai_agent_enabled])?
                .first(|row| tenant(row, 0))
        })
    }

    fn create_key(&self, operator: Operator, new: NewKey) -> Stored<'_, bool> {
        self.change(move |transaction| {
            let key = &new.record;
            let added = transaction
                .database
                .operator(
                    operator,
                    sql::ADD_KEY,
                    &[
                        &key.id,
                        &key.tenant_id,
                        &&new.hash[..],
                        &key.prefix,
                        &key.label,
                        &rows::rights_text(key.rights),
                        &key.user,
                        &int(key.created_at_ms)?,
                        &optional_int(key.expires_at_ms)?,
                        &optional_int(key.revoked_at_ms)?,
                        &optional_int(key.last_used_at_ms)?,
                    ],
                )?
                .run()?;
            Ok(added == 1)
        })
    }

    fn keys<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<KeyRecord>> {
        let (after, limit) = (after.unwrap_or_default().to_owned(), most(limit));
        self.read(move |transaction| {
            let database = transaction.database;
            match tenant_id {
                None => database.operator(operator, sql::KEYS, &[&after, &limit])?,
                Some(tenant_id) => database.operator(operator, sql::KEYS_OF_TENANT, &[&after, &limit, &tenant_id])?,
            }
            .all(key)
        })
    }

    fn revoke_key<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<KeyRecord>> {
        let id = id.to_owned();
        self.change(move |transaction| {
            transaction.database.operator(operator, sql::REVOKE_KEY, &[&id, &tenant_id, &int(now_ms)?])?.first(key)
        })
    }

    fn key_by_hash(&self, operator: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        self.read(move |transaction| {
            transaction
                .database
                .operator(operator, sql::KEY_BY_HASH, &[&&hash[..]])?
                .first(|row| Ok((key(row)?, tenant(row, 10)?)))
        })
    }

    fn touch_keys(&self, operator: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()> {
        self.change(move |transaction| {
            for (id, at_ms) in &used {
                transaction.database.operator(operator, sql::TOUCH_KEY, &[id, &int(*at_ms)?])?.run()?;
            }
            Ok(())
        })
    }

    fn remembered<'a>(&'a self, operator: Operator, name: &'a str) -> Stored<'a, Option<String>> {
        let name = name.to_owned();
        self.read(move |transaction| {
            transaction.database.operator(operator, sql::REMEMBERED, &[&name])?.first(|row| Ok(row.get(0)?))
        })
    }

    fn remember<'a>(&'a self, operator: Operator, name: &'a str, text: &'a str, replace: bool) -> Stored<'a, String> {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            let statement = if replace { sql::REMEMBER } else { sql::REMEMBER_ONCE };
            database.operator(operator, statement, &[&name, &text])?.run()?;
            let now = database.operator(operator, sql::REMEMBERED, &[&name])?.first(|row| Ok(row.get(0)?))?;
            now.ok_or_else(|| Failure::Broken("what was remembered is gone".into()))
        })
    }
}

fn tenant(row: &Row<'_>, from: usize) -> Result<TenantRecord, Failure> {
    Ok(TenantRecord {
        id: row.get(from)?,
        name: row.get(from + 1)?,
        state: rows::tenant_state(text(row, from + 2)?)?,
        ai_agent_enabled: row.get(from + 3)?,
        created_at_ms: uint(row, from + 4)?,
    })
}

fn key(row: &Row<'_>) -> Result<KeyRecord, Failure> {
    Ok(KeyRecord {
        id: row.get(0)?,
        tenant_id: row.get(1)?,
        prefix: row.get(2)?,
        label: row.get(3)?,
        rights: rows::rights(text(row, 4)?)?,
        user: row.get(5)?,
        created_at_ms: uint(row, 6)?,
        expires_at_ms: optional_uint(row, 7)?,
        revoked_at_ms: optional_uint(row, 8)?,
        last_used_at_ms: optional_uint(row, 9)?,
    })
}
