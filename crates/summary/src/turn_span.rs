//! The parts of a turn that take time: waits, the prompt, model calls, tool calls, writes.
//!
//! A turn collects them while it runs. They are stored with its summary, and traces show them.

use std::time::Instant;

use amalgam_protocol::Writer;

use crate::turn_summary::{CallSummary, TurnQueue, TurnSummary};

/// The maximum number of spans of one turn. Later ones are left out.
pub const MAX_SPANS: usize = 256;

/// A part of a turn, with its start and its end.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnSpan {
    /// The id in a trace; 0 if none was assigned.
    pub id: u64,
    /// When it began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// What was done.
    pub step: TurnStep,
    /// The class of the failure, if it failed.
    pub error: Option<&'static str>,
}

/// What a turn does in one of its spans.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnStep {
    /// It waits.
    Queue(TurnQueue),
    /// Its history, prompt and tools are put together.
    Prompt,
    /// Knowledge is searched for its prompt.
    Retrieval,
    /// A model is called.
    ModelCall {
        /// The index among the calls of the summary.
        call: usize,
        /// When its first output arrived.
        first_token: Option<Instant>,
        /// The provider's name in traces.
        provider: &'static str,
        /// The model's name in the answer, if it is another one.
        answered_as: Option<Box<str>>,
    },
    /// The server runs a tool.
    ToolCall(Box<ToolSpan>),
    /// A part of the turn is stored.
    Write(StoredPart),
}

/// The call of a tool that the server runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpan {
    /// The name of the tool at its origin.
    pub name: String,
    /// The origin: the bank, or the label of an MCP server.
    pub label: String,
    /// The model's id of the call.
    pub call_id: String,
    /// Arguments and result, if traces include them.
    pub content: Option<ToolContent>,
}

/// What a tool was called with, and what it returned. Both are cut to [`ToolContent::MAX_BYTES`].
#[derive(Debug, Clone, PartialEq)]
pub struct ToolContent {
    /// The arguments as the model sent them.
    pub arguments: String,
    /// The output for the model.
    pub result: String,
}

impl ToolContent {
    /// The maximum length of each.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// The content of a call.
    pub fn new(arguments: &str, result: &str) -> Self {
        let cut = |text: &str| text.get(..text.floor_char_boundary(Self::MAX_BYTES)).unwrap_or_default().to_owned();
        Self { arguments: cut(arguments), result: cut(result) }
    }
}

/// A part of a turn that is stored by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoredPart {
    /// Its beginning.
    Begin,
    /// Frames of its stream.
    Events,
    /// Calls of tools, before and after they run.
    Tools,
    /// Its end.
    End,
}

impl StoredPart {
    /// The name in spans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Events => "events",
            Self::Tools => "tools",
            Self::End => "end",
        }
    }
}

impl TurnSpan {
    /// A span without an id that has just ended.
    pub fn ended(step: TurnStep, start: Instant, end: Instant) -> Self {
        Self { id: 0, start, end, step, error: None }
    }

    /// The kind, as it is stored and shown.
    pub const fn kind(&self) -> &'static str {
        match self.step {
            TurnStep::Queue(_) => "queue",
            TurnStep::Prompt => "prompt",
            TurnStep::Retrieval => "retrieval",
            TurnStep::ModelCall { .. } => "model_call",
            TurnStep::ToolCall(_) => "tool_call",
            TurnStep::Write(_) => "store",
        }
    }

    /// The name: of the queue, the model, the tool or the stored part.
    pub fn name<'a>(&'a self, calls: &'a [CallSummary]) -> &'a str {
        match &self.step {
            TurnStep::Queue(queue) => queue.name(),
            TurnStep::ModelCall { call, .. } => calls.get(*call).map_or("", |call| &call.model),
            TurnStep::ToolCall(tool) => &tool.name,
            TurnStep::Write(part) => part.name(),
            TurnStep::Prompt | TurnStep::Retrieval => self.kind(),
        }
    }

    fn write(&self, writer: &mut Writer, zero: Instant, calls: &[CallSummary]) {
        let micros = |from: Instant, to: Instant| to.saturating_duration_since(from).as_micros() as u64;
        writer.object(|writer| {
            writer.key("name").string(self.name(calls));
            writer.key("kind").string(self.kind());
            writer.key("start_us").number(micros(zero, self.start));
            writer.key("duration_us").number(micros(self.start, self.end));
            if let Some(error) = self.error {
                writer.key("error").string(error);
            }
            match &self.step {
                TurnStep::ModelCall { call, first_token, .. } => {
                    if let Some(call) = calls.get(*call) {
                        let first_token_us = first_token.map(|at| micros(self.start, at));
                        writer.key("attributes").object(|writer| write_call(writer, call, first_token_us));
                    }
                }
                TurnStep::ToolCall(tool) => writer.key("attributes").object(|writer| {
                    writer.key("label").string(&tool.label);
                    writer.key("call_id").string(&tool.call_id);
                }),
                TurnStep::Queue(_) | TurnStep::Prompt | TurnStep::Retrieval | TurnStep::Write(_) => {}
            }
        });
    }
}

