//! Settings and profiles of assistants.

use amalgam_core::{
    AuditDraft, Scope, StoreError,
    store::{AgentConfig, AgentProfile, AgentStore, Stored, Within},
};

use crate::{
    SqlStore, audit,
    engine::{ChangedTenant, Repeat, SqlConnection, SqlEngine, TenantKey},
    rows,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql CONFIG = "SELECT settings, api_key, revision, updated_at FROM agent_configs WHERE tenant_id = $1";
    TenantSql ADD_CONFIG = "
        INSERT INTO agent_configs (tenant_id, settings, api_key, revision, updated_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (tenant_id) DO NOTHING";
    TenantSql CHANGE_CONFIG = "
        UPDATE agent_configs SET settings = $2, api_key = $3, revision = $4, updated_at = $5
        WHERE tenant_id = $1 AND revision = CAST($4 AS bigint) - 1";
    TenantSql PROFILE = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug = $2";
    TenantSql PROFILES = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM agent_profiles
        WHERE tenant_id = $1 AND slug > $2 ORDER BY slug LIMIT $3";
    TenantSql ADD_PROFILE = "
        INSERT INTO agent_profiles (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (tenant_id, slug) DO NOTHING";
    TenantSql CHANGE_PROFILE = "
        UPDATE agent_profiles SET prompt = $3, tools = $4, model = $5, active = $6, version = $7, created_at = $8,
            updated_at = $9, tool_choice = $10
        WHERE tenant_id = $1 AND slug = $2";
    TenantSql ADD_VERSION = "
        INSERT INTO profile_versions (tenant_id, slug, prompt, tools, model, active, version, created_at, updated_at,
            tool_choice)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    TenantSql FORGET_PROFILE = "DELETE FROM agent_profiles WHERE tenant_id = $1 AND slug = $2";
    TenantSql FORGET_VERSIONS = "DELETE FROM profile_versions WHERE tenant_id = $1 AND slug = $2";
    TenantSql VERSIONS = "
        SELECT slug, prompt, tools, model, active, version, created_at, updated_at, tool_choice FROM profile_versions
        WHERE tenant_id = $1 AND slug = $2 AND version < $3 ORDER BY version DESC LIMIT $4";
}

impl<E: SqlEngine> AgentStore for SqlStore<E> {
    fn agent_config<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        let (cache, tenant) = (&self.tenant_cache, TenantKey::of_caller(scope));
        Box::pin(cache.get(&cache.configs, tenant.number(), move || self.config_of(tenant)))
    }

    fn agent_config_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        self.config_of(TenantKey::within(within))
    }

    fn put_agent_config<'a>(&'a self, within: Within<'a>, config: AgentConfig, audit: AuditDraft) -> Stored<'a, bool> {
        // Not repeatable: a second run would find another revision.
        let arguments = (ChangedTenant::of(within), config, audit);
        let put = self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, config, audit)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(false);
                }
                let statement = if config.revision == 1 { ADD_CONFIG } else { CHANGE_CONFIG };
                let values = values![&config.values, &config.api_key, config.revision, config.updated_at_ms];
                let changed = connection.tenant(tenant.key, statement, values).run().await? == 1;
                audit::append_if(connection, changed, audit).await
            })
        });
        self.tenant_cache.changing(put)
    }

    fn profile<'a>(&'a self, scope: &'a Scope, slug: &'a str) -> Stored<'a, Option<AgentProfile>> {
        let (cache, tenant) = (&self.tenant_cache, TenantKey::of_caller(scope));
        Box::pin(cache.get(&cache.profiles, (tenant.number(), slug.to_owned()), move || {
            self.engine.read((tenant, slug.to_owned()), |connection, (tenant, slug)| {
                Box::pin(connection.tenant(*tenant, PROFILE, values![slug]).first(profile))
            })
        }))
    }

    fn active_profiles<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        self.engine.read(TenantKey::of_caller(scope), |connection, tenant| {
            Box::pin(connection.tenant(*tenant, connection.sql().active_profiles, []).all(profile))
        })
    }

    fn profiles_within<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        let arguments = (TenantKey::within(within), after.unwrap_or_default().to_owned(), limit);
        self.engine.read(arguments, |connection, (tenant, after, limit)| {
            Box::pin(connection.tenant(*tenant, PROFILES, values![after, *limit]).all(profile))
        })
    }

    fn put_profile<'a>(
        &'a self,
        within: Within<'a>,
        profile: AgentProfile,
        audit: AuditDraft,
    ) -> Stored<'a, Option<AgentProfile>> {
        // Repeatable: a second run finds the same content and changes nothing.
        let arguments = (ChangedTenant::of(within), profile, audit);
        let put = self.engine.transaction(Repeat::Safe, arguments, |connection, (tenant, profile, audit)| {
            Box::pin(async move {
                if !tenant.exists(connection).await? {
                    return Ok(None);
                }
                let (stored, changed) = put(connection, tenant.key, profile).await?;
                audit::append_if(connection, changed, audit).await?;
                Ok(Some(stored))
            })
        });
        self.tenant_cache.changing(put)
    }

    fn delete_profile<'a>(&'a self, within: Within<'a>, slug: &'a str, audit: AuditDraft) -> Stored<'a, bool> {
        let arguments = (TenantKey::within(within), slug.to_owned(), audit);
        let deleted = self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, slug, audit)| {
            Box::pin(async move {
                // The profile first: a transaction that changes it locks the profile while it adds a version.
                let deleted = connection.tenant(*tenant, FORGET_PROFILE, values![slug]).run().await?;
                connection.tenant(*tenant, FORGET_VERSIONS, values![slug]).run().await?;
                audit::append_if(connection, deleted == 1, audit).await
            })
        });
        self.tenant_cache.changing(deleted)
    }

    fn profile_versions<'a>(
        &'a self,
        within: Within<'a>,
        slug: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        let arguments = (TenantKey::within(within), slug.to_owned(), before.unwrap_or(u64::MAX), limit);
        self.engine.read(arguments, |connection, (tenant, slug, before, limit)| {
            Box::pin(connection.tenant(*tenant, VERSIONS, values![slug, *before, *limit]).all(profile))
        })
    }
}

