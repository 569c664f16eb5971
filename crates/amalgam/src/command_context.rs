//! The context of commands that work on the store: the configuration, the opened store, the operator's scope and the time.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use amalgam_core::{Clock as _, Operator, Rights, Scope, Store, TenantState};
use amalgam_server::Pepper;
use anyhow::{Context as _, bail};

use crate::cli::ConfigArgs;
use crate::config::{Config, Sources};
use crate::storage::{self, OpenStore, StorePurpose};
use crate::terminal::print_stderr;
use crate::wire_up::{self, SystemClock};

/// The user that records name for changes by a command.
const NAME: &str = "operator";

/// The context of a command, on the server's machine or on one that reaches its database.
pub(crate) struct CommandContext {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
}

impl CommandContext {
    /// Reads the configuration and opens its store, to change something. A store that does not exist yet is created, and
    /// its schema is brought up to date.
    pub(crate) async fn open(args: ConfigArgs) -> anyhow::Result<Self> {
        Self::with(configuration(args)?, StorePurpose::Command).await
    }

    /// The same for commands that only read: nothing is created or migrated, and standard error names the store.
    pub(crate) async fn open_read_only(args: ConfigArgs) -> anyhow::Result<Self> {
        let config = configuration(args)?;
        if !storage::exists(&config.store, config.pool).await? {
            bail!("there is no database at {} yet; the first start of the server creates it", config.store);
        }
        print_stderr(format_args!("store: {}", config.store));
        Self::with(config, StorePurpose::ReadOnly).await
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

    /// A scope with the rights of a tenant's administrator.
    #[expect(
        clippy::disallowed_methods,
        reason = "access to the configuration and the store authenticates the operator"
    )]
    pub(crate) async fn administrator(&self, tenant_id: i64) -> anyhow::Result<Scope> {
        let tenant = self.store.tenant(Operator::of_this_process(), tenant_id).await?;
        let tenant = tenant.with_context(|| format!("there is no tenant {tenant_id}"))?;
        Ok(Scope::authenticated(tenant.id, NAME, tenant.state, Rights::ADMIN))
    }

    /// A scope with the operator's rights, outside of any tenant.
    #[expect(
        clippy::disallowed_methods,
        reason = "access to the configuration and the store authenticates the operator"
    )]
    pub(crate) fn operator(&self) -> Scope {
        Scope::authenticated(0, NAME, TenantState::Stored, Rights::OPERATOR)
    }
}

/// Reads the configuration. Only `serve` and `check` print its warnings.
pub(crate) fn configuration(args: ConfigArgs) -> anyhow::Result<Config> {
    Ok(Config::load(&Sources::gather(args.into())?)?.config)
}

/// Reads a file argument; `-` stands for standard input.
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
