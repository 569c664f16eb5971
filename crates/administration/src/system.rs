//! The installation as a whole: its processes, its queue, the size of its store, its upstreams. For operators.

use amalgam_app::{Application, not_found};
use amalgam_core::{Fault, Operator, Scope, UpstreamCheck};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Administration, access::operator, fields::UnixSeconds};

/// The upstream in not-found errors.
const UPSTREAM: &str = "Upstream";

/// The state of the installation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "System")]
pub struct SystemView {
    #[schemars(extend("const" = "system"))]
    object: &'static str,
    /// The processes that share the store.
    pub processes: Vec<ProcessView>,
    /// Background turns that wait for a process, of all tenants.
    pub queued_turns: u64,
    /// The bytes of the database on its disk.
    pub store_bytes: u64,
    /// The upstreams of the configuration in force.
    pub upstreams: Vec<UpstreamView>,
    checked_at: UnixSeconds,
}

/// A process of the server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessView {
    /// A new id at each start.
    pub id: String,
    /// Whether it is the one that answers.
    pub own: bool,
    /// How many heartbeats it has sent, one a second. A process is dead when this stays the same for ten seconds.
    pub heartbeats: u64,
}

/// An upstream.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Upstream")]
pub struct UpstreamView {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it is not called for now, because it failed repeatedly.
    pub resting: bool,
}

/// The result of a live check of an upstream.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UpstreamCheck")]
pub struct UpstreamCheckView {
    #[schemars(extend("const" = "upstream.check"))]
    object: &'static str,
    /// The upstream.
    name: String,
    /// Whether it was reached, answered, and accepted the key.
    ok: bool,
    /// What is wrong; null if nothing is.
    problem: Option<String>,
    /// How many models it lists; null if it lists none.
    models: Option<usize>,
    /// How long the check took.
    duration_ms: u64,
}

impl Administration<'_> {
    /// Processes, queue, store and upstreams.
    pub async fn system(&self, scope: &Scope, app: &Application) -> Result<SystemView, Fault> {
        let operator = operator(scope)?;
        let own = app.engine.process();
        let process = |(id, beat): (amalgam_core::store::ProcessId, u64)| ProcessView {
            id: format!("{:032x}", id.0),
            own: id == own,
            heartbeats: beat,
        };
        let processes = self.store.processes(operator).await?.into_iter().map(process).collect();
        let (_, queued_turns) = self.store.count_queued(Operator::of_this_process(), 0).await?;
        let upstream = |(name, resting)| UpstreamView { name, resting };
        Ok(SystemView {
            object: "system",
            processes,
            queued_turns,
            store_bytes: self.store.size(operator).await?,
            upstreams: app.catalog.resting().into_iter().map(upstream).collect(),
            checked_at: UnixSeconds::from_ms(self.now_ms),
        })
    }

    /// Asks an upstream for its models now, as a turn would reach it.
    pub async fn check_upstream(
        &self,
        scope: &Scope,
        app: &Application,
        name: &str,
    ) -> Result<UpstreamCheckView, Fault> {
        operator(scope)?;
        let begun = app.clock.now_ms();
        let checked = app.catalog.check(name).await;
        let UpstreamCheck { problem, models } = checked.ok_or_else(|| not_found(UPSTREAM, name))?;
        Ok(UpstreamCheckView {
            object: "upstream.check",
            name: name.to_owned(),
            ok: problem.is_none(),
            problem,
            models,
            duration_ms: app.clock.now_ms().saturating_sub(begun),
        })
    }
}
