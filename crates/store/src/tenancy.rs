//! Tenants, keys, and named values of the installation.

use amalgam_core::{
    AuditDraft, Operator, StoreError, TenantState,
    store::{KeyRecord, NewKey, Stored, TenancyStore, TenantChange, TenantRecord},
};

use crate::{
    SqlStore, audit,
    bank::COMMON,
    engine::{Repeat, SqlConnection, SqlEngine},
    rows,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    OperatorSql ADD_TENANT = "
        INSERT INTO tenants (id, name, state, ai_agent_enabled, created_at) VALUES ($1, $2, $3, true, $4)
        ON CONFLICT (id) DO NOTHING
        RETURNING id, name, state, ai_agent_enabled, created_at";
    OperatorSql ADD_NEXT_TENANT = "
        INSERT INTO tenants (id, name, state, ai_agent_enabled, created_at)
        SELECT COALESCE(max(id), 0) + 1, $1, $2, true, $3 FROM tenants WHERE true
        ON CONFLICT (id) DO NOTHING
        RETURNING id, name, state, ai_agent_enabled, created_at";
    OperatorSql TENANTS = "
        SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id > $1 ORDER BY id LIMIT $2";
    pub(crate) OperatorSql TENANT = "SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id = $1";
    OperatorSql CHANGE_TENANT = "
        UPDATE tenants SET name = COALESCE($2, name), state = COALESCE($3, state),
            ai_agent_enabled = COALESCE($4, ai_agent_enabled)
        WHERE id = $1
        RETURNING id, name, state, ai_agent_enabled, created_at";
    OperatorSql KEYS = "
        SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
        FROM api_keys WHERE id > $1 ORDER BY id LIMIT $2";
    OperatorSql KEY = "
        SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
        FROM api_keys WHERE id = $1";
    OperatorSql KEYS_OF_TENANT = "
        SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
        FROM api_keys WHERE tenant_id = $3 AND id > $1 ORDER BY id LIMIT $2";
    OperatorSql REVOKE_KEY = "
        UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $3)
        WHERE id = $1 AND tenant_id = COALESCE($2, tenant_id)
        RETURNING id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at";
    OperatorSql KEY_BY_HASH = "
        SELECT k.id, k.tenant_id, k.prefix, k.label, k.rights, k.user_id, k.created_at, k.expires_at, k.revoked_at,
            k.last_used_at, t.id, t.name, t.state, t.ai_agent_enabled, t.created_at
        FROM api_keys AS k JOIN tenants AS t ON t.id = k.tenant_id WHERE k.hash = $1";
    OperatorSql REMEMBERED = "SELECT text FROM memory WHERE name = $1";
    OperatorSql REMEMBER_ONCE = "INSERT INTO memory (name, text) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    OperatorSql REMEMBER = "
        INSERT INTO memory (name, text) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET text = excluded.text";
}

/// The number of attempts to take the next id while other requests take ids.
const NUMBER_TRIES: usize = 32;

impl<E: SqlEngine> TenancyStore for SqlStore<E> {
    fn create_tenant<'a>(
        &'a self,
        operator: Operator,
        id: Option<i64>,
        name: &'a str,
        state: TenantState,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>> {
        if id == Some(COMMON) {
            // Reserved: the tools of such a tenant would be shared by all.
            return Box::pin(async { Ok(None) });
        }
        let arguments = (operator, id, name.to_owned(), state, now_ms, audit);
        // Not repeatable: a second run would take another id.
        let created = self.engine.transaction(
            Repeat::Never,
            arguments,
            |connection, (operator, id, name, state, now_ms, audit)| {
                Box::pin(async move {
                    if let Some(id) = id {
                        let values = values![*id, name, state.name(), *now_ms];
                        let added =
                            connection.operator(*operator, ADD_TENANT, values).first(|row| tenant(row, 0)).await?;
                        append_created(connection, audit, added.as_ref()).await?;
                        return Ok(added);
                    }
                    for _ in 0..NUMBER_TRIES {
                        let values = values![name, state.name(), *now_ms];
                        let added = connection.operator(*operator, ADD_NEXT_TENANT, values);
                        if let Some(added) = added.first(|row| tenant(row, 0)).await? {
                            append_created(connection, audit, Some(&added)).await?;
                            return Ok(Some(added));
                        }
                    }
                    Err(connection.contended("other requests take every id"))
                })
            },
        );
        self.tenant_cache.changing(created)
    }

