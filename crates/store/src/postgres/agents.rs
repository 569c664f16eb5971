//! Settings and profiles of assistants.

use amalgam_core::{
    Scope, StoreError,
    store::{AgentConfig, AgentProfile, AgentStore, Stored, Within},
};
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, Failure, Param},
    job::{signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{assistant, rows};

statements! {
    Operator HAS_TENANT = "SELECT 1 FROM tenants WHERE id = $1";
    Admin CONFIG = "SELECT settings, api_key, revision, updated_at FROM agent_configs WHERE tenant_id = $1";
    Admin ADD_CONFIG = "
        INSERT INTO agent_configs (tenant_id, settings, api_key, revision, updated_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (tenant_id) DO NOTHING";
    Admin CHANGE_CONFIG = "
        UPDATE agent_configs SET settings = $2, api_key = $3, revision = $4, updated_at = $5
        WHERE tenant_id = $1 AND revision = $4::bigint - 1";
    Admin PROFILE = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug = $2";
    /// The same, locked against changes.
    Admin HOLD_PROFILE = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug = $2 FOR UPDATE";
    Admin PROFILES = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug > $2 ORDER BY slug LIMIT $3";
    Admin ACTIVE_PROFILES = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND active ORDER BY slug";
    Admin ADD_PROFILE = "
        INSERT INTO agent_profiles (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (tenant_id, slug) DO NOTHING";
    Admin CHANGE_PROFILE = "
        UPDATE agent_profiles SET prompt = $3, tools = $4, model = $5, active = $6, version = $7, created_at = $8,
            updated_at = $9, tool_choice = $10
        WHERE tenant_id = $1 AND slug = $2";
    Admin ADD_VERSION = "
        INSERT INTO profile_versions (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    Admin FORGET_PROFILE = "DELETE FROM agent_profiles WHERE tenant_id = $1 AND slug = $2";
    Admin FORGET_VERSIONS = "DELETE FROM profile_versions WHERE tenant_id = $1 AND slug = $2";
    Admin VERSIONS = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM profile_versions
        WHERE tenant_id = $1 AND slug = $2 AND version < $3 ORDER BY version DESC LIMIT $4";
}

impl AgentStore for Postgres {
    fn agent_config<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        Box::pin(self.config_of(scope.tenant_id()))
    }

    fn agent_config_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        Box::pin(self.config_of(within.tenant_id()))
    }

    fn put_agent_config<'a>(&'a self, within: Within<'a>, config: AgentConfig) -> Stored<'a, bool> {
        Box::pin(async move {
            let config = &config;
            // Once: a second time the revision would be another one.
            let put = self.pool.once(move |connection: Lease| async move {
                if !exists(&connection, within).await? {
                    return Ok(false);
                }
                let statement = if config.revision == 1 { &ADD_CONFIG } else { &CHANGE_CONFIG };
                let params: [Param<'_>; 5] = [
                    &within.tenant_id(),
                    &config.values.raw().text(),
                    &config.api_key,
                    &signed(config.revision),
                    &signed(config.updated_at_ms),
                ];
                Ok(connection.execute(statement, &params).await? == 1)
            });
            put.await
        })
    }

    fn profile<'a>(&'a self, scope: &'a Scope, slug: &'a str) -> Stored<'a, Option<AgentProfile>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&PROFILE, &[&scope.tenant_id(), &slug]).await?;
            row.as_ref().map(profile_from).transpose()
        }))
    }

    fn active_profiles<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let found = connection.rows(&ACTIVE_PROFILES, &[&scope.tenant_id()]).await?;
            found.iter().map(profile_from).collect()
        }))
    }

    fn profiles_within<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let found = connection.rows(&PROFILES, &[&within.tenant_id(), &after.unwrap_or_default(), &limit]).await?;
            found.iter().map(profile_from).collect()
        }))
    }

    fn put_profile<'a>(&'a self, within: Within<'a>, profile: AgentProfile) -> Stored<'a, Option<AgentProfile>> {
        Box::pin(async move {
            let profile = &profile;
            // A second time it is there like this, and stays.
            let put = self.pool.repeatably(move |mut connection: Lease| async move {
                if !exists(&connection, within).await? {
                    return Ok(None);
                }
                connection.begin().await?;
                let put = put(&connection, within.tenant_id(), profile.clone()).await;
                connection.end(put).await.map(Some)
            });
            put.await
        })
    }

    fn delete_profile<'a>(&'a self, within: Within<'a>, slug: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |mut connection: Lease| async move {
            connection.begin().await?;
            let deleted = async {
                // First the profile: who changes it adds versions while holding it.
                let deleted = connection.execute(&FORGET_PROFILE, &[&within.tenant_id(), &slug]).await?;
                connection.execute(&FORGET_VERSIONS, &[&within.tenant_id(), &slug]).await?;
                Ok(deleted == 1)
            };
            let deleted = deleted.await;
            connection.end(deleted).await
        }))
    }

    fn profile_versions<'a>(
        &'a self,
        within: Within<'a>,
        slug: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (before, limit) = (before.map_or(i64::MAX, signed), i64::try_from(limit).unwrap_or(i64::MAX));
            let found = connection.rows(&VERSIONS, &[&within.tenant_id(), &slug, &before, &limit]).await?;
            found.iter().map(profile_from).collect()
        }))
    }
}

