//! Browser sessions of the console, and one-time links.

use amalgam_core::{
    AuditDraft, Operator, StoreError,
    store::{ConsoleOwner, ConsoleSession, ConsoleStore, ConsoleUser, SignIn, Stored, TenantRecord},
};

use crate::{
    SqlStore, audit,
    engine::{Repeat, SqlConnection, SqlEngine},
    rows,
    sql::shared_statements,
    tenancy,
    values::{SqlRow, values},
};

shared_statements! {
    OperatorSql ADD_CONSOLE_SESSION = "
        INSERT INTO console_sessions (id, tenant_id, hash, rights, key_id, key_hash, sign_in, browser, address, created_at,
            last_used_at, expires_at, user_id, user_name)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    OperatorSql END_CONSOLE_SESSIONS = "DELETE FROM console_sessions WHERE expires_at <= $1 OR last_used_at < $2";
    OperatorSql CONSOLE_SESSION = "
        SELECT s.id, s.tenant_id, s.rights, s.key_id, s.key_hash, s.sign_in, s.browser, s.address, s.created_at,
            s.last_used_at, s.expires_at, s.user_id, s.user_name, t.id, t.name, t.state, t.ai_agent_enabled, t.created_at
        FROM console_sessions AS s JOIN tenants AS t ON t.id = s.tenant_id WHERE s.hash = $1";
    OperatorSql TOUCH_CONSOLE_SESSION = "UPDATE console_sessions SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2";
    OperatorSql CONSOLE_SESSIONS = "
        SELECT id, tenant_id, rights, key_id, key_hash, sign_in, browser, address, created_at, last_used_at, expires_at,
            user_id, user_name
        FROM console_sessions WHERE id > $1 ORDER BY id LIMIT $2";
    OperatorSql CONSOLE_SESSIONS_OF_TENANT = "
        SELECT id, tenant_id, rights, key_id, key_hash, sign_in, browser, address, created_at, last_used_at, expires_at,
            user_id, user_name
        FROM console_sessions WHERE tenant_id = $3 AND id > $1 ORDER BY id LIMIT $2";
    OperatorSql REMOVE_CONSOLE_SESSION = "
        DELETE FROM console_sessions WHERE id = $1 AND tenant_id = COALESCE($2, tenant_id)
        RETURNING id, tenant_id, rights, key_id, key_hash, sign_in, browser, address, created_at, last_used_at, expires_at,
            user_id, user_name";
    OperatorSql ADD_CONSOLE_LINK = "
        INSERT INTO console_links (hash, tenant_id, rights, key_id, key_hash, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6)";
    OperatorSql END_CONSOLE_LINKS = "DELETE FROM console_links WHERE expires_at <= $1";
    OperatorSql TAKE_CONSOLE_LINK = "
        DELETE FROM console_links WHERE hash = $1 RETURNING tenant_id, rights, key_id, key_hash, expires_at";
}

impl<E: SqlEngine> ConsoleStore for SqlStore<E> {
    fn add_console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        session: ConsoleSession,
        ended_before_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool> {
        let arguments = (operator, token_hash, session, ended_before_ms, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (operator, hash, session, ended, audit)| {
            Box::pin(async move {
                let owner = &session.owner;
                if !connection.operator(*operator, tenancy::TENANT, values![owner.tenant_id]).exists().await? {
                    return Ok(false);
                }
                let over = values![session.created_at_ms, *ended];
                connection.operator(*operator, END_CONSOLE_SESSIONS, over).run().await?;
                let values = values![
                    &session.id,
                    owner.tenant_id,
                    hash,
                    rows::rights_text(owner.rights),
                    &owner.key_id,
                    owner.key_hash.as_ref(),
                    session.sign_in.name(),
                    &session.browser,
                    &session.address,
                    session.created_at_ms,
                    session.last_used_at_ms,
                    session.expires_at_ms,
                    session.user.as_ref().map(|user| &user.id),
                    session.user.as_ref().and_then(|user| user.name.as_ref()),
                ];
                connection.operator(*operator, ADD_CONSOLE_SESSION, values).run().await?;
                audit::append(connection, audit).await?;
                Ok(true)
            })
        })
    }

