//! Modes that tenants have defined.

use amalgam_core::{
    Scope,
    store::{Mode, ModeStore, Stored, Within},
};
use rusqlite::Row;

use super::{
    Sqlite,
    agents::Whose,
    failure::Failure,
    query::{Tenant, int, text, uint},
    sql,
};
use crate::{assistant, bank, rows};

impl ModeStore for Sqlite {
    fn modes<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<Mode>> {
        self.modes_of(Tenant::of_caller(scope))
    }

    fn modes_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Vec<Mode>> {
        self.modes_of(Tenant::within(within))
    }

    fn put_mode<'a>(&'a self, within: Within<'a>, mode: Mode) -> Stored<'a, bool> {
        let whose = Whose::of(within);
        self.change(move |transaction| {
            let database = transaction.database;
            if !whose.exists(database)? {
                return Ok(false);
            }
            let tools = assistant::strings_json(&mode.tools);
            let params: [&dyn rusqlite::ToSql; 9] = [
                &bank::key(&mode.name),
                &mode.name,
                &assistant::content(&mode.display_name),
                &assistant::content(&mode.system_prompt),
                &tools.raw().text(),
                &mode.rag_scope.raw().text(),
                &int(mode.created_at_ms)?,
                &int(mode.updated_at_ms)?,
                &mode.tool_choice,
            ];
            database.tenant(whose.tenant, sql::PUT_MODE, &params)?.run()?;
            Ok(true)
        })
    }

    fn delete_mode<'a>(&'a self, within: Within<'a>, name: &'a str) -> Stored<'a, bool> {
        let (tenant, key) = (Tenant::within(within), bank::key(name));
        self.change(move |transaction| Ok(transaction.database.tenant(tenant, sql::FORGET_MODE, &[&key])?.run()? == 1))
    }
}

impl Sqlite {
    fn modes_of<'a>(&self, tenant: Tenant) -> Stored<'a, Vec<Mode>> {
        self.read(move |transaction| transaction.database.tenant(tenant, sql::MODES, &[])?.all(mode))
    }
}

fn mode(row: &Row<'_>) -> Result<Mode, Failure> {
    Ok(Mode {
        name: row.get(0)?,
        display_name: row.get(1)?,
        system_prompt: row.get(2)?,
        tools: assistant::strings(text(row, 3)?),
        tool_choice: row.get(7)?,
        rag_scope: rows::json(text(row, 4)?),
        created_at_ms: uint(row, 5)?,
        updated_at_ms: uint(row, 6)?,
    })
}
