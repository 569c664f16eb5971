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

use crate::wires::admin::{fields::Verbatim, json};

/// The outcome of a trial call.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The output or the error.
    pub result: Result<Json, TrialError>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
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

/// The outcome of a trial call.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Trial")]
pub(in crate::wires::admin) struct TrialView<'a> {
    /// The output of the tool: any JSON value.
    output: Option<Verbatim>,
    /// The error; null if the call succeeded.
    error: Option<&'a TrialError>,
    duration_ms: u64,
}

impl Trial {
    /// The trial as it is shown: a JSON object.
    pub fn show(&self) -> Json {
        json(&self.view())
    }

    pub(in crate::wires::admin) fn view(&self) -> TrialView<'_> {
        TrialView {
            output: self.result.as_ref().ok().map(Verbatim::from),
            error: self.result.as_ref().err(),
            duration_ms: self.duration_ms,
        }
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
    Ok(Trial { result, duration_ms })
}

async fn call(scope: &Scope, tool: &ServerTool, arguments: &Json) -> Result<Json, TrialError> {
    if let Err(message) = tool.check.check(arguments.raw()) {
        return Err(TrialError { code: turn::ToolFailure::InvalidArguments.name(), message, detail: None });
    }
    let id = Ids::Unguessable.make(IdKind::Trial);
    let call = ToolCall { scope, call_id: &id, key: &id, arguments: arguments.raw() };
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
