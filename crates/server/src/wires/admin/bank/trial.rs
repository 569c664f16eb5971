//! One call of a tool outside of any turn: its arguments are checked, its time is bounded, and nothing is written down.

use std::panic::AssertUnwindSafe;

use amalgam_core::{
    Fault, FaultKind, FaultParts, IdKind, Ids, Scope, ServerTool, ToolCall, ToolError, ToolOutput, Toolbox,
    store::{BankKind, BankTool},
    turn,
};
use amalgam_protocol::{Json, Writer};
use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout};

use crate::wires::admin::write_text;

/// How a call went that was made to see how it goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What came out, or why nothing did.
    pub result: Result<Json, TrialMishap>,
    /// Milliseconds that it took.
    pub duration_ms: u64,
}

/// Why nothing came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialMishap {
    /// The name that it would be recorded under.
    pub code: &'static str,
    /// What the model would be told.
    pub message: String,
    /// What happened, for whoever looks after the tool.
    pub detail: Option<String>,
}

impl Trial {
    /// The trial as it is shown: a JSON object.
    pub fn show(&self) -> Json {
        let mut writer = Writer::with_capacity(512);
        writer.object(|writer| {
            match &self.result {
                Ok(output) => {
                    writer.key("output").raw(output.raw());
                    writer.key("error").null();
                }
                Err(mishap) => {
                    writer.key("output").null();
                    writer.key("error").object(|writer| {
                        writer.key("code").string(mishap.code);
                        writer.key("message").string(&mishap.message);
                        write_text(writer, "detail", mishap.detail.as_deref());
                    });
                }
            }
            writer.key("duration_ms").number(self.duration_ms);
        });
        Json::from_writer(writer)
    }
}

pub(super) async fn run(
    toolbox: &dyn Toolbox,
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
        Ok(None) => Err(TrialMishap {
            code: turn::Mishap::UnknownTool.name(),
            message: "nothing here can run this tool".to_owned(),
            detail: None,
        }),
        Err(fault) if fault.kind == FaultKind::ToolServer => {
            let FaultParts { message, detail, .. } = fault.into_parts();
            Err(TrialMishap { code: turn::Mishap::Broken.name(), message: message.into_owned(), detail })
        }
        Err(fault) => return Err(fault),
    };
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Trial { result, duration_ms })
}

async fn call(scope: &Scope, tool: &ServerTool, arguments: &Json) -> Result<Json, TrialMishap> {
    if let Err(message) = tool.check.check(arguments.raw()) {
        return Err(TrialMishap { code: turn::Mishap::InvalidArguments.name(), message, detail: None });
    }
    let id = Ids::Unguessable.make(IdKind::Trial);
    let call = ToolCall { scope, call_id: &id, key: &id, arguments: arguments.raw() };
    // Whatever a tool does, it is the tool that fails and not the connection of whoever tries it.
    let running = AssertUnwindSafe(async { tool.handler.run(call).await }).catch_unwind();
    let ended = match timeout(tool.policy.timeout, running).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(_)) => Err(ToolError::Broken { detail: "it panicked".to_owned() }),
        Err(_) => Err(ToolError::TimedOut),
    };
    ended.map(|ToolOutput { output }| output).map_err(mishap)
}

fn mishap(error: ToolError) -> TrialMishap {
    let message = error.to_string();
    let (kind, detail) = match error {
        ToolError::Refused(_) => (turn::Mishap::Refused, None),
        ToolError::Broken { detail } => (turn::Mishap::Broken, Some(detail)),
        ToolError::Unsupported(_) => (turn::Mishap::Broken, None),
        ToolError::TimedOut => (turn::Mishap::TimedOut, None),
        ToolError::TooLarge => (turn::Mishap::TooLarge, None),
    };
    TrialMishap { code: kind.name(), message, detail }
}