impl<E: SqlEngine> SqlStore<E> {
    fn config_of<'a>(&'a self, tenant: TenantKey) -> Stored<'a, Option<AgentConfig>> {
        self.engine.read(tenant, |connection, tenant| Box::pin(connection.tenant(*tenant, CONFIG, []).first(config)))
    }
}

/// The number of attempts to write a profile that other requests create and delete meanwhile.
const TRIES: usize = 8;

/// The profile as it is stored now, and whether it changed.
async fn put<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    profile: &AgentProfile,
) -> Result<(AgentProfile, bool), C::Failure> {
    let mut new = profile.clone();
    for _ in 0..TRIES {
        let before =
            connection.tenant(tenant, connection.sql().hold_profile, values![&new.slug]).first(self::profile).await?;
        let statement = match before {
            Some(before) if is_same(&before, &new) => return Ok((before, false)),
            Some(before) => {
                (new.version, new.created_at_ms) = (before.version + 1, before.created_at_ms);
                CHANGE_PROFILE
            }
            None => {
                new.version = 1;
                ADD_PROFILE
            }
        };
        let tools = rows::strings_json(&new.tools);
        let values = values![
            &new.slug,
            &new.prompt,
            &tools,
            &new.model,
            new.active,
            new.version,
            new.created_at_ms,
            new.updated_at_ms,
            &new.tool_choice,
        ];
        // Nothing changes if another request has created it meanwhile.
        if connection.tenant(tenant, statement, values.clone()).run().await? == 1 {
            connection.tenant(tenant, ADD_VERSION, values).run().await?;
            return Ok((new, true));
        }
    }
    Err(connection.contended("other requests create and delete the profile all the time"))
}

/// Whether both have the same content.
fn is_same(one: &AgentProfile, other: &AgentProfile) -> bool {
    one.prompt == other.prompt
        && one.tools == other.tools
        && one.model == other.model
        && one.tool_choice == other.tool_choice
        && one.active == other.active
}

fn config(row: &dyn SqlRow) -> Result<AgentConfig, StoreError> {
    Ok(AgentConfig {
        values: row.get(0)?,
        api_key: row.optional(1)?,
        revision: row.get(2)?,
        updated_at_ms: row.get(3)?,
    })
}

fn profile(row: &dyn SqlRow) -> Result<AgentProfile, StoreError> {
    Ok(AgentProfile {
        slug: row.get(0)?,
        prompt: row.get(1)?,
        tools: rows::strings(row.get(2)?),
        model: row.optional(3)?,
        tool_choice: row.optional(8)?,
        active: row.get(4)?,
        version: row.get(5)?,
        created_at_ms: row.get(6)?,
        updated_at_ms: row.get(7)?,
    })
}
