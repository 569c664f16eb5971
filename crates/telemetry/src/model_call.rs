//! Model calls and tool calls after the GenAI semantic conventions.

use std::time::Instant;

use amalgam_core::{CallSummary, ToolSpan, TurnSpan};

use crate::attributes::Attributes;

/// What a span of a model call shows beside the summary of the call.
pub(crate) struct ModelCallSpan<'a> {
    pub(crate) call: &'a CallSummary,
    pub(crate) span: &'a TurnSpan,
    pub(crate) first_token: Option<Instant>,
    pub(crate) provider: &'static str,
    pub(crate) answered_as: Option<&'a str>,
    /// The session that the turn belongs to.
    pub(crate) conversation: Option<&'a str>,
}

impl ModelCallSpan<'_> {
    pub(crate) fn name(&self) -> String {
        format!("chat {}", self.call.model)
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let Self { call, span, first_token, provider, answered_as, conversation } = self;
        let mut attributes = Attributes::default();
        attributes.add("gen_ai.operation.name", "chat");
        attributes.add("gen_ai.provider.name", *provider);
        attributes.add("gen_ai.request.model", &*call.model);
        attributes.add("gen_ai.conversation.id", *conversation);
        if span.error.is_none() {
            attributes.add("gen_ai.response.model", answered_as.unwrap_or(&call.model));
        }
        let waited = first_token.map(|at| at.saturating_duration_since(span.start).as_secs_f64());
        attributes.add("gen_ai.response.time_to_first_chunk", waited);
        if let Some(usage) = &call.usage {
            attributes.add("gen_ai.usage.input_tokens", usage.input_tokens);
            attributes.add("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens);
            attributes.add("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens);
            attributes.add("gen_ai.usage.output_tokens", usage.output_tokens);
            attributes.add("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens);
            attributes.add("amalgam.usage.estimated", usage.estimated.then_some(true));
        }
        attributes.add("amalgam.upstream", &*call.upstream);
        attributes.add("amalgam.retries", u64::from(call.retries));
        attributes.add("amalgam.cost_usd", call.cost.map(|cost| cost.usd()));
        attributes.add("error.type", span.error);
        attributes
    }
}

/// The attributes of a tool call. Arguments and results are included if the turn recorded them.
pub(crate) fn tool_attributes(tool: &ToolSpan, error: Option<&'static str>) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.add("gen_ai.operation.name", "execute_tool");
    attributes.add("gen_ai.tool.name", &*tool.name);
    attributes.add("gen_ai.tool.type", "function");
    attributes.add("gen_ai.tool.call.id", &*tool.call_id);
    attributes.add("amalgam.tool.label", &*tool.label);
    if let Some(content) = &tool.content {
        attributes.add("gen_ai.tool.call.arguments", &*content.arguments);
        attributes.add("gen_ai.tool.call.result", &*content.result);
    }
    attributes.add("error.type", error);
    attributes
}
