//! What a model call's prompt consists of: which part has how many tokens, what was cached, and where the prompt differs from the
//! one before.
//!
//! Counts are estimates of the exact request that was sent. A call is looked at when it is asked for, on a thread for computation.

use std::collections::BTreeMap;

use amalgam_app::not_found;
use amalgam_assistant::prompt;
use amalgam_core::{
    Admin, Fault, Scope,
    file_search::FILE_SEARCH,
    store::{CallBodies, StoredCall, TurnRecord},
};
use amalgam_protocol::{Json, Raw, Shape, Writer};
use amalgam_tokens::{PromptSegment, SegmentKind, count_text, prompt_segments};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CALL, TURN, reader};
use crate::{Administration, access::known_id};

/// The characters of a prompt that are shown before and after the place where it differs.
const BEFORE: usize = 60;
const AFTER: usize = 140;

/// What the prompt of a model call consists of.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TurnContext")]
pub struct TurnContextView {
    /// The id of the response.
    id: String,
    #[schemars(extend("const" = "turn.context"))]
    object: &'static str,
    /// The number of the call within the turn.
    call: u64,
    /// The parts, in the order of the prompt. Their tokens are estimates.
    parts: Vec<ContextPart>,
    /// The sum of the estimates.
    estimated_tokens: u64,
    /// The prompt tokens that the upstream reported; null if it did not.
    reported_tokens: Option<u64>,
    /// Of those, read from a cache.
    cached_tokens: Option<u64>,
    /// Of those, written to a cache.
    cache_write_tokens: Option<u64>,
    /// Whether the beginning of the request is missing because the earlier call that contains it was deleted.
    request_incomplete: bool,
    /// The comparison with the prompt before: of the turn's earlier call, else of the last call of the turn that it continues. Null if
    /// there is none.
    previous: Option<ContextComparison>,
}

/// A part of a prompt.
#[derive(Serialize, JsonSchema)]
struct ContextPart {
    /// What it is. `tenant_prompt`, `profile_prompt` and `course` are parts of an assistant's system prompt; `retrieval` are results
    /// of file searches; `turn` are the answers and results of the earlier calls of the same turn.
    kind: ContextPartKind,
    /// The tool, of definitions and results.
    tool: Option<String>,
    /// How many messages or definitions.
    count: u64,
    /// The tokens, estimated.
    tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ContextPartKind {
    Tools,
    AnswerFormat,
    TenantPrompt,
    ProfilePrompt,
    Course,
    Instructions,
    History,
    Input,
    Retrieval,
    ToolResults,
    Turn,
}

/// How the beginnings of two prompts compare.
#[derive(Serialize, JsonSchema)]
struct ContextComparison {
    /// The response of the earlier call.
    response_id: String,
    /// The number of the earlier call.
    call: u64,
    /// The tokens of the beginning that both have, estimated, in whole messages and definitions.
    same_tokens: u64,
    /// Where they differ; null if the earlier prompt is the beginning of this one.
    difference: Option<ContextDifference>,
}

/// Where a prompt differs from the one before: what follows cannot be read from a cache.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct ContextDifference {
    /// The part of the prompt.
    kind: ContextPartKind,
    /// The tool, of definitions and results.
    tool: Option<String>,
    /// The earlier text around the place; null if the earlier prompt ends there.
    earlier: Option<String>,
    /// This prompt's text around the place; null if it ends there.
    now: Option<String>,
}

/// What is needed of a call, to be looked at on another thread.
struct CallPrompt {
    request: Bytes,
    /// The messages of the turn's first call: later ones come from the turn itself.
    first_request: Option<Bytes>,
    is_assistant: bool,
}

