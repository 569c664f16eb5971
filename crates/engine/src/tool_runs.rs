//! Runs the calls of one answer. Each is journalled before and after it runs, and a failure affects only its own call.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Fault, Scope, ServerTool, ToolCall, ToolContent, ToolError, ToolSpan, TraceContext, TurnSpan, TurnStep,
    store::{ToolOutcome, ToolRun, WriteOutcome},
    turn::{SubstituteOutput, ToolFailure, arguments},
};
use amalgam_protocol::{Json, Raw};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    call_record::CallRecord, recorder::Journal, run::cancellation, running_turns::RunningTurns, turn_tools::ToolLimits,
};

/// The pause before an idempotent call is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The output for the model if another response has used the approval.
const ACTED_ON: &str = "Not run: another response has acted on this approval.";

/// A call to run.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Its index among the calls of the answer.
    pub(crate) index: usize,
    pub(crate) tool: Arc<ServerTool>,
    /// Its entry in the journal.
    pub(crate) record: ToolRun,
    /// The idempotency key, the same for every attempt.
    pub(crate) key: String,
    /// The approval that permits the call. Only one response may use it.
    pub(crate) approval_id: Option<String>,
}

/// The result of a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) output: Json,
    pub(crate) failure: Option<ToolFailure>,
    /// For the operator's log.
    detail: Option<String>,
    duration: Duration,
}

impl Outcome {
    fn failed(failure: ToolFailure, text: &str, detail: Option<String>) -> Self {
        let SubstituteOutput { failure, output } = SubstituteOutput::error(failure, text);
        Self { output, failure: Some(failure), detail, duration: Duration::ZERO }
    }

    /// The result for the journal.
    fn record(&self) -> ToolOutcome {
        ToolOutcome {
            output: self.output.clone(),
            error: self.failure.map(|failure| failure.name().to_owned()),
            detail: self.detail.clone(),
            duration_ms: self.duration.as_millis() as u64,
        }
    }
}

/// The journal's result of a call that does not run.
pub(crate) fn not_run(substitute: &SubstituteOutput) -> ToolOutcome {
    ToolOutcome {
        output: substitute.output.clone(),
        error: Some(substitute.failure.name().to_owned()),
        detail: None,
        duration_ms: 0,
    }
}

/// Reports while calls run.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The journal has all calls.
    Recorded,
    /// A call has finished, and the journal has its result.
    Finished(usize, Outcome),
}

/// The calls of one answer, and what is needed to run them.
pub(crate) struct CallBatch {
    pub(crate) jobs: Vec<Job>,
    /// The write that journals the calls, including those that do not run.
    pub(crate) recording: Option<BoxFuture<'static, Result<WriteOutcome, amalgam_core::StoreError>>>,
    pub(crate) journal: Option<Journal>,
    pub(crate) running: Arc<RunningTurns>,
    pub(crate) response_id: String,
    pub(crate) scope: Scope,
    pub(crate) limits: ToolLimits,
    pub(crate) sequential: bool,
    pub(crate) call_record: CallRecord,
    pub(crate) progress: UnboundedSender<Progress>,
}

/// Runs calls. Returns when all have finished.
pub(crate) async fn run_batch(batch: CallBatch) -> Result<(), Fault> {
    let CallBatch { jobs, recording, journal, running, response_id, scope, limits, sequential, call_record, progress } =
        batch;
    if let Some(recording) = recording {
        match recording.await? {
            WriteOutcome::Kept => {}
            WriteOutcome::Lost => return Err(cancellation()),
        }
    }
    // A send fails only if the turn was dropped, and this future with it.
    let _ = progress.send(Progress::Recorded);
    let at_once = if sequential { 1 } else { limits.parallel.max(1) };
    let mut ended = stream::iter(jobs)
        .map(|job| {
            let (scope, journal, running, response_id) = (scope.clone(), journal.clone(), &running, &response_id);
            let call_record = &call_record;
            async move {
                // Used just before the call runs, so that a turn that is refused earlier does not use it up.
                let may_run = match &job.approval_id {
                    Some(id) => running.store.use_approval(&scope, id, response_id).await?,
                    None => true,
                };
                let outcome = match may_run {
                    true => run(&job, &scope, &limits, running, call_record).await,
                    false => Outcome::failed(ToolFailure::Denied, ACTED_ON, None),
                };
                if let Some(journal) = journal {
                    let record = ToolRun { outcome: Some(outcome.record()), ..job.record };
                    if journal.result(record).await? == WriteOutcome::Lost {
                        return Err(cancellation());
                    }
                }
                Ok((job.index, outcome))
            }
        })
        .buffer_unordered(at_once);
    while let Some(done) = ended.next().await {
        let (index, outcome) = done?;
        let _ = progress.send(Progress::Finished(index, outcome));
    }
    Ok(())
}

async fn run(
    job: &Job,
    scope: &Scope,
    limits: &ToolLimits,
    running: &RunningTurns,
    call_record: &CallRecord,
) -> Outcome {
    let started = Instant::now();
    let trace = call_record.trace_of_call();
    let mut outcome = try_once(job, scope, limits, trace).await;
    // Only idempotent calls are retried. S3
    if job.tool.policy.idempotent && outcome.failure == Some(ToolFailure::Broken) {
        sleep(RETRY_PAUSE).await;
        outcome = try_once(job, scope, limits, trace).await;
    }
    outcome.duration = started.elapsed();
    let (tool, failure) = (job.tool.name.as_str(), outcome.failure.map(ToolFailure::name));
    if let Some(failure) = failure {
        warn!(
            request.id = scope.request_id().map(|id| &**id),
            tenant = scope.tenant_id(),
            tool,
            failure,
            duration_ms = outcome.duration.as_millis() as u64,
            "a tool call failed"
        );
        // The text may quote an answer of the tool's server.
        if let Some(detail) = &outcome.detail {
            debug!(tool, detail, "why the tool call failed");
        }
    }
    running.observer.tool_ended(tool, failure, outcome.duration);
    let content =
        running.observer.keeps_content().then(|| ToolContent::new(&job.record.arguments, outcome.output.raw().text()));
    call_record.add_finished(TurnSpan {
        id: trace.map_or(0, |trace| trace.span_id),
        start: started.into_std(),
        end: (started + outcome.duration).into_std(),
        step: TurnStep::ToolCall(Box::new(ToolSpan {
            name: job.tool.own_name.clone(),
            label: job.tool.label.clone(),
            call_id: job.record.call_id.clone(),
            content,
        })),
        error: failure,
    });
    outcome
}

async fn try_once(job: &Job, scope: &Scope, limits: &ToolLimits, trace: Option<TraceContext>) -> Outcome {
    let arguments = arguments(&job.record.arguments);
    let Ok(arguments) = Raw::parse(arguments.as_bytes()) else {
        return Outcome::failed(ToolFailure::InvalidArguments, "The arguments are not JSON.", None);
    };
    let call = ToolCall { scope, call_id: &job.record.call_id, key: &job.key, arguments, trace };
    // A handler that panics fails only its own call.
    let running = AssertUnwindSafe(async { job.tool.handler.run(call).await }).catch_unwind();
    let ended = match timeout(job.tool.policy.timeout, running).await {
        Err(_) => Err(ToolError::TimedOut),
        Ok(Err(_)) => Err(ToolError::Broken { detail: "its handler panicked".to_owned() }),
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
            Outcome::failed(failure, &error.to_string(), detail)
        }
    }
}
