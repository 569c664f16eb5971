//! Settings and profiles of assistants.

use amalgam_core::{
    Operator, Scope,
    store::{AgentConfig, AgentProfile, AgentStore, Stored, Within},
};
use rusqlite::Row;

use super::{
    Sqlite,
    failure::Failure,
    query::{Database, Tenant, int, most, text, uint},
    sql,
};
use crate::{assistant, rows};

impl AgentStore for Sqlite {
    fn agent_config<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        self.config_of(Tenant::of_caller(scope))
    }

    fn agent_config_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        self.config_of(Tenant::within(within))
    }

    fn put_agent_config<'a>(&'a self, within: Within<'a>, config: AgentConfig) -> Stored<'a, bool> {
        let whose = Whose::of(within);
        self.change(move |transaction| {
            let database = transaction.database;
            if !whose.exists(database)? {
                return Ok(false);
            }
            let statement = if config.revision == 1 { sql::ADD_CONFIG } else { sql::CHANGE_CONFIG };
            let (settings, revision) = (config.values.raw().text(), int(config.revision)?);
            let put = database
                .tenant(whose.tenant, statement, &[&settings, &config.api_key, &revision, &int(config.updated_at_ms)?])?
                .run()?;
            Ok(put == 1)
        })
    }

    fn profile<'a>(&'a self, scope: &'a Scope, slug: &'a str) -> Stored<'a, Option<AgentProfile>> {
        let (tenant, slug) = (Tenant::of_caller(scope), slug.to_owned());
        self.read(move |transaction| get(transaction.database, tenant, &slug))
    }

    fn active_profiles<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        let tenant = Tenant::of_caller(scope);
        self.read(move |transaction| transaction.database.tenant(tenant, sql::ACTIVE_PROFILES, &[])?.all(profile))
    }

    fn profiles_within<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        let (tenant, after) = (Tenant::within(within), after.unwrap_or_default().to_owned());
        self.read(move |transaction| {
            transaction.database.tenant(tenant, sql::PROFILES, &[&after, &most(limit)])?.all(profile)
        })
    }

    fn put_profile<'a>(&'a self, within: Within<'a>, profile: AgentProfile) -> Stored<'a, Option<AgentProfile>> {
        let whose = Whose::of(within);
        self.change(move |transaction| {
            let database = transaction.database;
            if !whose.exists(database)? {
                return Ok(None);
            }
            put(database, whose.tenant, profile.clone()).map(Some)
        })
    }

    fn delete_profile<'a>(&'a self, within: Within<'a>, slug: &'a str) -> Stored<'a, bool> {
        let (tenant, slug) = (Tenant::within(within), slug.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            database.tenant(tenant, sql::FORGET_VERSIONS, &[&slug])?.run()?;
            Ok(database.tenant(tenant, sql::FORGET_PROFILE, &[&slug])?.run()? == 1)
        })
    }

    fn profile_versions<'a>(
        &'a self,
        within: Within<'a>,
        slug: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        let (tenant, slug) = (Tenant::within(within), slug.to_owned());
        self.read(move |transaction| {
            let before = before.map_or(Ok(i64::MAX), int)?;
            transaction.database.tenant(tenant, sql::VERSIONS, &[&slug, &before, &most(limit)])?.all(profile)
        })
    }
}

impl Sqlite {
    fn config_of<'a>(&self, tenant: Tenant) -> Stored<'a, Option<AgentConfig>> {
        self.read(move |transaction| transaction.database.tenant(tenant, sql::CONFIG, &[])?.first(config))
    }
}

/// Whose things are changed.
#[derive(Clone, Copy)]
pub(super) struct Whose {
    pub(super) tenant: Tenant,
    /// A tenant that was only named may not be there.
    named: Option<(Operator, i64)>,
}

impl Whose {
    pub(super) fn of(within: Within<'_>) -> Self {
        let named = match within {
            Within::Own(_) => None,
            Within::Named(operator, id) => Some((operator, id)),
        };
        Self { tenant: Tenant::within(within), named }
    }

    /// Whether there is such a tenant.
    pub(super) fn exists(self, database: Database<'_>) -> Result<bool, Failure> {
        match self.named {
            None => Ok(true),
            Some((operator, id)) => database.operator(operator, sql::TENANT, &[&id])?.exists(),
        }
    }
}

fn get(database: Database<'_>, tenant: Tenant, slug: &str) -> Result<Option<AgentProfile>, Failure> {
    database.tenant(tenant, sql::PROFILE, &[&slug])?.first(profile)
}

fn put(database: Database<'_>, tenant: Tenant, mut new: AgentProfile) -> Result<AgentProfile, Failure> {
    let before = get(database, tenant, &new.slug)?;
    match before {
        Some(before) if assistant::is_same(&before, &new) => return Ok(before),
        Some(before) => (new.version, new.created_at_ms) = (before.version + 1, before.created_at_ms),
        None => new.version = 1,
    }
    let tools = assistant::strings_json(&new.tools);
    for statement in [sql::PUT_PROFILE, sql::ADD_VERSION] {
        database
            .tenant(
                tenant,
                statement,
                &[
                    &new.slug,
                    &new.prompt,
                    &tools.raw().text(),
                    &new.model,
                    &new.active,
                    &int(new.version)?,
                    &int(new.created_at_ms)?,
                    &int(new.updated_at_ms)?,
                    &new.tool_choice,
                ],
            )?
            .run()?;
    }
    Ok(new)
}

fn config(row: &Row<'_>) -> Result<AgentConfig, Failure> {
    Ok(AgentConfig {
        values: rows::json(text(row, 0)?),
        api_key: row.get(1)?,
        revision: uint(row, 2)?,
        updated_at_ms: uint(row, 3)?,
    })
}

fn profile(row: &Row<'_>) -> Result<AgentProfile, Failure> {
    Ok(AgentProfile {
        slug: row.get(0)?,
        prompt: row.get(1)?,
        tools: assistant::strings(text(row, 2)?),
        model: row.get(3)?,
        tool_choice: row.get(8)?,
        active: row.get(4)?,
        version: uint(row, 5)?,
        created_at_ms: uint(row, 6)?,
        updated_at_ms: uint(row, 7)?,
    })
}
