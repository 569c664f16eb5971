//! Tenants, keys, and what the installation remembers.

use amalgam_core::{
    Operator, TenantState,
    store::{KeyRecord, NewKey, Stored, TenancyStore, TenantChange, TenantRecord},
};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Failure, Param},
    job::{most, signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{bank, rows};

statements! {
    Operator ADD_TENANT = "
        INSERT INTO tenants (id, name, state, ai_agent_enabled, created_at) VALUES ($1, $2, $3, true, $4)
        ON CONFLICT (id) DO NOTHING
        RETURNING id, name, state, ai_agent_enabled, created_at";
    Operator ADD_NEXT_TENANT = "
        INSERT INTO tenants (id, name, state, ai_agent_enabled, created_at)
        SELECT COALESCE(max(id), 0) + 1, $1, $2, true, $3 FROM tenants
        ON CONFLICT (id) DO NOTHING
        RETURNING id, name, state, ai_agent_enabled, created_at";
    Operator TENANTS = "
        SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id > $1 ORDER BY id LIMIT $2";
    Operator TENANT = "SELECT id, name, state, ai_agent_enabled, created_at FROM tenants WHERE id = $1";
    Operator CHANGE_TENANT = "
        UPDATE tenants SET name = COALESCE($2, name), state = COALESCE($3, state),
            ai_agent_enabled = COALESCE($4, ai_agent_enabled)
        WHERE id = $1
        RETURNING id, name, state, ai_agent_enabled, created_at";
    Operator ADD_KEY = "
        INSERT INTO api_keys (id, tenant_id, hash, prefix, label, rights, user_id, created_at, expires_at, revoked_at,
            last_used_at)
        SELECT $1::text, id, $3::bytea, $4::text, $5::text, $6::text, $7::text, $8::bigint, $9::bigint, $10::bigint,
            $11::bigint
        FROM tenants WHERE id = $2
        ON CONFLICT DO NOTHING";
    Operator KEYS = "
        SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
        FROM api_keys WHERE id > $1 ORDER BY id LIMIT $2";
    Operator KEYS_OF_TENANT = "
        SELECT id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at
        FROM api_keys WHERE tenant_id = $3 AND id > $1 ORDER BY id LIMIT $2";
    Operator REVOKE_KEY = "
        UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $3)
        WHERE id = $1 AND tenant_id = COALESCE($2, tenant_id)
        RETURNING id, tenant_id, prefix, label, rights, user_id, created_at, expires_at, revoked_at, last_used_at";
    Operator KEY_BY_HASH = "
        SELECT k.id, k.tenant_id, k.prefix, k.label, k.rights, k.user_id, k.created_at, k.expires_at, k.revoked_at,
            k.last_used_at, t.id, t.name, t.state, t.ai_agent_enabled, t.created_at
        FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.hash = $1";
    /// In the order of ids, so that two who note the same keys do not wait for each other in a circle.
    Operator TOUCH_KEYS = "
        WITH used AS (
            SELECT k.id, u.at FROM api_keys k
            JOIN (SELECT id, max(at) AS at FROM unnest($1::text[], $2::bigint[]) AS one (id, at) GROUP BY id) AS u
                ON u.id = k.id
            WHERE k.last_used_at IS NULL OR k.last_used_at < u.at
            ORDER BY k.id FOR NO KEY UPDATE OF k
        )
        UPDATE api_keys SET last_used_at = used.at FROM used WHERE used.id = api_keys.id";
    Operator REMEMBERED = "SELECT text FROM memory WHERE name = $1";
    Operator REMEMBER_ONCE = "INSERT INTO memory (name, text) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    Operator REMEMBER = "
        INSERT INTO memory (name, text) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET text = excluded.text";
}

