//! Tenants and keys at startup: configured tenants are written to the store, and an empty store gets its first tenant with an
//! assistant.

use amalgam_core::{
    Clock, Operator, Rights, Store, StoreError, TenantState,
    store::{TenantChange, TenantRecord},
};
use amalgam_server::{ConfiguredKey, Issued, KeyOrder, Pepper, issue};
use anyhow::Context as _;
use tracing::warn;

use crate::config::{Config, State, Tenant};
use crate::seeding;

/// The tenant that the bootstrap key is for, and that callers without a key act for.
const FIRST: i64 = 1;

/// What the first tenant is called.
const DEMO: &str = "demo";

/// Who is known at the start.
pub(crate) struct Tenancy {
    /// The keys of the configuration.
    pub(crate) configured: Vec<ConfiguredKey>,
    /// For whom callers act who need no key.
    pub(crate) open: Option<TenantRecord>,
    /// The key that a new store begins with; to be shown once.
    pub(crate) first_key: Option<Issued>,
}

/// Brings the store in line with the configuration.
pub(crate) async fn prepare(
    config: &Config,
    store: &dyn Store,
    pepper: &Pepper,
    clock: &dyn Clock,
) -> anyhow::Result<Tenancy> {
    prepare_in(config, store, pepper, clock.now_ms()).await.context("preparing the tenants")
}

async fn prepare_in(config: &Config, store: &dyn Store, pepper: &Pepper, now_ms: u64) -> anyhow::Result<Tenancy> {
    let operator = Operator::of_this_process();
    let was_empty = store.tenants(operator, None, 1).await?.is_empty();
    let mut configured = Vec::new();
    let mut open = None;
    // Of several processes that start at once, the one that made the tenant sets it up and tells the key.
    let mut made_first = false;
    for tenant in config.tenants.iter().filter(|tenant| tenant.declared) {
        let Some((record, made)) = configure(store, tenant, now_ms).await? else { continue };
        made_first |= made && record.id == FIRST;
        let rights = Rights::USE.and(Rights::ADMIN);
        configured.extend(tenant.keys.iter().map(|key| ConfiguredKey {
            key: key.clone(),
            tenant: record.clone(),
            rights,
        }));
        open.get_or_insert(record);
    }
    let declared = config.tenants.iter().any(|tenant| tenant.declared);

    let mut first_key = None;
    if !declared || config.bootstrap_key.is_some() {
        let (record, made) = first_tenant(store, now_ms).await?;
        made_first |= made;
        if made && was_empty && !declared && config.bootstrap_key.is_none() {
            let order = KeyOrder {
                tenant_id: record.id,
                rights: every_right(),
                user: None,
                label: Some("first start".to_owned()),
                expires_at_ms: None,
            };
            first_key = issue(store, pepper, operator, order, now_ms).await?;
        }
        if let Some(key) = &config.bootstrap_key {
            // Last, so that it has every right where the file names the same key.
            configured.push(ConfiguredKey { key: key.clone(), tenant: record.clone(), rights: every_right() });
        }
        open.get_or_insert(record);
    }
    if was_empty && made_first && config.seed_demo {
        seeding::everything(store, config, FIRST, now_ms).await.context("setting up the first tenant")?;
    }
    Ok(Tenancy { configured, open: open.filter(|_| !config.needs_key() && config.is_local()), first_key })
}

fn every_right() -> Rights {
    Rights::USE.and(Rights::ADMIN).and(Rights::OPERATOR)
}

/// A tenant of the file, made or brought in line, and whether it was made; what the file does not say stays as it is. None if
/// it is not there and cannot be made now.
async fn configure(
    store: &dyn Store,
    tenant: &Tenant,
    now_ms: u64,
) -> Result<Option<(TenantRecord, bool)>, StoreError> {
    let operator = Operator::of_this_process();
    let state = tenant.state.map(|state| match state {
        State::Stored => TenantState::Stored,
        State::Stateless => TenantState::Stateless,
    });
    let found = store.tenant(operator, tenant.id).await?;
    if let Some(record) = &found
        && record.name == tenant.name
        && state.is_none_or(|state| state == record.state)
    {
        return Ok(found.map(|record| (record, false)));
    }
    match write(store, tenant, state, now_ms).await {
        Ok(written) => Ok(Some(written)),
        // A full disk does not keep the server from starting. What the file says holds for this process.
        Err(StoreError::Unavailable(why)) => {
            match &found {
                Some(_) => warn!("tenant {} cannot be brought in line with the configuration: {why}", tenant.id),
                None => {
                    warn!("tenant {} cannot be made before the next start, and its keys are refused: {why}", tenant.id)
                }
            }
            let as_configured = |record: TenantRecord| TenantRecord {
                name: tenant.name.clone(),
                state: state.unwrap_or(record.state),
                ..record
            };
            Ok(found.map(|record| (as_configured(record), false)))
        }
        Err(error) => Err(error),
    }
}

async fn write(
    store: &dyn Store,
    tenant: &Tenant,
    state: Option<TenantState>,
    now_ms: u64,
) -> Result<(TenantRecord, bool), StoreError> {
    let operator = Operator::of_this_process();
    let created =
        store.create_tenant(operator, Some(tenant.id), &tenant.name, state.unwrap_or_default(), now_ms).await?;
    if let Some(record) = created {
        return Ok((record, true));
    }
    let change = TenantChange { name: Some(tenant.name.clone()), state, ai_agent_enabled: None };
    store.change_tenant(operator, tenant.id, change).await?.map(|record| (record, false)).ok_or_else(vanished)
}

/// The tenant with id 1, and whether it was made just now.
async fn first_tenant(store: &dyn Store, now_ms: u64) -> Result<(TenantRecord, bool), StoreError> {
    let operator = Operator::of_this_process();
    if let Some(record) = store.tenant(operator, FIRST).await? {
        return Ok((record, false));
    }
    match store.create_tenant(operator, Some(FIRST), DEMO, TenantState::Stored, now_ms).await? {
        Some(record) => Ok((record, true)),
        None => store.tenant(operator, FIRST).await?.map(|record| (record, false)).ok_or_else(vanished),
    }
}

fn vanished() -> StoreError {
    StoreError::Broken("a tenant vanished while it was looked at".to_owned())
}
