//! The settings of an upstream. The binary fills them from its configuration.

use std::time::Duration;

use secrecy::SecretString;

use crate::{
    names::OPENAI,
    transport::{Proxies, Proxy},
};

/// One upstream.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// The configured name.
    pub name: String,
    /// The API of the upstream, with its settings.
    pub kind: UpstreamKind,
    /// Such as `https://api.openai.com/v1`, without a slash at the end.
    pub base_url: String,
    /// The proxy that leads to it.
    pub proxy: Option<Proxy>,
    /// The credential.
    pub key: Key,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    /// Names of models that it serves.
    pub models: Vec<String>,
    /// The timeout of connecting.
    pub connect_timeout: Duration,
    /// The timeout of the head of a streamed answer.
    pub first_byte_timeout: Duration,
    /// The timeout of a whole answer that is not streamed, including retries; `None` if the turn's deadline is enough.
    pub total_timeout: Option<Duration>,
    /// The longest silence within an answer.
    pub idle_timeout: Duration,
    /// The number of retries, 0 to 2.
    pub retries: u32,
    /// Whether images are fetched here and sent as bytes.
    pub fetch_images: bool,
    /// Whether a request that fails because of a lost tool call is retried once with the history as text.
    pub history_recovery: bool,
}

impl UpstreamSettings {
    /// OpenAI, which assistants use when no configured upstream serves their model.
    pub fn openai(key: Key, proxies: &Proxies) -> Self {
        const URL: &str = "https://api.openai.com/v1";
        Self {
            name: OPENAI.to_owned(),
            kind: UpstreamKind::Responses { dialect: Dialect::Standard, keeps_state: false },
            base_url: URL.to_owned(),
            proxy: proxies.for_upstream(URL),
            key,
            headers: Vec::new(),
            models: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(120),
            total_timeout: None,
            idle_timeout: Duration::from_secs(60),
            retries: 2,
            fetch_images: false,
            history_recovery: false,
        }
    }
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

/// The API of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamKind {
    /// The Responses API.
    Responses {
        /// The form of requests.
        dialect: Dialect,
        /// Whether it stores responses, so that a later call can continue them.
        keeps_state: bool,
    },
    /// Chat Completions.
    Chat {
        /// How the model calls tools.
        tool_calls: ToolCalls,
        /// The role of instructions.
        system_role: SystemRole,
        /// Whether usage is requested in streams.
        stream_usage: bool,
        /// Which reasoning of the model is sent back to it.
        replay_reasoning: ReplayReasoning,
    },
    /// Anthropic Messages.
    Anthropic {
        /// The `anthropic-version` header.
        version: String,
        /// Sent if the request has no limit.
        max_output_tokens: u64,
        /// How an answer that follows a schema is requested.
        structured_output: StructuredOutput,
    },
    /// The built-in demo.
    Demo {
        /// The pause between words.
        pace: Duration,
    },
}

impl UpstreamKind {
    /// The API's name in configurations and model cards.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Responses { .. } => "responses",
            Self::Chat { .. } => "chat",
            Self::Anthropic { .. } => "anthropic",
            Self::Demo { .. } => "demo",
        }
    }
}

/// The form of requests to a Responses upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// As published by OpenAI.
    #[default]
    Standard,
    /// As defined literally by AGN-003.
    Agn003,
}

/// How a chat upstream calls tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolCalls {
    /// With `tools`.
    #[default]
    Native,
    /// Without `tools`: the tool list becomes a JSON schema for the answer.
    Constrained,
}

/// Which reasoning of its model a chat upstream receives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayReasoning {
    /// That of the current tool turn, unless the host is known to refuse unknown fields of a message.
    #[default]
    Auto,
    /// All of it.
    Always,
    /// None of it.
    Never,
}

/// How a Messages upstream is asked for an answer that follows a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StructuredOutput {
    /// By the API's structured output if the model is known to have it, otherwise by a tool.
    #[default]
    Auto,
    /// By the API's structured output.
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
