//! The context of commands that work on the store: the configuration, the opened store, the operator's scope and the time.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use amalgam_administration::{Administration, keys::Pepper, tenant_scope};
use amalgam_core::{Actor, AuditAction, Clock as _, Fault, FaultKind, INSTALLATION, Rights, Scope, Store, TenantState};
use anyhow::{Context as _, bail};

use crate::cli::{ConfigArgs, TenantArgs};
use crate::machine;
use crate::storage::{self, OpenStore, StorePurpose};
use crate::terminal::print_stderr;
use crate::wire_up::{self, SystemClock};
use amalgam_configuration::{Config, PoolConfig, Sources, StoreUrl};

/// The user recorded for changes by a command.
const NAME: &str = "operator";

/// The context of a command, on the server's machine or on one that reaches its database.
pub(crate) struct CommandContext {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
}

impl CommandContext {
    /// Reads the configuration and opens its store for writing. Creates a missing store, and migrates its schema.
    pub(crate) async fn open(args: ConfigArgs) -> anyhow::Result<Self> {
        Self::with(configuration(args)?, StorePurpose::Command).await
    }

    /// Opens the store for commands that only read: nothing is created or migrated, and standard error names the store.
    pub(crate) async fn open_read_only(args: ConfigArgs) -> anyhow::Result<Self> {
        let config = configuration(args)?;
        if !storage::exists(&config.store, config.pool).await? {
            bail!("there is no database at {} yet; the first start of the server creates it", config.store);
        }
        print_stderr(format_args!("store: {}", config.store));
        Self::with(config, StorePurpose::ReadOnly).await
    }

    /// Opens the store to change something of a tenant, with the scope of its administrator.
    pub(crate) async fn open_tenant(args: &TenantArgs) -> anyhow::Result<(Self, Scope)> {
        let context = Self::open(args.config.clone()).await?;
        let scope = context.administrator(args.tenant_id).await?;
        Ok((context, scope))
    }

    /// The same to read only.
    pub(crate) async fn read_tenant(args: &TenantArgs) -> anyhow::Result<(Self, Scope)> {
        let context = Self::open_read_only(args.config.clone()).await?;
        let scope = context.administrator(args.tenant_id).await?;
        Ok((context, scope))
    }

    async fn with(config: Config, purpose: StorePurpose) -> anyhow::Result<Self> {
        let OpenStore { store, warnings, .. } = storage::open(&config.store, config.pool, purpose).await?;
        for warning in warnings {
            print_stderr(format_args!("warning: {warning}"));
        }
        Ok(Self { config, store })
    }

    /// The pepper for hashes of API keys.
    pub(crate) async fn pepper(&self) -> anyhow::Result<Pepper> {
        Ok(Pepper::of(&*self.store, &wire_up::sealer(&self.config)?).await?)
    }

    /// The services of the administration that need only the store.
    pub(crate) fn administration(&self) -> Administration<'_> {
        Administration { store: &*self.store, now_ms: now_ms(), actor: actor() }
    }

    /// A scope with the rights of a tenant's administrator.
    pub(crate) async fn administrator(&self, tenant_id: i64) -> anyhow::Result<Scope> {
        let scope = tenant_scope(&*self.store, &self.operator(), Some(tenant_id)).await;
        reworded(scope, FaultKind::NotFound, || format!("there is no tenant {tenant_id}"))
    }

    /// A scope with the operator's rights, outside any tenant.
    #[expect(
        clippy::disallowed_methods,
        reason = "access to the configuration and the store authenticates the operator"
    )]
    pub(crate) fn operator(&self) -> Scope {
        Scope::authenticated(0, NAME, TenantState::Stored, Rights::OPERATOR)
    }
}

/// A command on this machine, as the audit names it.
pub(crate) fn actor() -> Actor {
    Actor::command(machine::host_name())
}

/// Appends an entry to the audit of a store that a command has filled as a whole.
pub(crate) async fn record(
    url: &StoreUrl,
    pool: PoolConfig,
    action: AuditAction,
    details: &serde_json::Value,
) -> anyhow::Result<()> {
    let OpenStore { store, .. } = storage::open(url, pool, StorePurpose::Command).await?;
    let administration = Administration { store: &*store, now_ms: now_ms(), actor: actor() };
    Ok(administration.announce(INSTALLATION, action, "store", details).await?)
}

/// Replaces the message of a fault of this kind by the command's own.
pub(crate) fn reworded<T>(
    result: Result<T, Fault>,
    kind: FaultKind,
    words: impl FnOnce() -> String,
) -> anyhow::Result<T> {
    result.map_err(|fault| if fault.kind == kind { anyhow::anyhow!(words()) } else { fault.into() })
}

/// Reads the configuration. Only `serve` and `check` print its warnings.
pub(crate) fn configuration(args: ConfigArgs) -> anyhow::Result<Config> {
    Ok(Config::load(&Sources::gather(args.into())?)?.config)
}

/// Reads a file argument; `-` means standard input.
pub(crate) fn read_text(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemClock.now_ms()
}
