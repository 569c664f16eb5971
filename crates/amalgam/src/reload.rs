//! Reloads the configuration: reads it again, checks it as a whole, and replaces what a running server can replace.
//!
//! Upstreams, models, limits, tenants with their keys, telemetry, and the log are replaced together. Everything that can fail comes
//! first, so that an error leaves the old configuration in force.

use std::sync::Arc;

use amalgam_administration::reload::{ConfigurationView, ReloadError, ReloadReport};
use amalgam_app::{Application, CurrentApplication};
use amalgam_core::Catalog;
use tracing::{info, warn};

use crate::logs::LogFilter;
use crate::tenancy;
use crate::wire_up::{self, LiveParts};
use amalgam_configuration::{Config, ConfigFaults, Flags, LoadedConfig, Setting, Sources, changes};

/// The configuration in force, and what a new one replaces.
pub(crate) struct Reloader {
    pub(crate) flags: Flags,
    pub(crate) config: Config,
    pub(crate) settings: Vec<Setting>,
    pub(crate) log: LogFilter,
    pub(crate) application: CurrentApplication,
    pub(crate) live: LiveParts,
}

impl Reloader {
    /// Reads the configuration again and puts it into force. An error is logged, and leaves the old one in force.
    pub(crate) async fn reload(&mut self) -> Result<ReloadReport, ReloadError> {
        let result = self.apply().await;
        match &result {
            Ok(report) => {
                let ReloadReport { added, removed, changed, restart_required, warnings, .. } = report;
                for warning in warnings {
                    warn!("{warning}");
                }
                info!("the configuration was reloaded: added {added:?}, removed {removed:?}, changed {changed:?}");
                if !restart_required.is_empty() {
                    warn!("these changes take effect at the next start: {}", restart_required.join(", "));
                }
            }
            Err(ReloadError::Invalid(faults)) => {
                warn!("the configuration is invalid, the old one stays in force: {}", faults.join("; "));
            }
            Err(ReloadError::Failed(reason)) => {
                warn!("the configuration could not be put into force, the old one stays: {reason}");
            }
        }
        result
    }

    /// Reads the configuration again, and says what a reload would change.
    pub(crate) fn preview(&self) -> Result<ReloadReport, ReloadError> {
        let (_, settings, warnings) = self.read()?;
        Ok(ReloadReport { warnings, dry_run: true, ..changes(&self.settings, &settings) })
    }

    /// The configuration in force.
    pub(crate) fn show(&self) -> ConfigurationView {
        ConfigurationView {
            object: "configuration",
            file: self.config.file.as_ref().map(|path| path.display().to_string()),
            settings: self.settings.iter().map(Setting::view).collect(),
        }
    }

    async fn apply(&mut self) -> Result<ReloadReport, ReloadError> {
        let (config, settings, warnings) = self.read()?;
        let failed = |error: anyhow::Error| ReloadError::Failed(format!("{error:#}"));
        let current = self.application.load();
        let names = wire_up::names(&config, &current.seal, &*current.clock).map_err(failed)?;
        let tenancy = tenancy::configure(&config, &*current.store, &*current.clock).await.map_err(failed)?;
        let change_telemetry = self.live.telemetry.prepare(&config).map_err(failed)?;
        self.log.set(&config.log).map_err(failed)?;
        self.live.log.change(&wire_up::request_lines(&config));

        let application = Arc::new(Application {
            catalog: Arc::clone(&names) as Arc<dyn Catalog>,
            engine: current.engine.with_settings(wire_up::engine_settings(&config)),
            limits: wire_up::limits(&config),
            assistant: amalgam_app::assistant::AssistantSettings {
                settings: config.assistant.clone(),
                ..current.assistant.clone()
            },
            ..(*current).clone()
        });
        let report = ReloadReport { warnings, ..changes(&self.settings, &settings) };
        change_telemetry();
        self.live.replace(&tenancy, names, &application, wire_up::admission_settings(&config));
        self.application.replace(application);
        (self.config, self.settings) = (config, merged(&self.settings, settings, &report));
        Ok(report)
    }

    /// The configuration that a reload would put into force, all settings as they are read now, and the warnings.
    fn read(&self) -> Result<(Config, Vec<Setting>, Vec<String>), ReloadError> {
        let invalid = |faults: ConfigFaults| ReloadError::Invalid(faults.iter().map(ToString::to_string).collect());
        let LoadedConfig { config: new, settings, warnings } =
            Sources::gather(self.flags.clone()).and_then(|sources| Config::load(&sources)).map_err(invalid)?;
        let config = with_reloadable(&self.config, new);
        if !config.is_local() && !config.needs_key() {
            let message = format!(
                "without a key, the server must not listen on {}, which other machines can reach; a new 'listen' takes effect at \
                 the next start",
                config.server.listen
            );
            return Err(ReloadError::Invalid(vec![message]));
        }
        Ok((config, settings, warnings))
    }
}

/// The old configuration with those parts of the new one that a running server can take over.
fn with_reloadable(old: &Config, new: Config) -> Config {
    let Config {
        log,
        telemetry,
        tenants,
        upstreams,
        has_upstreams,
        models,
        mut limits,
        assistant,
        assistant_model,
        ..
    } = new;
    limits.request_bytes_total = old.limits.request_bytes_total;
    limits.remembered_bytes = old.limits.remembered_bytes;
    Config {
        log,
        telemetry,
        tenants,
        upstreams,
        has_upstreams,
        models,
        limits,
        assistant,
        assistant_model,
        ..old.clone()
    }
}

/// The settings in force: those that need a restart stay as they were, so that the next reload names them again.
fn merged(old: &[Setting], new: Vec<Setting>, report: &ReloadReport) -> Vec<Setting> {
    let waits = |setting: &Setting| {
        report.restart_required.iter().any(|key| *key == setting.key || setting.entry.as_ref() == Some(key))
    };
    let kept = old.iter().filter(|setting| waits(setting)).cloned();
    new.into_iter().filter(|setting| !waits(setting)).chain(kept).collect()
}
