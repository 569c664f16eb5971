//! Tools that this server runs: what one is, what it is told, how it ends.
//!
//! A tool that the client runs is none of these: it is offered to the model as it was sent, and its calls are handed back.

use std::{fmt, sync::Arc, time::Duration};

use amalgam_protocol::{Json, Raw};

use crate::{ports::BoxFuture, scope::Scope};

/// A tool as one turn has it.
#[derive(Clone)]
pub struct ServerTool {
    /// The name that the model calls it by; unique in its turn.
    pub name: String,
    /// Whose it is: the bank, or the MCP server. Shown as `server_label`.
    pub label: String,
    /// Its own name there. Shown as `name`.
    pub own_name: String,
    /// What the model is told about it.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// How it is treated.
    pub policy: Policy,
    /// Checks arguments before anything runs.
    pub check: Arc<dyn ArgumentCheck>,
    /// Runs it.
    pub handler: Arc<dyn Handler>,
}

impl fmt::Debug for ServerTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.label, self.own_name)
    }
}

/// How a tool is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The most that one call may take.
    pub timeout: Duration,
    /// Whether running it twice is as good as once: only then it is run again after a crash.
    pub idempotent: bool,
    /// What a failure does.
    pub on_error: OnError,
    /// What the model is told after a call that went well.
    pub after_call_instruction: Option<String>,
    /// Whether somebody has to agree first.
    pub requires_approval: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            idempotent: false,
            on_error: OnError::Continue,
            after_call_instruction: None,
            requires_approval: false,
        }
    }
}

/// What a tool's failure does to its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnError {
    /// The model is told, and goes on.
    #[default]
    Continue,
    /// The turn fails.
    FailTurn,
}

impl OnError {
    /// The name that it is configured under.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::FailTurn => "fail_turn",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Continue, Self::FailTurn].into_iter().find(|known| known.name() == name)
    }
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// On whose behalf.
    pub scope: &'a Scope,
    /// The model's id for the call.
    pub call_id: &'a str,
    /// The same for every try of one call and for no other: what an idempotent service wants to see.
    pub key: &'a str,
    /// The arguments: an object that its schema allows.
    pub arguments: Raw<'a>,
}

/// What came out of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// A JSON value. Text is a JSON string.
    pub output: Json,
}

/// How a tool fails. The text is for the model: no secret, no address, no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// It says no, in its own words.
    #[error("{0}")]
    Refused(String),
    /// It could not be reached or broke; `detail` is for the log.
    #[error("the tool could not be run")]
    Broken {
        /// What happened.
        detail: String,
    },
    /// It took too long.
    #[error("the tool did not answer in time")]
    TimedOut,
    /// It gave more than is taken.
    #[error("the tool's output is too large")]
    TooLarge,
}

/// Runs a tool. It may be dropped at any moment, and is when its time is up.
pub trait Handler: Send + Sync {
    /// Runs one call.
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// Checks arguments against a tool's schema.
pub trait ArgumentCheck: Send + Sync {
    /// What is wrong, with its path; nothing when all is well.
    fn check(&self, arguments: Raw<'_>) -> Result<(), String>;
}
