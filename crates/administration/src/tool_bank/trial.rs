//! A trial call of a tool outside of any turn: arguments are validated, the timeout applies, and nothing is recorded.

use std::panic::AssertUnwindSafe;

use amalgam_core::{
    Fault, FaultKind, FaultParts, IdKind, Ids, Scope, ServerTool, ToolCall, ToolError, ToolOutput, ToolProvider,
    store::{BankKind, BankTool},
    turn,
};
use amalgam_protocol::Json;
use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::fields::Verbatim;

/// The outcome of a trial call.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trial {
    /// The output of the tool: any JSON value.
    output: Option<Verbatim>,
    /// The error; null if the call succeeded.
    pub error: Option<TrialError>,
    duration_ms: u64,
}

/// Why a trial call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct TrialError {
    /// The error code.
    #[schemars(extend("enum" = ["unknown_tool", "invalid_arguments", "refused", "broken", "timed_out", "too_large"]))]
    pub code: &'static str,
    /// The message that a model would receive.
    pub message: String,
    /// Details of the error, for the tool's maintainer.
    pub detail: Option<String>,
}

impl Trial {
    /// The outcome of a call that took this long.
    pub fn new(result: Result<Json, TrialError>, duration_ms: u64) -> Self {
        let (output, error) = match result {
            Ok(output) => (Some(output.into()), None),
            Err(error) => (None, Some(error)),
        };
        Self { output, error, duration_ms }
    }

    /// The output of the tool, if the call succeeded.
    pub fn output(&self) -> Option<&Json> {
        self.output.as_ref().map(|output| &output.0)
    }
}

pub(super) async fn run(
    toolbox: &dyn ToolProvider,
    scope: &Scope,
    tool: &BankTool,
    arguments: &Json,
) -> Result<Trial, Fault> {
    if tool.kind == BankKind::Client {
        return Err(Fault::new(FaultKind::Invalid, "This tool is run by the client: it cannot be tried here."));
    }
    let started = Instant::now();
    let result = match toolbox.prepare(scope, tool).await {
        Ok(Some(ready)) => call(scope, &ready, arguments).await,
        Ok(None) => Err(TrialError {
            code: turn::ToolFailure::UnknownTool.name(),
            message: "nothing here can run this tool".to_owned(),
            detail: None,
        }),
        Err(fault) if fault.kind == FaultKind::ToolServer => {
            let FaultParts { message, detail, .. } = fault.into_parts();
            Err(TrialError { code: turn::ToolFailure::Broken.name(), message: message.into_owned(), detail })
        }
        Err(fault) => return Err(fault),
    };
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Trial::new(result, duration_ms))
}

async fn call(scope: &Scope, tool: &ServerTool, arguments: &Json) -> Result<Json, TrialError> {
    if let Err(message) = tool.check.check(arguments.raw()) {
        return Err(TrialError { code: turn::ToolFailure::InvalidArguments.name(), message, detail: None });
    }
    let id = Ids::Unguessable.make(IdKind::Trial);
    let call = ToolCall { scope, call_id: &id, key: &id, arguments: arguments.raw(), trace: scope.trace() };
    // A panic of a tool must not end the connection of the caller.
    let running = AssertUnwindSafe(async { tool.handler.run(call).await }).catch_unwind();
    let ended = match timeout(tool.policy.timeout, running).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(_)) => Err(ToolError::Broken { detail: "it panicked".to_owned() }),
        Err(_) => Err(ToolError::TimedOut),
    };
    ended.map(|ToolOutput { output }| output).map_err(mishap)
}

fn mishap(error: ToolError) -> TrialError {
    let message = error.to_string();
    let (kind, detail) = match error {
        ToolError::Refused(_) => (turn::ToolFailure::Refused, None),
        ToolError::Broken { detail } => (turn::ToolFailure::Broken, Some(detail)),
        ToolError::Unsupported(_) => (turn::ToolFailure::Broken, None),
        ToolError::TimedOut => (turn::ToolFailure::TimedOut, None),
        ToolError::TooLarge => (turn::ToolFailure::TooLarge, None),
    };
    TrialError { code: kind.name(), message, detail }
}