impl Postgres {
    async fn config_of(&self, tenant_id: i64) -> Result<Option<AgentConfig>, StoreError> {
        let found = self.pool.repeatably(move |connection: Lease| async move {
            connection.row(&CONFIG, &[&tenant_id]).await?.as_ref().map(config_from).transpose()
        });
        found.await
    }
}

/// Whether there is such a tenant: one that was only named may not be there.
pub(super) async fn exists(connection: &Connection, within: Within<'_>) -> Result<bool, Failure> {
    match within {
        Within::Own(_) => Ok(true),
        Within::Named(_, id) => Ok(connection.row(&HAS_TENANT, &[&id]).await?.is_some()),
    }
}

/// How often a profile is tried that others make and delete.
const TRIES: usize = 8;

async fn put(connection: &Connection, tenant_id: i64, mut new: AgentProfile) -> Result<AgentProfile, Failure> {
    for _ in 0..TRIES {
        let before = connection.row(&HOLD_PROFILE, &[&tenant_id, &new.slug]).await?;
        let before = before.as_ref().map(profile_from).transpose()?;
        let statement = match before {
            Some(before) if assistant::is_same(&before, &new) => return Ok(before),
            Some(before) => {
                (new.version, new.created_at_ms) = (before.version + 1, before.created_at_ms);
                &CHANGE_PROFILE
            }
            None => {
                new.version = 1;
                &ADD_PROFILE
            }
        };
        let tools = assistant::strings_json(&new.tools);
        let params: [Param<'_>; 10] = [
            &tenant_id,
            &new.slug,
            &new.prompt,
            &tools.raw().text(),
            &new.model,
            &new.active,
            &signed(new.version),
            &signed(new.created_at_ms),
            &signed(new.updated_at_ms),
            &new.tool_choice,
        ];
        // Nothing when another request has made it meanwhile.
        if connection.execute(statement, &params).await? == 1 {
            connection.execute(&ADD_VERSION, &params).await?;
            return Ok(new);
        }
    }
    Err(Failure::again("the profile is made and deleted all the time"))
}

fn config_from(row: &Row) -> Result<AgentConfig, Failure> {
    Ok(AgentConfig {
        values: rows::json(row.try_get(0)?),
        api_key: row.try_get(1)?,
        revision: unsigned(row.try_get(2)?),
        updated_at_ms: unsigned(row.try_get(3)?),
    })
}

fn profile_from(row: &Row) -> Result<AgentProfile, Failure> {
    Ok(AgentProfile {
        slug: row.try_get(0)?,
        prompt: row.try_get(1)?,
        tools: assistant::strings(row.try_get(2)?),
        model: row.try_get(3)?,
        tool_choice: row.try_get(8)?,
        active: row.try_get(4)?,
        version: unsigned(row.try_get(5)?),
        created_at_ms: unsigned(row.try_get(6)?),
        updated_at_ms: unsigned(row.try_get(7)?),
    })
}