impl Administration<'_> {
    /// What the prompt of a call consists of. `id` is that of the response.
    pub async fn turn_context(&self, scope: &Scope, id: &str, number: u32) -> Result<TurnContextView, Fault> {
        let (id, admin) = (known_id(TURN, id)?, reader(scope)?);
        let turn = self.store.turn(admin, id).await?.ok_or_else(|| not_found(TURN, id))?;
        let missing = || not_found(CALL, &number.to_string());
        let StoredCall { call, .. } = self.call(admin, id, number).await?.ok_or_else(missing)?;
        let first = if number == 0 { None } else { self.call(admin, id, 0).await? };
        let row = self.turn_row(admin, id).await?;
        let session = row.as_ref().and_then(|row| Some((row.session_id.as_deref()?, row.created_at_ms())));
        let previous = self.call_before(admin, &turn, number, session).await?;
        let prompt = CallPrompt {
            request: call.request.clone(),
            first_request: first.map(|first| first.call.request),
            is_assistant: row.as_ref().is_some_and(|row| row.door == "assistant"),
        };
        let earlier = previous.as_ref().map(|(_, call)| call.call.request.clone());
        let looked_at = tokio::task::spawn_blocking(move || look_at(&prompt, earlier.as_deref()));
        let (parts, comparison) =
            looked_at.await.map_err(|error| Fault::internal("a prompt cannot be counted").detail(error))?;
        let usage = call.usage.as_ref().map(Json::raw);
        let count = |usage: Option<Raw<'_>>, name| usage.and_then(|usage| usage.get(name)).and_then(Raw::as_u64);
        let details = usage.and_then(|usage| usage.get("input_tokens_details"));
        Ok(TurnContextView {
            id: id.to_owned(),
            object: "turn.context",
            call: number.into(),
            estimated_tokens: parts.iter().map(|part| part.tokens).sum(),
            parts,
            reported_tokens: count(usage, "input_tokens"),
            cached_tokens: count(details, "cached_tokens"),
            cache_write_tokens: count(details, "cache_write_tokens"),
            request_incomplete: call.base.is_some(),
            previous: previous.zip(comparison).map(|((response_id, call), (same_tokens, difference))| {
                ContextComparison { response_id, call: call.call.number.into(), same_tokens, difference }
            }),
        })
    }

    async fn call(&self, admin: Admin<'_>, id: &str, number: u32) -> Result<Option<StoredCall>, Fault> {
        Ok(self.store.turn_calls(admin, id, CallBodies::Of(number)).await?.pop())
    }

    /// The call before: of the same turn, else the last one of the turn that this one continues, or that is before it in its session.
    async fn call_before(
        &self,
        admin: Admin<'_>,
        turn: &TurnRecord,
        number: u32,
        session: Option<(&str, u64)>,
    ) -> Result<Option<(String, StoredCall)>, Fault> {
        let id = &turn.response.id;
        if let Some(before) = number.checked_sub(1) {
            return Ok(self.call(admin, id, before).await?.map(|call| (id.clone(), call)));
        }
        let mut response = Writer::default();
        turn.response.write(&mut response);
        let response = Json::from_writer(response);
        let continued = response.raw().get_str("previous_response_id").map(std::borrow::Cow::into_owned);
        let earlier = match (continued, session) {
            (Some(continued), _) => Some(continued),
            (None, Some((session, before_ms))) => self.store.turn_before(admin, session, before_ms).await?,
            (None, None) => None,
        };
        let Some(earlier) = earlier else { return Ok(None) };
        let Some(last) = self.store.turn_calls(admin, &earlier, CallBodies::None).await?.pop() else { return Ok(None) };
        let call = self.call(admin, &earlier, last.call.number).await?;
        Ok(call.map(|call| (earlier, call)))
    }
}

type Comparison = (u64, Option<ContextDifference>);

fn look_at(prompt: &CallPrompt, earlier: Option<&[u8]>) -> (Vec<ContextPart>, Option<Comparison>) {
    let segments = prompt_segments(&prompt.request);
    let kinds = kinds(&segments, prompt.first_request.as_deref());
    let comparison = earlier.map(|earlier| compare(&prompt_segments(earlier), &segments, &kinds));
    let mut sums: BTreeMap<(ContextPartKind, Option<String>), (u64, u64)> = BTreeMap::new();
    let mut add = |kind, tool: &str, tokens| {
        let sum = sums.entry((kind, (!tool.is_empty()).then(|| tool.to_owned()))).or_default();
        *sum = (sum.0 + 1, sum.1 + tokens);
    };
    let mut composed = prompt.is_assistant;
    for (segment, kind) in segments.iter().zip(&kinds) {
        // The first system prompt of an assistant's turn is the composed one.
        if std::mem::take(&mut composed) && *kind == ContextPartKind::Instructions {
            add_composed(segment, &mut add);
            continue;
        }
        composed |= prompt.is_assistant && matches!(segment.kind, SegmentKind::Tool | SegmentKind::AnswerFormat);
        add(*kind, &segment.tool, segment.tokens);
    }
    let parts = sums.into_iter().map(|((kind, tool), (count, tokens))| ContextPart { kind, tool, count, tokens });
    (parts.collect(), comparison)
}

/// Adds the parts of an assistant's composed system prompt.
fn add_composed(segment: &PromptSegment<'_>, add: &mut impl FnMut(ContextPartKind, &str, u64)) {
    let text = said(segment.json);
    let (tenant, profile, course) = prompt::parts(&text);
    let counted = [
        (ContextPartKind::TenantPrompt, Some(tenant)),
        (ContextPartKind::ProfilePrompt, profile),
        (ContextPartKind::Course, course),
    ];
    for (kind, text) in counted {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            add(kind, "", count_text(text));
        }
    }
}