    fn console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
    ) -> Stored<'_, Option<(ConsoleSession, TenantRecord)>> {
        self.engine.read((operator, token_hash), |connection, (operator, hash)| {
            let query = connection.operator(*operator, CONSOLE_SESSION, values![hash]);
            Box::pin(query.first(|row| Ok((session(row)?, tenancy::tenant(row, 13)?))))
        })
    }

    fn touch_console_session<'a>(&'a self, operator: Operator, id: &'a str, now_ms: u64) -> Stored<'a, ()> {
        self.engine.change(Repeat::Safe, (operator, id.to_owned(), now_ms), |connection, (operator, id, now_ms)| {
            let touch = connection.operator(*operator, TOUCH_CONSOLE_SESSION, values![id, *now_ms]);
            Box::pin(async move { touch.run().await.map(drop) })
        })
    }

    fn console_sessions<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<ConsoleSession>> {
        let arguments = (operator, tenant_id, after.unwrap_or_default().to_owned(), limit);
        self.engine.read(arguments, |connection, (operator, tenant_id, after, limit)| {
            let query = match tenant_id {
                None => connection.operator(*operator, CONSOLE_SESSIONS, values![after, *limit]),
                Some(id) => connection.operator(*operator, CONSOLE_SESSIONS_OF_TENANT, values![after, *limit, *id]),
            };
            Box::pin(query.all(session))
        })
    }

    fn remove_console_session<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        audit: AuditDraft,
    ) -> Stored<'a, Option<ConsoleSession>> {
        let arguments = (operator, tenant_id, id.to_owned(), audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (operator, tenant_id, id, audit)| {
            Box::pin(async move {
                let removed = connection.operator(*operator, REMOVE_CONSOLE_SESSION, values![id, *tenant_id]);
                let removed = removed.first(session).await?;
                if let Some(session) = &removed {
                    let audit = AuditDraft { tenant_id: session.owner.tenant_id, ..audit.clone() };
                    audit::append(connection, &audit).await?;
                }
                Ok(removed)
            })
        })
    }

    fn add_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        owner: ConsoleOwner,
        expires_at_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool> {
        let arguments = (operator, token_hash, owner, expires_at_ms, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (operator, hash, owner, expires, audit)| {
            Box::pin(async move {
                if !connection.operator(*operator, tenancy::TENANT, values![owner.tenant_id]).exists().await? {
                    return Ok(false);
                }
                connection.operator(*operator, END_CONSOLE_LINKS, values![audit.at_ms]).run().await?;
                let values = values![
                    hash,
                    owner.tenant_id,
                    rows::rights_text(owner.rights),
                    &owner.key_id,
                    owner.key_hash.as_ref(),
                    *expires,
                ];
                connection.operator(*operator, ADD_CONSOLE_LINK, values).run().await?;
                audit::append(connection, audit).await?;
                Ok(true)
            })
        })
    }

    fn take_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        now_ms: u64,
    ) -> Stored<'_, Option<ConsoleOwner>> {
        let arguments = (operator, token_hash, now_ms);
        // A repeated attempt would find that the first one has used the link.
        self.engine.change(Repeat::Never, arguments, |connection, (operator, hash, now_ms)| {
            Box::pin(async move {
                let taken = connection.operator(*operator, TAKE_CONSOLE_LINK, values![hash]);
                let taken = taken.first(|row| Ok((owner(row, 0)?, row.get::<u64>(4)?))).await?;
                Ok(taken.filter(|(_, expires)| expires > now_ms).map(|(owner, _)| owner))
            })
        })
    }
}

fn session(row: &dyn SqlRow) -> Result<ConsoleSession, StoreError> {
    let sign_in: &str = row.get(5)?;
    let user: Option<String> = row.optional(11)?;
    let name = row.optional(12)?;
    Ok(ConsoleSession {
        id: row.get(0)?,
        owner: owner(row, 1)?,
        user: user.map(|id| ConsoleUser { id, name }),
        sign_in: SignIn::named(sign_in).ok_or_else(|| rows::unknown("way to sign in", sign_in))?,
        browser: row.optional(6)?,
        address: row.optional(7)?,
        created_at_ms: row.get(8)?,
        last_used_at_ms: row.get(9)?,
        expires_at_ms: row.get(10)?,
    })
}

/// Tenant, rights, key and hash of the key, from this column on.
fn owner(row: &dyn SqlRow, from: usize) -> Result<ConsoleOwner, StoreError> {
    Ok(ConsoleOwner {
        tenant_id: row.get(from)?,
        rights: rows::rights(row.get(from + 1)?)?,
        key_id: row.optional(from + 2)?,
        key_hash: row.optional(from + 3)?,
    })
}