fn write_call(writer: &mut Writer, call: &CallSummary, first_token_us: Option<u64>) {
    writer.key("upstream").string(&call.upstream);
    writer.key("model").string(&call.model);
    if let Some(first_token_us) = first_token_us {
        writer.key("first_token_us").number(first_token_us);
    }
    writer.key("retries").number(call.retries.into());
    if let Some(usage) = &call.usage {
        writer.key("input_tokens").number(usage.input_tokens);
        writer.key("cached_input_tokens").number(usage.cached_tokens);
        writer.key("output_tokens").number(usage.output_tokens);
        writer.key("reasoning_tokens").number(usage.reasoning_tokens);
    }
    if let Some(cost) = call.cost {
        writer.key("cost_usd").float(cost.usd());
    }
}

impl TurnSummary {
    /// When the first span began: the zero of the offsets.
    pub fn first_span(&self) -> Option<Instant> {
        self.spans.iter().map(|span| span.start).min()
    }

    /// The spans as a JSON array, sorted by their start; none if there are none. Content of tool calls is not included.
    pub fn spans_json(&self) -> Option<String> {
        let zero = self.first_span()?;
        let mut writer = Writer::with_capacity(self.spans.len() * 128);
        let mut sorted: Vec<&TurnSpan> = self.spans.iter().collect();
        sorted.sort_by_key(|span| span.start);
        writer.array(|writer| sorted.iter().for_each(|span| span.write(writer, zero, &self.calls)));
        String::from_utf8(writer.into_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use amalgam_protocol::{Status, Usage};

    use super::*;
    use crate::turn_summary::{Cost, TurnOrigin};

    #[test]
    fn spans_are_written_in_the_order_of_their_starts_without_content() {
        let zero = Instant::now();
        let span = |step, start: u64, end: u64| TurnSpan {
            id: 0,
            start: zero + Duration::from_micros(start),
            end: zero + Duration::from_micros(end),
            step,
            error: None,
        };
        let tool = ToolSpan {
            name: "find".into(),
            label: "bank".into(),
            call_id: "call_1".into(),
            content: Some(ToolContent::new("{\"q\":1}", "secret")),
        };
        let call = CallSummary {
            upstream: "u".into(),
            model: "m".into(),
            asked_at_ms: 0,
            first_token_ms: Some(1),
            duration_ms: 2,
            retries: 1,
            usage: Some(Usage { input_tokens: 5, output_tokens: 7, ..Usage::default() }),
            cost: Some(Cost::from_nano_usd(1_500_000_000)),
            failed: true,
        };
        let first_token = Some(zero + Duration::from_micros(130));
        let summary = TurnSummary {
            response_id: String::new(),
            tenant_id: 1,
            user: "anna".into(),
            origin: TurnOrigin::default(),
            status: Status::Completed,
            error: None,
            created_at_ms: 5,
            ended_at_ms: Some(12),
            first_token_ms: None,
            calls: vec![call],
            tools: Vec::new(),
            spans: vec![
                TurnSpan {
                    error: Some("upstream_broken"),
                    ..span(
                        TurnStep::ModelCall { call: 0, first_token, provider: "openai", answered_as: None },
                        100,
                        350,
                    )
                },
                span(TurnStep::ToolCall(Box::new(tool)), 400, 450),
                span(TurnStep::Queue(TurnQueue::Session), 0, 90),
                span(TurnStep::Write(StoredPart::Begin), 101, 102),
            ],
            losses: 0,
            stored: true,
        };
        let written = summary.spans_json().unwrap();
        assert_eq!(
            written,
            concat!(
                r#"[{"name":"session","kind":"queue","start_us":0,"duration_us":90},"#,
                r#"{"name":"m","kind":"model_call","start_us":100,"duration_us":250,"error":"upstream_broken","#,
                r#""attributes":{"upstream":"u","model":"m","first_token_us":30,"retries":1,"input_tokens":5,"#,
                r#""cached_input_tokens":0,"output_tokens":7,"reasoning_tokens":0,"cost_usd":1.5}},"#,
                r#"{"name":"begin","kind":"store","start_us":101,"duration_us":1},"#,
                r#"{"name":"find","kind":"tool_call","start_us":400,"duration_us":50,"#,
                r#""attributes":{"label":"bank","call_id":"call_1"}}]"#
            )
        );
        assert_eq!(TurnSummary { spans: Vec::new(), ..summary }.spans_json(), None);
    }

    #[test]
    fn long_content_is_cut_between_characters() {
        let long = "é".repeat(ToolContent::MAX_BYTES);
        let content = ToolContent::new(&long, "x");
        assert!(content.arguments.len() <= ToolContent::MAX_BYTES && content.arguments.ends_with('é'));
    }
}
