//! What commands on tenants, keys and the store share: the configuration, the store that it names, and time.

use std::sync::Arc;

use amalgam_core::{Clock as _, Store};
use amalgam_server::Pepper;

use crate::cli::ConfigArgs;
use crate::config::{Config, Sources};
use crate::storage::{self, For, Opened};
use crate::terminal::tell;
use crate::wire_up::{self, SystemClock};

/// The operator's place, on the machine of the server or on one that reaches its database.
pub(crate) struct Desk {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
}

impl Desk {
    /// Reads the configuration and opens its store; what is odd about either is told.
    pub(crate) async fn open(args: ConfigArgs) -> anyhow::Result<Self> {
        let config = configuration(args)?;
        let Opened { store, warnings, .. } = storage::open(&config.store, For::Command).await?;
        for warning in warnings {
            tell(format_args!("warning: {warning}"));
        }
        Ok(Self { config, store })
    }

    /// What hashes of keys are made with.
    pub(crate) async fn pepper(&self) -> anyhow::Result<Pepper> {
        Ok(Pepper::of(&*self.store, &wire_up::sealer(&self.config)?).await?)
    }
}

/// Reads the configuration alone. Its warnings are for `serve` and `check`.
pub(crate) fn configuration(args: ConfigArgs) -> anyhow::Result<Config> {
    Ok(Config::load(&Sources::gather(args.into())?)?.config)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemClock.now_ms()
}
