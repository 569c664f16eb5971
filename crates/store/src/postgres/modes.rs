//! Modes that tenants have defined.

use amalgam_core::{
    Scope, StoreError,
    store::{Mode, ModeStore, Stored, Within},
};
use tokio_postgres::Row;

use super::{
    Postgres, agents,
    connection::{Failure, Param},
    job::{signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{assistant, bank, rows};

statements! {
    Admin MODES = "
        SELECT name, display_name, system_prompt, tools, rag_scope, created_at, updated_at, tool_choice FROM agent_modes
        WHERE tenant_id = $1 ORDER BY key";
    Admin PUT_MODE = "
        INSERT INTO agent_modes (tenant_id, key, name, display_name, system_prompt, tools, rag_scope, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (tenant_id, key) DO UPDATE SET name = excluded.name, display_name = excluded.display_name,
            system_prompt = excluded.system_prompt, tools = excluded.tools, rag_scope = excluded.rag_scope,
            updated_at = excluded.updated_at, tool_choice = excluded.tool_choice";
    Admin DELETE_MODE = "DELETE FROM agent_modes WHERE tenant_id = $1 AND key = $2";
}

impl ModeStore for Postgres {
    fn modes<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Mode>> {
        Box::pin(self.modes_of(scope.tenant_id()))
    }

    fn modes_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Mode>> {
        Box::pin(self.modes_of(within.tenant_id()))
    }

    fn put_mode<'a>(&'a self, within: Within<'a>, mode: Mode) -> Stored<'a, bool> {
        Box::pin(async move {
            let mode = &mode;
            // A second time it is the same.
            let put = self.pool.repeatably(move |connection: Lease| async move {
                if !agents::exists(&connection, within).await? {
                    return Ok(false);
                }
                let tools = assistant::strings_json(&mode.tools);
                let params: [Param<'_>; 10] = [
                    &within.tenant_id(),
                    &bank::key(&mode.name),
                    &mode.name,
                    &assistant::content(&mode.display_name),
                    &assistant::content(&mode.system_prompt),
                    &tools.raw().text(),
                    &mode.rag_scope.raw().text(),
                    &signed(mode.created_at_ms),
                    &signed(mode.updated_at_ms),
                    &mode.tool_choice,
                ];
                connection.execute(&PUT_MODE, &params).await?;
                Ok(true)
            });
            put.await
        })
    }

    fn delete_mode<'a>(&'a self, within: Within<'a>, name: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |connection: Lease| async move {
            Ok(connection.execute(&DELETE_MODE, &[&within.tenant_id(), &bank::key(name)]).await? == 1)
        }))
    }
}

impl Postgres {
    async fn modes_of(&self, tenant_id: i64) -> Result<Vec<Mode>, StoreError> {
        let found = self.pool.repeatably(move |connection: Lease| async move {
            connection.rows(&MODES, &[&tenant_id]).await?.iter().map(mode_from).collect()
        });
        found.await
    }
}

fn mode_from(row: &Row) -> Result<Mode, Failure> {
    Ok(Mode {
        name: row.try_get(0)?,
        display_name: row.try_get(1)?,
        system_prompt: row.try_get(2)?,
        tools: assistant::strings(row.try_get(3)?),
        tool_choice: row.try_get(7)?,
        rag_scope: rows::json(row.try_get(4)?),
        created_at_ms: unsigned(row.try_get(5)?),
        updated_at_ms: unsigned(row.try_get(6)?),
    })
}
