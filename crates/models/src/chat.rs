//! Chat Completions: OpenAI, Ollama, vLLM, llama.cpp, LM Studio and every other server with this API.
//!
//! `convert` and its children write the request, `decode` and its children read the answer; this file joins them with
//! the transport. For servers that report no usage, `estimate` counts tokens.

mod calls;
mod constrained;
mod convert;
mod decode;
mod failure;
mod files;
mod messages;
mod parts;

use std::sync::Arc;

use amalgam_core::{BoxFuture, Fault, Model, ModelError, ModelRequest, ModelStream, PreparedRequest, Seal, TokenCount};
use amalgam_tokens::{TokenCalibration, count_prompt, count_text};
use http::Uri;

use crate::{
    estimate, recovery,
    settings::{ReplayReasoning, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings},
    transport::Transport,
};

use self::decode::Decoder;

const PATH: &str = "/chat/completions";

/// The fields of a message that may hold its reasoning, the most common one first.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// A Chat Completions upstream.
pub struct Chat {
    transport: Transport,
    wire: Wire,
    fetches_images: bool,
    recovers_history: bool,
    seal: Arc<dyn Seal>,
    name: String,
    calibration: Arc<TokenCalibration>,
}

/// How this server differs from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wire {
    tool_calls: ToolCalls,
    system_role: SystemRole,
    stream_usage: bool,
    /// OpenAI's newer models refuse `max_tokens` and require `max_completion_tokens`; most other servers support only
    /// the former. Assumed on OpenAI's and Azure's hosts, and if instructions have the role `developer`.
    newer_limit: bool,
    replay: Replay,
}

/// Which reasoning is sent back.
///
/// Reasoning models such as DeepSeek's and Kimi's need their reasoning during a tool turn, in the field that it came
/// in; most servers ignore unknown fields. Hosts that refuse unknown fields of a message get none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replay {
    Never,
    /// The reasoning after the user's last message.
    RunningTurn,
    Always,
}

impl Chat {
    /// Prepares one upstream; connects to nothing yet. `seal` seals reasoning that the client carries.
    pub fn new(settings: UpstreamSettings, seal: Arc<dyn Seal>) -> Result<Self, Fault> {
        let UpstreamKind::Chat { tool_calls, system_role, stream_usage, replay_reasoning } = settings.kind else {
            return Err(Fault::internal(format_args!("upstream `{}` is not of kind chat", settings.name)));
        };
        let host = settings.base_url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_ascii_lowercase));
        let within = |domains: &[&str]| {
            host.as_deref().is_some_and(|host| {
                let below = |domain: &&str| {
                    host.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                };
                domains.iter().any(below)
            })
        };
        let newer_limit = system_role == SystemRole::Developer || within(&["openai.com", "azure.com"]);
        let strict = newer_limit || within(&["groq.com", "mistral.ai", "cerebras.ai"]);
        let replay = match replay_reasoning {
            // A history with calls as text has no field for reasoning.
            _ if tool_calls == ToolCalls::Constrained => Replay::Never,
            ReplayReasoning::Always => Replay::Always,
            ReplayReasoning::Auto if !strict => Replay::RunningTurn,
            ReplayReasoning::Auto | ReplayReasoning::Never => Replay::Never,
        };
        Ok(Self {
            transport: Transport::new(&settings)?,
            wire: Wire { tool_calls, system_role, stream_usage, newer_limit, replay },
            fetches_images: settings.fetch_images,
            recovers_history: settings.history_recovery,
            seal,
            name: settings.name,
            calibration: Arc::default(),
        })
    }
}

impl Model for Chat {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        convert::prepare(self.wire, request, &self.name, &*self.seal)
    }

    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        Box::pin(async move {
            let decoder = || Decoder::new(prepared, &self.name, Arc::clone(&self.seal));
            let stream = self.transport.ask(PATH, &[], prepared, decoder).await?;
            Ok(estimate::with_usage(stream, prepared, &self.calibration))
        })
    }

    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        self.calibration.prompt(&prepared.answer_context.model, count_prompt(&prepared.body))
    }

    fn count_text(&self, model: &str, text: &str) -> u64 {
        self.calibration.text(model, count_text(text))
    }

    fn missing_key(&self) -> Option<&str> {
        self.transport.missing_key()
    }

    fn is_resting(&self) -> bool {
        self.transport.is_resting()
    }

    fn identify<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<String, ModelError>> {
        Box::pin(self.transport.identify(name, &[]))
    }

    fn wants_image_bytes(&self) -> bool {
        self.fetches_images
    }

    fn recover(&self, request: &ModelRequest<'_>, error: &ModelError) -> Option<Result<PreparedRequest, Fault>> {
        recovery::recover(self.recovers_history, request, error, |request| self.prepare(request))
    }
}
