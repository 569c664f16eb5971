//! The configuration of the process that answers, and its reload, for operators.
//!
//! The service only passes the request on: the binary owns the configuration, and handles requests and SIGHUP one at a time.

use amalgam_core::{AuditAction, Fault, FaultKind, INSTALLATION, Operator, Scope};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::{Administration, operator};

/// Requests that wait for the one that runs. Further callers wait for room.
const WAITING: usize = 16;

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ReloadReport {
    /// Always `configuration.reload`.
    #[schemars(extend("const" = "configuration.reload"))]
    pub object: &'static str,
    /// New entries, such as `upstreams.backup`.
    pub added: Vec<String>,
    /// Entries that were removed.
    pub removed: Vec<String>,
    /// Keys with a new value that is in force now, such as `limits.tools`.
    pub changed: Vec<String>,
    /// Keys with a new value that takes effect at the next start.
    pub restart_required: Vec<String>,
    /// Settings that work but are probably not intended.
    pub warnings: Vec<String>,
    /// Whether this only says what a reload would change.
    pub dry_run: bool,
    /// Every key with its value before and after, secrets hidden.
    pub differences: Vec<SettingDifference>,
}

/// A key whose value differs. Hidden secrets may look the same.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SettingDifference {
    /// The full name, such as `limits.tools`.
    pub key: String,
    /// The value in force; null if it is not set.
    pub before: Value,
    /// The value of the file, the environment and the flags; null if it is not set.
    pub after: Value,
}

/// The configuration of the process that answers, as it is in force.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Configuration")]
pub struct ConfigurationView {
    /// Always `configuration`.
    #[schemars(extend("const" = "configuration"))]
    pub object: &'static str,
    /// The path of the configuration file; null without one.
    pub file: Option<String>,
    /// Every key with its value and origin.
    pub settings: Vec<SettingView>,
}

/// One effective value and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SettingView {
    /// The full name, such as `upstreams.openai.base_url`.
    pub key: String,
    /// The value in configuration syntax, secrets hidden; null if it is not set.
    pub value: Value,
    /// Where the value comes from.
    #[schemars(extend("enum" = ["file", "environment", "flag", "default"]))]
    pub origin: &'static str,
    /// The file, with the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The environment variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The flag of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<&'static str>,
}

impl Default for ReloadReport {
    fn default() -> Self {
        let (added, removed, changed, restart_required, warnings, dry_run, differences) = Default::default();
        Self {
            object: "configuration.reload",
            added,
            removed,
            changed,
            restart_required,
            warnings,
            dry_run,
            differences,
        }
    }
}

/// The action of a reload in the audit.
const RELOAD: AuditAction = AuditAction::new("configuration.reload");

impl Administration<'_> {
    /// Appends a reload to the audit.
    pub async fn record_reload(&self, operator: Operator, report: &ReloadReport) -> Result<(), Fault> {
        let draft = self.actor.change(self.now_ms, INSTALLATION, RELOAD, "configuration");
        let draft = draft.after(serde_json::to_string(report).ok());
        Ok(self.store.append_audit(operator, draft).await?)
    }
}

/// Why the configuration in force stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadError {
    /// The new configuration is invalid: every fault.
    Invalid(Vec<String>),
    /// The new configuration could not be put into force, for example because the store does not answer.
    Failed(String),
}

/// A caller that waits for the result of a reload.
pub type ReloadCaller = oneshot::Sender<Result<ReloadReport, ReloadError>>;

/// What callers want of the owner of the configuration.
#[derive(Debug)]
pub enum ConfigurationRequest {
    /// Read it again and put it into force.
    Reload(ReloadCaller),
    /// Read it again and say what a reload would change.
    Preview(ReloadCaller),
    /// Show what is in force.
    Show(oneshot::Sender<ConfigurationView>),
}

/// Sends requests to the owner of the configuration. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReloadRequests(mpsc::Sender<ConfigurationRequest>);

impl ReloadRequests {
    /// A sender of requests, and their receiver.
    pub fn new() -> (Self, mpsc::Receiver<ConfigurationRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Reads the configuration again. New turns use it; if it is invalid, the old one stays in force.
    pub async fn reload(&self, scope: &Scope) -> Result<ReloadReport, Fault> {
        self.ask(scope, ConfigurationRequest::Reload).await?.map_err(fault)
    }

    /// Reads the configuration again and says what a reload would change; changes nothing.
    pub async fn preview(&self, scope: &Scope) -> Result<ReloadReport, Fault> {
        self.ask(scope, ConfigurationRequest::Preview).await?.map_err(fault)
    }

    /// The configuration in force, with the origin of every value.
    pub async fn show(&self, scope: &Scope) -> Result<ConfigurationView, Fault> {
        self.ask(scope, ConfigurationRequest::Show).await
    }

    async fn ask<T>(
        &self,
        scope: &Scope,
        request: impl FnOnce(oneshot::Sender<T>) -> ConfigurationRequest,
    ) -> Result<T, Fault> {
        operator(scope)?;
        let (caller, result) = oneshot::channel();
        let stopping = || Fault::new(FaultKind::ShuttingDown, "The server is shutting down.");
        self.0.send(request(caller)).await.map_err(|_| stopping())?;
        result.await.map_err(|_| stopping())
    }
}

fn fault(error: ReloadError) -> Fault {
    match error {
        ReloadError::Invalid(faults) => {
            let message = format!("The configuration is invalid; the old one stays in force. {}", faults.join("; "));
            Fault::new(FaultKind::Invalid, message).code("invalid_configuration")
        }
        ReloadError::Failed(reason) => {
            let message = "The configuration could not be put into force; the old one stays. See the server's log.";
            Fault::new(FaultKind::StoreDown, message).detail(reason)
        }
    }
}