    fn tenants(&self, operator: Operator, after: Option<i64>, limit: usize) -> Stored<'_, Vec<TenantRecord>> {
        self.engine.read((operator, after.unwrap_or(i64::MIN), limit), |connection, (operator, after, limit)| {
            let query = connection.operator(*operator, TENANTS, values![*after, *limit]);
            Box::pin(query.all(|row| tenant(row, 0)))
        })
    }

    fn tenant(&self, operator: Operator, id: i64) -> Stored<'_, Option<TenantRecord>> {
        let cache = &self.tenant_cache;
        Box::pin(cache.get(&cache.tenants, id, move || {
            self.engine.read((operator, id), |connection, (operator, id)| {
                let query = connection.operator(*operator, TENANT, values![*id]);
                Box::pin(query.first(|row| tenant(row, 0)))
            })
        }))
    }

    fn change_tenant(
        &self,
        operator: Operator,
        id: i64,
        change: TenantChange,
        audit: AuditDraft,
    ) -> Stored<'_, Option<TenantRecord>> {
        let arguments = (operator, id, change, audit);
        let changed = self.engine.transaction(Repeat::Safe, arguments, |connection, (operator, id, change, audit)| {
            Box::pin(async move {
                let state = change.state.map(TenantState::name);
                let values = values![*id, &change.name, state, change.ai_agent_enabled];
                let changed = connection.operator(*operator, CHANGE_TENANT, values);
                let changed = changed.first(|row| tenant(row, 0)).await?;
                audit::append_if(connection, changed.is_some(), audit).await?;
                Ok(changed)
            })
        });
        self.tenant_cache.changing(changed)
    }

    fn create_key(&self, operator: Operator, key: NewKey, audit: AuditDraft) -> Stored<'_, bool> {
        self.engine.transaction(Repeat::Never, (operator, key, audit), |connection, (operator, key, audit)| {
            Box::pin(async move {
                let NewKey { record, hash } = key;
                let values = values![
                    &record.id,
                    record.tenant_id,
                    hash,
                    &record.prefix,
                    &record.label,
                    rows::rights_text(record.rights),
                    &record.user,
                    record.created_at_ms,
                    record.expires_at_ms,
                    record.revoked_at_ms,
                    record.last_used_at_ms,
                ];
                let added = connection.operator(*operator, connection.sql().add_key, values).run().await? == 1;
                audit::append_if(connection, added, audit).await
            })
        })
    }

    fn keys<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<KeyRecord>> {
        let arguments = (operator, tenant_id, after.unwrap_or_default().to_owned(), limit);
        self.engine.read(arguments, |connection, (operator, tenant_id, after, limit)| {
            let query = match tenant_id {
                None => connection.operator(*operator, KEYS, values![after, *limit]),
                Some(id) => connection.operator(*operator, KEYS_OF_TENANT, values![after, *limit, *id]),
            };
            Box::pin(query.all(key))
        })
    }

    fn key<'a>(&'a self, operator: Operator, id: &'a str) -> Stored<'a, Option<KeyRecord>> {
        self.engine.read((operator, id.to_owned()), |connection, (operator, id)| {
            Box::pin(connection.operator(*operator, KEY, values![id]).first(key))
        })
    }

    fn revoke_key<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>> {
        let arguments = (operator, tenant_id, id.to_owned(), now_ms, audit);
        self.engine.transaction(Repeat::Safe, arguments, |connection, (operator, tenant_id, id, now_ms, audit)| {
            Box::pin(async move {
                let values = values![id, *tenant_id, *now_ms];
                let revoked = connection.operator(*operator, REVOKE_KEY, values).first(key).await?;
                // A key that was revoked before is not changed.
                let changed = revoked.as_ref().filter(|key| key.revoked_at_ms == Some(*now_ms));
                if let Some(key) = changed {
                    let audit = AuditDraft { tenant_id: key.tenant_id, ..audit.clone() };
                    audit::append(connection, &audit).await?;
                }
                Ok(revoked)
            })
        })
    }

    fn key_by_hash(&self, operator: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        self.engine.read((operator, hash), |connection, (operator, hash)| {
            let query = connection.operator(*operator, KEY_BY_HASH, values![hash]);
            Box::pin(query.first(|row| Ok((key(row)?, tenant(row, 10)?))))
        })
    }

    fn touch_keys(&self, operator: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()> {
        self.engine.change(Repeat::Safe, (operator, used), |connection, (operator, used)| {
            Box::pin(async move {
                let touch = connection.operator(*operator, connection.sql().touch_key, []);
                touch.for_each(used.iter().map(|(id, at_ms)| values![id, *at_ms])).run().await.map(drop)
            })
        })
    }

    fn remembered<'a>(&'a self, operator: Operator, name: &'a str) -> Stored<'a, Option<String>> {
        self.engine.read((operator, name.to_owned()), |connection, (operator, name)| {
            let query = connection.operator(*operator, REMEMBERED, values![name]);
            Box::pin(query.first(|row| row.get(0)))
        })
    }

    fn remember<'a>(&'a self, operator: Operator, name: &'a str, text: &'a str, replace: bool) -> Stored<'a, String> {
        let arguments = (operator, name.to_owned(), text.to_owned(), replace);
        self.engine.change(Repeat::Safe, arguments, |connection, (operator, name, text, replace)| {
            Box::pin(async move {
                let statement = if *replace { REMEMBER } else { REMEMBER_ONCE };
                connection.operator(*operator, statement, values![name, text]).run().await?;
                let now = connection.operator(*operator, REMEMBERED, values![name]).first(|row| row.get(0)).await?;
                now.ok_or_else(|| connection.contended("another request deleted the text at once"))
            })
        })
    }
}

/// Appends the audit row of a created tenant, whose number may only be known now.
async fn append_created<C: SqlConnection>(
    connection: &C,
    audit: &AuditDraft,
    added: Option<&TenantRecord>,
) -> Result<(), C::Failure> {
    let Some(added) = added else { return Ok(()) };
    let draft = AuditDraft { tenant_id: added.id, object_id: added.id.to_string(), ..audit.clone() };
    audit::append(connection, &draft).await
}

/// A tenant, from this column on.
pub(crate) fn tenant(row: &dyn SqlRow, from: usize) -> Result<TenantRecord, StoreError> {
    Ok(TenantRecord {
        id: row.get(from)?,
        name: row.get(from + 1)?,
        state: rows::tenant_state(row.get(from + 2)?)?,
        ai_agent_enabled: row.get(from + 3)?,
        created_at_ms: row.get(from + 4)?,
    })
}

fn key(row: &dyn SqlRow) -> Result<KeyRecord, StoreError> {
    Ok(KeyRecord {
        id: row.get(0)?,
        tenant_id: row.get(1)?,
        prefix: row.get(2)?,
        label: row.optional(3)?,
        rights: rows::rights(row.get(4)?)?,
        user: row.optional(5)?,
        created_at_ms: row.get(6)?,
        expires_at_ms: row.optional(7)?,
        revoked_at_ms: row.optional(8)?,
        last_used_at_ms: row.optional(9)?,
    })
}
