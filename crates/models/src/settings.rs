//! What an operator says about an upstream. Filled by the binary from its configuration.

use std::time::Duration;

use secrecy::SecretString;

use crate::transport::Proxy;

/// One upstream.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// The operator's name for it.
    pub name: String,
    /// Which wire it speaks, with what only that wire needs to know.
    pub kind: UpstreamKind,
    /// Such as `https://api.openai.com/v1`, without a slash at the end.
    pub base_url: String,
    /// The proxy on the way to it.
    pub proxy: Option<Proxy>,
    /// The credential.
    pub key: Key,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Names that it is known to serve.
    pub models: Vec<String>,
    /// Time for a connection.
    pub connect_timeout: Duration,
    /// Time for the head of a streamed answer.
    pub first_byte_timeout: Duration,
    /// Time for a whole answer that is not streamed, further tries included; nothing where the turn's deadline is enough.
    pub total_timeout: Option<Duration>,
    /// The longest silence inside an answer.
    pub idle_timeout: Duration,
    /// Further tries, 0 to 2.
    pub retries: u32,
    /// Whether image addresses are fetched by us and sent as bytes.
    pub fetch_images: bool,
    /// Whether a lost tool call may be mended once by sending the history as text.
    pub history_recovery: bool,
}

/// A credential, or the reason why there is none.
#[derive(Debug, Clone)]
pub enum Key {
    /// The upstream needs none.
    None,
    /// The secret.
    Given(SecretString),
    /// The variable that should hold it is not set.
    Missing {
        /// Its name.
        variable: String,
    },
}

/// Which wire an upstream speaks.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// The Responses API.
    Responses {
        /// Which shapes are written.
        dialect: Dialect,
        /// Whether it keeps what it is asked, so that a later call can go on from there.
        keeps_state: bool,
    },
    /// Chat Completions.
    Chat {
        /// Whether the model can call tools by itself.
        tool_calls: ToolCalls,
        /// The role of instructions.
        system_role: SystemRole,
        /// Whether usage is asked for in streams.
        stream_usage: bool,
        /// Which reasoning of the model it is sent again.
        replay_reasoning: ReplayReasoning,
    },
    /// Anthropic Messages.
    Anthropic {
        /// The `anthropic-version` header.
        version: String,
        /// Sent when the request has none.
        max_output_tokens: u64,
        /// How an answer by a schema is asked for.
        structured_output: StructuredOutput,
    },
    /// The built-in demo.
    Demo {
        /// The pause between words.
        pace: Duration,
    },
}

/// The shapes that a Responses upstream is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// As published.
    #[default]
    Standard,
    /// Literal to AGN-003.
    Agn003,
}

/// How a chat upstream calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolCalls {
    /// It has `tools`.
    #[default]
    Native,
    /// It has none: the tool list becomes a JSON schema for its answer.
    Constrained,
}

/// Which reasoning of its model a chat upstream is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayReasoning {
    /// That of the tool turn that is under way, unless the host is known to refuse unknown fields of a message.
    #[default]
    Auto,
    /// All of it.
    Always,
    /// None of it.
    Never,
}

/// How a Messages upstream is asked for an answer by a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StructuredOutput {
    /// By the API's own structured output where the model is known to have it, else by a tool.
    #[default]
    Auto,
    /// By the API's own structured output.
    Native,
    /// By a tool whose input is the answer.
    Tool,
}

/// The role of instructions on a chat upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SystemRole {
    /// `system`
    #[default]
    System,
    /// `developer`
    Developer,
    /// `user`, for models that have neither.
    User,
}