impl TenancyStore for Postgres {
    fn create_tenant<'a>(
        &'a self,
        _operator: Operator,
        id: Option<i64>,
        name: &'a str,
        state: TenantState,
        now_ms: u64,
    ) -> Stored<'a, Option<TenantRecord>> {
        if id == Some(bank::COMMON) {
            // Reserved: the tools of such a tenant would be shared by all.
            return Box::pin(async { Ok(None) });
        }
        // A number that was given is the caller's; the next one would be another one each time.
        Box::pin(self.pool.once(move |connection: Lease| async move {
            let (state, now) = (state.name(), signed(now_ms));
            if let Some(id) = id {
                let row = connection.row(&ADD_TENANT, &[&id, &name, &state, &now]).await?;
                return row.as_ref().map(|row| tenant_from(row, 0)).transpose();
            }
            // Another request may take the same number at the same moment.
            for _ in 0..NUMBER_TRIES {
                if let Some(row) = connection.row(&ADD_NEXT_TENANT, &[&name, &state, &now]).await? {
                    return tenant_from(&row, 0).map(Some);
                }
            }
            Err(Failure::again("others take every number"))
        }))
    }

    fn tenants(&self, _operator: Operator, after: Option<i64>, limit: usize) -> Stored<'_, Vec<TenantRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let found = connection.rows(&TENANTS, &[&after.unwrap_or(i64::MIN), &most(limit)]).await?;
            found.iter().map(|row| tenant_from(row, 0)).collect()
        }))
    }

    fn tenant(&self, _operator: Operator, id: i64) -> Stored<'_, Option<TenantRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            connection.row(&TENANT, &[&id]).await?.map(|row| tenant_from(&row, 0)).transpose()
        }))
    }

    fn change_tenant(&self, _operator: Operator, id: i64, change: TenantChange) -> Stored<'_, Option<TenantRecord>> {
        Box::pin(async move {
            let change = &change;
            let changed = self.pool.repeatably(move |connection: Lease| async move {
                let state = change.state.map(TenantState::name);
                let params: [Param<'_>; 4] = [&id, &change.name, &state, &change.ai_agent_enabled];
                connection.row(&CHANGE_TENANT, &params).await?.map(|row| tenant_from(&row, 0)).transpose()
            });
            changed.await
        })
    }

    fn create_key(&self, _operator: Operator, key: NewKey) -> Stored<'_, bool> {
        Box::pin(async move {
            let NewKey { record, hash } = &key;
            let created = self.pool.once(move |connection: Lease| async move {
                let params: [Param<'_>; 11] = [
                    &record.id,
                    &record.tenant_id,
                    &hash.as_slice(),
                    &record.prefix,
                    &record.label,
                    &rows::rights_text(record.rights),
                    &record.user,
                    &signed(record.created_at_ms),
                    &record.expires_at_ms.map(signed),
                    &record.revoked_at_ms.map(signed),
                    &record.last_used_at_ms.map(signed),
                ];
                Ok(connection.execute(&ADD_KEY, &params).await? == 1)
            });
            created.await
        })
    }

    fn keys<'a>(
        &'a self,
        _operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<KeyRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (after, limit) = (after.unwrap_or_default(), most(limit));
            let found = match tenant_id {
                None => connection.rows(&KEYS, &[&after, &limit]).await?,
                Some(tenant_id) => connection.rows(&KEYS_OF_TENANT, &[&after, &limit, &tenant_id]).await?,
            };
            found.iter().map(key_from).collect()
        }))
    }

    fn revoke_key<'a>(
        &'a self,
        _operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<KeyRecord>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&REVOKE_KEY, &[&id, &tenant_id, &signed(now_ms)]).await?;
            row.as_ref().map(key_from).transpose()
        }))
    }

    fn key_by_hash(&self, _operator: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&KEY_BY_HASH, &[&hash.as_slice()]).await?;
            row.map(|row| Ok((key_from(&row)?, tenant_from(&row, 10)?))).transpose()
        }))
    }

    fn touch_keys(&self, _operator: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()> {
        Box::pin(async move {
            let used = &used;
            let touched = self.pool.repeatably(move |connection: Lease| async move {
                let (ids, times): (Vec<&str>, Vec<i64>) =
                    used.iter().map(|(id, at_ms)| (id.as_str(), signed(*at_ms))).unzip();
                connection.execute(&TOUCH_KEYS, &[&ids, &times]).await.map(drop)
            });
            touched.await
        })
    }

    fn remembered<'a>(&'a self, _operator: Operator, name: &'a str) -> Stored<'a, Option<String>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&REMEMBERED, &[&name]).await?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        }))
    }

    fn remember<'a>(&'a self, _operator: Operator, name: &'a str, text: &'a str, replace: bool) -> Stored<'a, String> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            connection.execute(if replace { &REMEMBER } else { &REMEMBER_ONCE }, &[&name, &text]).await?;
            let row = connection.row(&REMEMBERED, &[&name]).await?;
            let row = row.ok_or_else(|| Failure::again("what was remembered was forgotten at once"))?;
            Ok(row.try_get(0)?)
        }))
    }
}

const NUMBER_TRIES: usize = 32;

fn tenant_from(row: &Row, from: usize) -> Result<TenantRecord, Failure> {
    Ok(TenantRecord {
        id: row.try_get(from)?,
        name: row.try_get(from + 1)?,
        state: rows::tenant_state(row.try_get(from + 2)?)?,
        ai_agent_enabled: row.try_get(from + 3)?,
        created_at_ms: unsigned(row.try_get(from + 4)?),
    })
}

fn key_from(row: &Row) -> Result<KeyRecord, Failure> {
    let time = |at: usize| row.try_get::<_, Option<i64>>(at).map(|time| time.map(unsigned));
    Ok(KeyRecord {
        id: row.try_get(0)?,
        tenant_id: row.try_get(1)?,
        prefix: row.try_get(2)?,
        label: row.try_get(3)?,
        rights: rows::rights(row.try_get(4)?)?,
        user: row.try_get(5)?,
        created_at_ms: unsigned(row.try_get(6)?),
        expires_at_ms: time(7)?,
        revoked_at_ms: time(8)?,
        last_used_at_ms: time(9)?,
    })
}
