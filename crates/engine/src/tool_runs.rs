//! Runs the calls of one answer: each is written down before it runs and after it has run, and none can harm another.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Fault, Scope, ServerTool, Store, ToolCall, ToolError,
    store::{ToolOutcome, ToolRun, Written},
    turn::{SubstituteOutput, ToolFailure, arguments},
};
use amalgam_protocol::{Json, Raw};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, timeout},
};
use tracing::warn;

use crate::{recorder::Journal, run::lost, turn_tools::ToolLimits};

/// The pause before a call that may be made twice is made again.
const PAUSE: Duration = Duration::from_millis(100);

/// What a model is told where another response was faster.
const ACTED_ON: &str = "Not run: another response has acted on this approval.";

/// A call that runs.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Its place among the calls of the answer.
    pub(crate) index: usize,
    pub(crate) tool: Arc<ServerTool>,
    /// What is written about it.
    pub(crate) record: ToolRun,
    /// The same for every try.
    pub(crate) key: String,
    /// The approval that the call runs under; one response may use it.
    pub(crate) approval_id: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) output: Json,
    pub(crate) failure: Option<ToolFailure>,
    /// For the operator's log.
    detail: Option<String>,
    duration: Duration,
}

impl Outcome {
    fn went_wrong(failure: ToolFailure, text: &str, detail: Option<String>) -> Self {
        let SubstituteOutput { failure, output } = SubstituteOutput::error(failure, text);
        Self { output, failure: Some(failure), detail, duration: Duration::ZERO }
    }

    /// What the journal keeps.
    fn kept(&self) -> ToolOutcome {
        ToolOutcome {
            output: self.output.clone(),
            error: self.failure.map(|failure| failure.name().to_owned()),
            detail: self.detail.clone(),
            duration_ms: self.duration.as_millis() as u64,
        }
    }
}

/// What the journal keeps of a call that was not run.
pub(crate) fn not_run(told: &SubstituteOutput) -> ToolOutcome {
    ToolOutcome {
        output: told.output.clone(),
        error: Some(told.failure.name().to_owned()),
        detail: None,
        duration_ms: 0,
    }
}

/// What happens while calls run.
#[derive(Debug)]
pub(crate) enum Progress {
    /// That they are about to run is written down.
    Intended,
    /// One has run, and that is written down.
    Done(usize, Outcome),
}

/// What running calls needs.
pub(crate) struct Work {
    pub(crate) jobs: Vec<Job>,
    /// Writes down that they are about to run, and how those ended that do not.
    pub(crate) intending: Option<BoxFuture<'static, Result<Written, amalgam_core::StoreError>>>,
    pub(crate) journal: Option<Journal>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) response_id: String,
    pub(crate) scope: Scope,
    pub(crate) limits: ToolLimits,
    pub(crate) one_by_one: bool,
    pub(crate) progress: UnboundedSender<Progress>,
}

/// Runs calls, and comes back when all of them are over.
pub(crate) async fn work(work: Work) -> Result<(), Fault> {
    let Work { jobs, intending, journal, store, response_id, scope, limits, one_by_one, progress } = work;
    if let Some(intending) = intending {
        match intending.await? {
            Written::Kept => {}
            Written::Lost => return Err(lost()),
        }
    }
    // The receiver is dropped with the turn, and this task with it.
    let _ = progress.send(Progress::Intended);
    let at_once = if one_by_one { 1 } else { limits.parallel.max(1) };
    let mut ended = stream::iter(jobs)
        .map(|job| {
            let (scope, journal, store, response_id) = (scope.clone(), journal.clone(), &store, &response_id);
            async move {
                // Taken at the last moment: a turn that was refused before it came this far has not used it up.
                let may_run = match &job.approval_id {
                    Some(id) => store.use_approval(&scope, id, response_id).await?,
                    None => true,
                };
                let outcome = match may_run {
                    true => run(&job, &scope, &limits).await,
                    false => Outcome::went_wrong(ToolFailure::Denied, ACTED_ON, None),
                };
                if let Some(journal) = journal {
                    let record = ToolRun { outcome: Some(outcome.kept()), ..job.record };
                    if journal.result(record).await? == Written::Lost {
                        return Err(lost());
                    }
                }
                Ok((job.index, outcome))
            }
        })
        .buffer_unordered(at_once);
    while let Some(done) = ended.next().await {
        let (index, outcome) = done?;
        let _ = progress.send(Progress::Done(index, outcome));
    }
    Ok(())
}

async fn run(job: &Job, scope: &Scope, limits: &ToolLimits) -> Outcome {
    let began = Instant::now();
    let mut outcome = try_once(job, scope, limits).await;
    // What may be done twice is tried twice; nothing else ever is. S3
    if job.tool.policy.idempotent && outcome.failure == Some(ToolFailure::Broken) {
        sleep(PAUSE).await;
        outcome = try_once(job, scope, limits).await;
    }
    outcome.duration = began.elapsed();
    if let (Some(failure), Some(detail)) = (outcome.failure, &outcome.detail) {
        warn!(tool = ?job.tool, failure = failure.name(), detail, "a tool did not go well");
    }
    outcome
}

async fn try_once(job: &Job, scope: &Scope, limits: &ToolLimits) -> Outcome {
    let arguments = arguments(&job.record.arguments);
    let Ok(arguments) = Raw::parse(arguments.as_bytes()) else {
        return Outcome::went_wrong(ToolFailure::InvalidArguments, "The arguments are not JSON.", None);
    };
    let call = ToolCall { scope, call_id: &job.record.call_id, key: &job.key, arguments };
    // A handler that panics fails only its own call.
    let running = AssertUnwindSafe(async { job.tool.handler.run(call).await }).catch_unwind();
    let ended = match timeout(job.tool.policy.timeout, running).await {
        Err(_) => Err(ToolError::TimedOut),
        Ok(Err(_)) => Err(ToolError::Broken { detail: "its handler fell over".to_owned() }),
        Ok(Ok(ended)) => ended,
    };
    let ended = match ended {
        Ok(output) if output.output.bytes().len() > limits.output_bytes => Err(ToolError::TooLarge),
        ended => ended,
    };
    match ended {
        Ok(output) => Outcome { output: output.output, failure: None, detail: None, duration: Duration::ZERO },
        Err(error) => {
            let failure = match &error {
                ToolError::Refused(_) => ToolFailure::Refused,
                ToolError::Broken { .. } | ToolError::Unsupported(_) => ToolFailure::Broken,
                ToolError::TimedOut => ToolFailure::TimedOut,
                ToolError::TooLarge => ToolFailure::TooLarge,
            };
            let detail = match &error {
                ToolError::Broken { detail } => Some(detail.clone()),
                _ => None,
            };
            Outcome::went_wrong(failure, &error.to_string(), detail)
        }
    }
}
