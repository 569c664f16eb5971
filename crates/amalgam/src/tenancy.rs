//! Tenants and keys of the configuration: configured tenants are written to the store, and an empty store gets its first
//! tenant with an assistant.

use std::io::{self, IsTerminal as _};

use amalgam_administration::{
    Administration,
    keys::{ConfiguredKey, IssuedKey, KeyOrder, Pepper, issue},
    tenants::ConfiguredTenant,
};
use amalgam_assistant::catalog::config_seed;
use amalgam_core::{
    Actor, Clock, Operator, Rights, Store,
    store::{ConsoleOwner, TenantRecord},
};
use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};

use crate::machine;
use amalgam_configuration::Config;

/// The tenant of the bootstrap key, and of callers without a key.
const FIRST: i64 = 1;

/// The name of the first tenant.
const DEMO: &str = "demo";

/// The tenants and keys at startup.
pub(crate) struct Tenancy {
    pub(crate) access: ConfiguredAccess,
    /// The first key of a new store, to be shown once.
    pub(crate) first_key: Option<FirstKey>,
}

/// The first key of a new store.
pub(crate) struct FirstKey {
    /// The key.
    pub(crate) issued: IssuedKey,
    /// The token of a link that opens the console, if it can be shown on a terminal.
    pub(crate) console_link: Option<SecretString>,
}

/// The callers that the configuration admits.
pub(crate) struct ConfiguredAccess {
    /// The keys of the configuration.
    pub(crate) configured: Vec<ConfiguredKey>,
    /// The tenant of callers that need no key.
    pub(crate) open: Option<TenantRecord>,
}

/// Synchronises the store with the configuration.
pub(crate) async fn prepare(
    config: &Config,
    store: &dyn Store,
    pepper: &Pepper,
    clock: &dyn Clock,
) -> anyhow::Result<Tenancy> {
    prepare_in(config, store, pepper, clock.now_ms()).await.context("preparing the tenants")
}

/// The session that a link opens for this key.
fn owner(IssuedKey { key, record }: &IssuedKey, pepper: &Pepper) -> ConsoleOwner {
    ConsoleOwner {
        tenant_id: record.tenant_id,
        rights: record.rights,
        key_id: Some(record.id.clone()),
        key_hash: Some(pepper.hash(key.expose_secret())),
    }
}

/// The same for a new configuration of a running server, which neither creates a key nor adds samples.
pub(crate) async fn configure(
    config: &Config,
    store: &dyn Store,
    clock: &dyn Clock,
) -> anyhow::Result<ConfiguredAccess> {
    let actor = Actor::server(machine::host_name());
    let administration = Administration { store, now_ms: clock.now_ms(), actor };
    Ok(synchronise(config, &administration).await.context("preparing the tenants")?.access)
}

async fn prepare_in(config: &Config, store: &dyn Store, pepper: &Pepper, now_ms: u64) -> anyhow::Result<Tenancy> {
    let actor = Actor::server(machine::host_name());
    let (operator, administration) =
        (Operator::of_this_process(), Administration { store, now_ms, actor: actor.clone() });
    let was_empty = store.tenants(operator, None, 1).await?.is_empty();
    let Synchronised { access, made_first, sole } = synchronise(config, &administration).await?;
    let mut first_key = None;
    if let Some(record) = sole.filter(|_| was_empty && made_first && config.bootstrap_key.is_none()) {
        let order = KeyOrder {
            tenant_id: record.id,
            rights: every_right(),
            user: None,
            label: Some("first start".to_owned()),
            expires_at_ms: None,
        };
        if let Some(issued) = issue(store, pepper, &actor, order, now_ms).await? {
            let console_link = match io::stdout().is_terminal() {
                true => Some(administration.create_console_link(pepper, owner(&issued, pepper)).await?),
                false => None,
            };
            first_key = Some(FirstKey { issued, console_link });
        }
    }
    if was_empty && made_first && config.seed_demo {
        let settings = config_seed(&config.assistant);
        administration.seed(FIRST, &settings).await.context("setting up the first tenant")?;
    }
    Ok(Tenancy { access, first_key })
}

/// The result of writing the configured tenants to the store.
struct Synchronised {
    access: ConfiguredAccess,
    /// If several processes start at once, the one that created the first tenant sets it up and outputs the key.
    made_first: bool,
    /// The first tenant, if the configuration has none.
    sole: Option<TenantRecord>,
}

async fn synchronise(config: &Config, administration: &Administration<'_>) -> anyhow::Result<Synchronised> {
    let mut configured = Vec::new();
    let (mut open, mut sole) = (None, None);
    let mut made_first = false;
    for tenant in config.tenants.iter().filter(|tenant| tenant.declared) {
        let declared = ConfiguredTenant { id: tenant.id, name: &tenant.name, state: tenant.state };
        let Some((record, made)) = administration.configure_tenant(&declared).await? else { continue };
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
    if !declared || config.bootstrap_key.is_some() {
        let (record, made) = administration.first_tenant(FIRST, DEMO).await?;
        made_first |= made;
        if let Some(key) = &config.bootstrap_key {
            // Last, so that it has all rights even if the file names the same key.
            configured.push(ConfiguredKey { key: key.clone(), tenant: record.clone(), rights: every_right() });
        }
        sole = (!declared).then(|| record.clone());
        open.get_or_insert(record);
    }
    let open = open.filter(|_| !config.needs_key() && config.is_local());
    Ok(Synchronised { access: ConfiguredAccess { configured, open }, made_first, sole })
}

fn every_right() -> Rights {
    Rights::USE.and(Rights::ADMIN).and(Rights::OPERATOR)
}
