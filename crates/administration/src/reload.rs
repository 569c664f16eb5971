//! Reloads the configuration of the process that answers, for operators.
//!
//! The service only passes the request on: the binary owns the configuration, and handles requests and SIGHUP one at a time.

use amalgam_core::{AuditAction, Fault, FaultKind, INSTALLATION, Operator, Scope};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::{Administration, operator};

/// Requests that wait for the one that runs. Further callers wait for room.
const WAITING: usize = 16;

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
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
}

impl Default for ReloadReport {
    fn default() -> Self {
        let (added, removed, changed, restart_required, warnings) = Default::default();
        Self { object: "configuration.reload", added, removed, changed, restart_required, warnings }
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

/// Sends requests to the owner of the configuration. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReloadRequests(mpsc::Sender<ReloadCaller>);

impl ReloadRequests {
    /// A sender of requests, and their receiver.
    pub fn new() -> (Self, mpsc::Receiver<ReloadCaller>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Reads the configuration again. New turns use it; if it is invalid, the old one stays in force.
    pub async fn reload(&self, scope: &Scope) -> Result<ReloadReport, Fault> {
        operator(scope)?;
        let (caller, result) = oneshot::channel();
        let stopping = || Fault::new(FaultKind::ShuttingDown, "The server is shutting down.");
        self.0.send(caller).await.map_err(|_| stopping())?;
        match result.await.map_err(|_| stopping())? {
            Ok(report) => Ok(report),
            Err(ReloadError::Invalid(faults)) => {
                let message =
                    format!("The configuration is invalid; the old one stays in force. {}", faults.join("; "));
                Err(Fault::new(FaultKind::Invalid, message).code("invalid_configuration"))
            }
            Err(ReloadError::Failed(reason)) => {
                let message = "The configuration could not be put into force; the old one stays. See the server's log.";
                Err(Fault::new(FaultKind::StoreDown, message).detail(reason))
            }
        }
    }
}