/// The text of a prompt: a string, or a message with a string or with parts.
fn said(json: &str) -> String {
    fn read(raw: Raw<'_>, text: &mut String) {
        match raw.shape() {
            Shape::String => text.push_str(&raw.as_str().unwrap_or_default().decode()),
            Shape::Array => raw.elements().for_each(|part| read(part, text)),
            Shape::Object => {
                ["content", "text"].iter().filter_map(|key| raw.get(key)).for_each(|part| read(part, text))
            }
            Shape::Number | Shape::Bool | Shape::Null => {}
        }
    }
    let mut text = String::new();
    if let Ok(raw) = Raw::parse(json.as_bytes()) {
        read(raw, &mut text);
    }
    text
}

/// What each segment is within its turn. In the prompt of the first call, messages up to the model's last answer are history, and what
/// follows is the turn's input; what later prompts have beyond is the turn's own.
fn kinds(segments: &[PromptSegment<'_>], first_request: Option<&[u8]>) -> Vec<ContextPartKind> {
    let first = first_request.map(prompt_segments);
    let first = first.as_deref().unwrap_or(segments);
    let is_message =
        |segment: &&PromptSegment<'_>| !matches!(segment.kind, SegmentKind::Tool | SegmentKind::AnswerFormat);
    let given = first.iter().filter(is_message).count();
    let answered = first.iter().filter(is_message).rposition_of(|segment| segment.kind == SegmentKind::Assistant);
    let mut messages = 0;
    let kind = |segment: &PromptSegment<'_>| {
        let number = messages;
        messages += usize::from(is_message(&segment));
        let is_history = answered.is_some_and(|answered| number <= answered);
        match segment.kind {
            SegmentKind::Tool => ContextPartKind::Tools,
            SegmentKind::AnswerFormat => ContextPartKind::AnswerFormat,
            SegmentKind::Instructions => ContextPartKind::Instructions,
            SegmentKind::ToolResult if segment.tool == FILE_SEARCH => ContextPartKind::Retrieval,
            _ if is_history => ContextPartKind::History,
            SegmentKind::ToolResult => ContextPartKind::ToolResults,
            _ if number >= given => ContextPartKind::Turn,
            _ => ContextPartKind::Input,
        }
    };
    segments.iter().map(kind).collect()
}

/// The position of the last element that fits, for iterators without a length.
trait LastPosition: Iterator + Sized {
    fn rposition_of(self, fits: impl Fn(Self::Item) -> bool) -> Option<usize> {
        self.enumerate().filter_map(|(at, item)| fits(item).then_some(at)).last()
    }
}

impl<I: Iterator> LastPosition for I {}

/// The tokens of the common beginning, and where the prompts differ.
fn compare(earlier: &[PromptSegment<'_>], now: &[PromptSegment<'_>], kinds: &[ContextPartKind]) -> Comparison {
    let same = earlier.iter().zip(now).take_while(|(one, other)| unmarked(one.json) == unmarked(other.json)).count();
    let tokens = now.iter().take(same).map(|segment| segment.tokens).sum();
    let (before, after) = (earlier.get(same), now.get(same));
    let Some(before) = before else { return (tokens, None) };
    let (one, other) = (unmarked(before.json), after.map(|after| unmarked(after.json)));
    let common = other.as_deref().map_or(0, |other| one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count());
    let named = after.unwrap_or(before);
    let difference = ContextDifference {
        kind: kinds.get(same).copied().unwrap_or(ContextPartKind::History),
        tool: (!named.tool.is_empty()).then(|| named.tool.clone()),
        earlier: Some(excerpt(&one, common)),
        now: other.map(|other| excerpt(&other, common)),
    };
    (tokens, Some(difference))
}

/// The text around a place.
fn excerpt(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(BEFORE));
    let to = text.floor_char_boundary(at.saturating_add(AFTER));
    let (start, end) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    format!("{start}{}{end}", text.get(from..to).unwrap_or_default())
}

/// A message without the mark of where an upstream shall cache: the mark moves on with every call and is no part of the prompt.
fn unmarked(json: &str) -> std::borrow::Cow<'_, str> {
    const MARK: &str = r#""cache_control":{"#;
    if !json.contains(MARK) {
        return json.into();
    }
    let mut rest = json;
    let mut kept = String::with_capacity(json.len());
    while let Some((before, after)) = rest.split_once(MARK) {
        let Some((_, behind)) = after.split_once('}') else { break };
        kept.push_str(before.strip_suffix(',').unwrap_or(before));
        rest = behind;
    }
    kept.push_str(rest);
    kept.into()
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
