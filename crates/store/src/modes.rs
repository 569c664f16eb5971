//! Modes that tenants have defined.

use amalgam_core::{
    AuditDraft, Scope, StoreError,
    store::{Mode, ModeStore, Stored, Within},
};

use crate::{
    SqlStore, audit, bank,
    engine::{ChangedTenant, Repeat, SqlConnection as _, SqlEngine, TenantKey},
    rows,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql MODES = "
        SELECT name, display_name, system_prompt, tools, rag_scope, created_at, updated_at, tool_choice FROM agent_modes
        WHERE tenant_id = $1 ORDER BY key";
    TenantSql PUT_MODE = "
        INSERT INTO agent_modes (tenant_id, key, name, display_name, system_prompt, tools, rag_scope, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (tenant_id, key) DO UPDATE SET name = excluded.name, display_name = excluded.display_name,
            system_prompt = excluded.system_prompt, tools = excluded.tools, rag_scope = excluded.rag_scope,
            updated_at = excluded.updated_at, tool_choice = excluded.tool_choice";
    TenantSql FORGET_MODE = "DELETE FROM agent_modes WHERE tenant_id = $1 AND key = $2";
}

impl<E: SqlEngine> ModeStore for SqlStore<E> {
    fn modes<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Mode>> {
        let (cache, tenant) = (&self.tenant_cache, TenantKey::of_caller(scope));
        Box::pin(cache.get(&cache.modes, tenant.number(), move || self.modes_of(tenant)))
    }

    fn modes_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Mode>> {
        self.modes_of(TenantKey::within(within))
    }

    fn put_mode<'a>(&'a self, within: Within<'a>, mode: Mode, audit: AuditDraft) -> Stored<'a, bool> {
        let arguments = (ChangedTenant::of(within), mode, audit);
        let put = self.engine.transaction(Repeat::Safe, arguments, |connection, (tenant, mode, audit)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(false);
                }
                let values = values![
                    bank::key(&mode.name),
                    &mode.name,
                    rows::storable(&mode.display_name),
                    rows::storable(&mode.system_prompt),
                    rows::strings_json(&mode.tools),
                    &mode.rag_scope,
                    mode.created_at_ms,
                    mode.updated_at_ms,
                    &mode.tool_choice,
                ];
                connection.tenant(tenant.key, PUT_MODE, values).run().await?;
                audit::append_if(connection, true, audit).await
            })
        });
        self.tenant_cache.changing(put)
    }

    fn delete_mode<'a>(&'a self, within: Within<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool> {
        let arguments = (TenantKey::within(within), bank::key(name), audit);
        let deleted = self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, key, audit)| {
            Box::pin(async move {
                let deleted = connection.tenant(*tenant, FORGET_MODE, values![key]).run().await? == 1;
                audit::append_if(connection, deleted, audit).await
            })
        });
        self.tenant_cache.changing(deleted)
    }
}

impl<E: SqlEngine> SqlStore<E> {
    fn modes_of<'a>(&'a self, tenant: TenantKey) -> Stored<'a, Vec<Mode>> {
        self.engine.read(tenant, |connection, tenant| Box::pin(connection.tenant(*tenant, MODES, []).all(mode)))
    }
}

fn mode(row: &dyn SqlRow) -> Result<Mode, StoreError> {
    Ok(Mode {
        name: row.get(0)?,
        display_name: row.get(1)?,
        system_prompt: row.get(2)?,
        tools: rows::strings(row.get(3)?),
        tool_choice: row.optional(7)?,
        rag_scope: row.get(4)?,
        created_at_ms: row.get(5)?,
        updated_at_ms: row.get(6)?,
    })
}
