//! Facts about a turn without its content: what lists, usage, metrics and logs show.

use std::{sync::Arc, time::Duration};

use amalgam_protocol::{Status, Usage};

use crate::{
    request_context::{RequestContext, TraceContext},
    turn_span::TurnSpan,
};

/// The API through which a turn was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Wire {
    /// `/v1/responses`
    #[default]
    Responses,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/api/v2/ai-agent`
    Assistant,
    /// `/api/agent`
    Execute,
    /// `/v1/messages`
    Messages,
}

impl Wire {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Responses, Self::ChatCompletions, Self::Embeddings, Self::Assistant, Self::Execute, Self::Messages];

    /// The name in the store, in lists and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::ChatCompletions => "chat_completions",
            Self::Embeddings => "embeddings",
            Self::Assistant => "assistant",
            Self::Execute => "execute",
            Self::Messages => "messages",
        }
    }

    /// The wire with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wire| wire.name() == name)
    }
}

/// Where a turn comes from, and what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnOrigin {
    /// The API.
    pub wire: Wire,
    /// The `x-request-id` of the request.
    pub request_id: Option<Arc<str>>,
    /// The request, in the process that received it.
    pub request: Option<Arc<RequestContext>>,
    /// Its place in a trace, if the request has one.
    pub trace: Option<TraceContext>,
    /// The key that the caller authenticated with.
    pub key_id: Option<Arc<str>>,
    /// The profile that the turn uses.
    pub profile: Option<String>,
    /// The session that the turn belongs to.
    pub session_id: Option<String>,
    /// The model as the caller, the profile or the tenant's settings name it.
    pub model: String,
}

/// Prices in USD per million tokens.
///
/// A rate that is not set is the rate of the tokens that it is a part of: cached input and cache writes of `input`, reasoning of
/// `output`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Prompt tokens.
    pub input: f64,
    /// Prompt tokens that the upstream read from its cache.
    pub cached_input: Option<f64>,
    /// Prompt tokens that the upstream wrote to its cache.
    pub cache_write: Option<f64>,
    /// Tokens of the answer.
    pub output: f64,
    /// Reasoning tokens of the answer.
    pub reasoning: Option<f64>,
}

impl Price {
    /// The most that a call with so many tokens can cost.
    pub fn most(&self, input_tokens: u64, output_tokens: u64) -> Cost {
        let dearest = Self {
            input: self.cache_write.map_or(self.input, |rate| rate.max(self.input)),
            output: self.reasoning.map_or(self.output, |rate| rate.max(self.output)),
            ..Self::default()
        };
        dearest.cost(&Usage { input_tokens, output_tokens, ..Usage::default() })
    }

    /// The cost of one call.
    pub fn cost(&self, usage: &Usage) -> Cost {
        let plain_input =
            usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_write_tokens);
        let plain_output = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        let parts = [
            (plain_input, self.input),
            (usage.cached_tokens.min(usage.input_tokens), self.cached_input.unwrap_or(self.input)),
            (usage.cache_write_tokens.min(usage.input_tokens), self.cache_write.unwrap_or(self.input)),
            (plain_output, self.output),
            (usage.reasoning_tokens.min(usage.output_tokens), self.reasoning.unwrap_or(self.output)),
        ];
        // USD per million tokens are micro-USD per token; nano-USD keep three more digits.
        let nano_usd: f64 = parts.iter().map(|(tokens, rate)| *tokens as f64 * rate * 1000.0).sum();
        Cost::from_nano_usd(nano_usd.round().clamp(0.0, i64::MAX as f64) as u64)
    }
}

/// An amount of money in billionths of a US dollar, so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cost(u64);

impl Cost {
    /// An amount in billionths of a US dollar.
    pub const fn from_nano_usd(nano_usd: u64) -> Self {
        Self(nano_usd)
    }

    /// The amount in billionths of a US dollar.
    pub const fn nano_usd(self) -> u64 {
        self.0
    }

    /// The amount in US dollars.
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// One model call of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct CallSummary {
    /// The operator's name of the upstream.
    pub upstream: String,
    /// The model's name at the upstream.
    pub model: String,
    /// When it was sent, in milliseconds since 1970.
    pub asked_at_ms: u64,
    /// Milliseconds until the first event, if one came.
    pub first_token_ms: Option<u64>,
    /// Milliseconds until the end.
    pub duration_ms: u64,
    /// Further attempts before the upstream accepted.
    pub retries: u32,
    /// The tokens, if the upstream reported them or they were estimated.
    pub usage: Option<Usage>,
    /// The cost; none if the tokens or the price are unknown.
    pub cost: Option<Cost>,
    /// Whether it failed.
    pub failed: bool,
}

/// A turn without its content.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnSummary {
    /// `resp_…`
    pub response_id: String,
    /// The owner's tenant.
    pub tenant_id: i64,
    /// The owner.
    pub user: Arc<str>,
    /// Where it comes from.
    pub origin: TurnOrigin,
    /// Its status.
    pub status: Status,
    /// The code of the error that ended it.
    pub error: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// When it ended, in milliseconds since 1970; none while it runs.
    pub ended_at_ms: Option<u64>,
    /// Milliseconds from its start to its first output.
    pub first_token_ms: Option<u64>,
    /// The model calls in order.
    pub calls: Vec<CallSummary>,
    /// The names of server-run tools, one for each call.
    pub tools: Vec<String>,
    /// The parts that took time, at most [`MAX_SPANS`](crate::MAX_SPANS); known when the turn has ended.
    pub spans: Vec<TurnSpan>,
    /// What was lost in translation.
    pub losses: u32,
    /// Whether its content is stored.
    pub stored: bool,
}

impl TurnSummary {
    /// The last call: the one that answered, or the one that failed last.
    pub fn last_call(&self) -> Option<&CallSummary> {
        self.calls.last()
    }

    /// The tokens of all calls.
    pub fn tokens(&self) -> TokenSums {
        self.calls.iter().filter_map(|call| call.usage).fold(TokenSums::default(), |sums, usage| sums.plus(&usage))
    }

    /// The cost of all calls; none if a call with tokens has no known price.
    pub fn cost(&self) -> Option<Cost> {
        let mut counted = self.calls.iter().filter(|call| call.usage.is_some()).peekable();
        counted.peek()?;
        counted.try_fold(Cost::default(), |sum, call| Some(sum.plus(call.cost?)))
    }

    /// Further attempts of all calls.
    pub fn retries(&self) -> u32 {
        self.calls.iter().map(|call| call.retries).sum()
    }

    /// Milliseconds from start to end.
    pub fn duration_ms(&self) -> Option<u64> {
        self.ended_at_ms.map(|ended| ended.saturating_sub(self.created_at_ms))
    }
}

/// Tokens by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenSums {
    /// Prompt tokens, including cached ones.
    pub input: u64,
    /// Of those, read from a cache.
    pub cached_input: u64,
    /// Of those, written to a cache.
    pub cache_write: u64,
    /// Tokens of the answer, including reasoning.
    pub output: u64,
    /// Of those, reasoning tokens.
    pub reasoning: u64,
}

impl TokenSums {
    /// The sum with the tokens of a call.
    #[must_use]
    pub fn plus(self, usage: &Usage) -> Self {
        Self {
            input: self.input.saturating_add(usage.input_tokens),
            cached_input: self.cached_input.saturating_add(usage.cached_tokens),
            cache_write: self.cache_write.saturating_add(usage.cache_write_tokens),
            output: self.output.saturating_add(usage.output_tokens),
            reasoning: self.reasoning.saturating_add(usage.reasoning_tokens),
        }
    }

    /// Prompt and answer.
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// Is told about turns: metrics, logs, traces. Its methods return at once.
pub trait TurnObserver: Send + Sync {
    /// A turn has ended, and if it is stored, its end is durable. `late` has the spans of its last writes, which its summary, a
    /// part of those writes, cannot have.
    fn turn_ended(&self, summary: &TurnSummary, late: Vec<TurnSpan>);

    /// The place in a trace of a turn that continues without its request; `parent` is that of the request.
    fn continue_trace(&self, parent: TraceContext) -> TraceContext {
        parent
    }

    /// Whether spans of tool calls include arguments and results.
    fn keeps_content(&self) -> bool {
        false
    }

    /// A server-run tool has finished a call; `failure` is the name of the kind of failure.
    fn tool_ended(&self, tool: &str, failure: Option<&'static str>, took: Duration) {
        let _ = (tool, failure, took);
    }

    /// A turn has waited for its position in a queue.
    fn waited(&self, queue: TurnQueue, took: Duration) {
        let _ = (queue, took);
    }

    /// A write of a turn has ended; `stored` says whether it succeeded.
    fn written(&self, stored: bool, took: Duration) {
        let _ = (stored, took);
    }
}

/// Where turns wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnQueue {
    /// Background turns, until a process has capacity.
    Background,
    /// Turns of a session, until the turns before them have ended.
    Session,
    /// Turns that may not start yet because too many run.
    Admission,
}

impl TurnQueue {
    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Session => "session",
            Self::Admission => "admission",
        }
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl TurnObserver for NoObserver {
    fn turn_ended(&self, _: &TurnSummary, _: Vec<TurnSpan>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, output: u64, reasoning: u64) -> Usage {
        Usage {
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            reasoning_tokens: reasoning,
            ..Usage::default()
        }
    }

    #[test]
    fn a_call_costs_what_its_kinds_of_tokens_cost() {
        let price = Price { input: 2.5, cached_input: Some(1.25), output: 10.0, ..Price::default() };
        // 600 × 2.5 + 400 × 1.25 + 50 × 10 micro-USD
        assert_eq!(price.cost(&usage(1000, 400, 50, 20)).nano_usd(), 2_500_000);
        let reasoning = Price { reasoning: Some(20.0), ..price };
        assert_eq!(reasoning.cost(&usage(1000, 400, 50, 20)).nano_usd(), 2_700_000);
        assert_eq!(Price::default().cost(&usage(9, 0, 9, 0)), Cost::default());
        // An upstream that reports more cached than prompt tokens.
        assert_eq!(price.cost(&usage(10, 50, 0, 0)).nano_usd(), 12_500);
    }

    #[test]
    fn the_cost_of_a_turn_is_unknown_when_the_price_of_one_of_its_calls_is() {
        let call = |cost: Option<u64>, usage: Option<Usage>| CallSummary {
            upstream: "u".into(),
            model: "m".into(),
            asked_at_ms: 0,
            first_token_ms: None,
            duration_ms: 0,
            retries: 1,
            usage,
            cost: cost.map(Cost::from_nano_usd),
            failed: false,
        };
        let summary = |calls| TurnSummary {
            response_id: String::new(),
            tenant_id: 1,
            user: "anna".into(),
            origin: TurnOrigin::default(),
            status: Status::Completed,
            error: None,
            created_at_ms: 5,
            ended_at_ms: Some(12),
            first_token_ms: None,
            calls,
            tools: Vec::new(),
            spans: Vec::new(),
            losses: 0,
            stored: true,
        };
        let some = Some(usage(5, 0, 3, 0));
        let priced = summary(vec![call(Some(7), some), call(None, None), call(Some(2), some)]);
        assert_eq!(priced.cost(), Some(Cost::from_nano_usd(9)));
        assert_eq!((priced.tokens().total(), priced.retries(), priced.duration_ms()), (16, 3, Some(7)));
        assert_eq!(summary(vec![call(Some(7), some), call(None, some)]).cost(), None);
        assert_eq!(summary(Vec::new()).cost(), None);
    }
}
