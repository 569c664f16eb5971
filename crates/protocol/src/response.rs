//! The response object: all 31 published keys and our own `amalgam`, in every response.

use std::{borrow::Cow, sync::LazyLock};

use bytes::Bytes;

use crate::{
    error::{ErrorObject, write_optional},
    json::{Json, JsonStr, Raw, Writer},
    request::{CreateResponse, Input, Text, TextFormat},
    tool::{AllowedTools, HostedTool, Tool, ToolChoice, ToolKind},
    usage::Usage,
};

/// The status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Waits in the background queue.
    Queued,
    /// Runs.
    InProgress,
    /// Ended successfully.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended early, with partial output.
    Incomplete,
    /// Cancelled on request.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::InProgress, Self::Completed, Self::Failed, Self::Incomplete, Self::Cancelled];

    /// The status with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the response can no longer change.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::InProgress)
    }

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The fields of the request that a response object repeats, encoded once for all events of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseSettings(Bytes);

/// Values of [`ResponseSettings`] that the request alone does not decide.
#[derive(Debug, Clone, Copy)]
pub struct Effective<'a> {
    /// The model's name that the caller requested.
    pub model: &'a str,
    /// Whether the response is stored.
    pub stored: bool,
    /// Whether the turn runs in the background.
    pub background: bool,
}

impl ResponseSettings {
    /// Encodes the parameters of `request`, with every default filled in.
    pub fn new(request: &CreateResponse<'_>, effective: Effective<'_>) -> Self {
        let mut writer = Writer::with_capacity(1024);
        writer.key("background").bool(effective.background);
        if let Some(id) = request.conversation.and_then(conversation_id) {
            writer.key("conversation").object(|writer| writer.key("id").string(&id));
        }
        write_instructions(writer.key("instructions"), request.instructions.as_ref());
        write_number(writer.key("max_output_tokens"), request.max_output_tokens);
        write_number(writer.key("max_tool_calls"), request.max_tool_calls);
        writer.key("model").string(effective.model);
        writer.key("parallel_tool_calls").bool(request.parallel_tool_calls.unwrap_or(true));
        write_optional(writer.key("previous_response_id"), filled(&request.previous_response_id));
        write_optional(writer.key("prompt_cache_key"), request.prompt_cache_key.as_deref());
        writer.key("reasoning").object(|writer| {
            let reasoning = request.reasoning.as_ref();
            write_optional(writer.key("effort"), reasoning.and_then(|settings| settings.effort.as_deref()));
            write_optional(writer.key("summary"), reasoning.and_then(|settings| settings.summary.as_deref()));
        });
        write_optional(writer.key("safety_identifier"), request.safety_identifier.as_deref());
        writer.key("service_tier").string(filled(&request.service_tier).unwrap_or("default"));
        writer.key("store").bool(effective.stored);
        match has_default_parameters(request) {
            true => writer.valid(&DEFAULT_PARAMETERS),
            false => write_parameters(&mut writer, request),
        }
        Self(writer.into_bytes().into())
    }
}

/// The output of [`write_parameters`] for most requests, encoded once.
static DEFAULT_PARAMETERS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut writer = Writer::default();
    write_parameters(&mut writer, &CreateResponse::default());
    writer.into_bytes()
});

/// Whether a request sets none of these parameters.
fn has_default_parameters(request: &CreateResponse<'_>) -> bool {
    request.temperature.is_none()
        && request.text == Text::default()
        && request.tool_choice.is_none()
        && request.tools.is_empty()
        && request.top_logprobs.is_none()
        && request.top_p.is_none()
        && request.truncation.is_none()
        && request.presence_penalty.is_none()
        && request.frequency_penalty.is_none()
        && request.metadata.is_none()
}

/// Writes the parameters of generation.
fn write_parameters(writer: &mut Writer, request: &CreateResponse<'_>) {
    writer.key("temperature").float(request.temperature.unwrap_or(1.0));
    write_text(writer.key("text"), &request.text);
    write_choice(writer.key("tool_choice"), request.tool_choice.as_ref());
    writer.key("tools").array(|writer| request.tools.iter().for_each(|tool| write_tool(writer, tool)));
    writer.key("top_logprobs").number(request.top_logprobs.unwrap_or(0));
    writer.key("top_p").float(request.top_p.unwrap_or(1.0));
    writer.key("truncation").string(request.truncation.as_deref().unwrap_or("disabled"));
    writer.key("presence_penalty").float(request.presence_penalty.unwrap_or(0.0));
    writer.key("frequency_penalty").float(request.frequency_penalty.unwrap_or(0.0));
    match request.metadata {
        Some(metadata) => writer.key("metadata").raw(metadata),
        None => writer.key("metadata").object(|_| {}),
    }
}

impl ResponseSettings {
    /// Stored settings: the bytes of [`ResponseSettings::bytes`].
    pub fn stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The fields of a JSON object, without its braces, to be stored.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: every key is present.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The field `amalgam`: the model that answered, and what was lost in translation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    /// `upstream/model`; `None` until a model has accepted.
    pub model: Option<String>,
    /// The losses, each as `field: reason`.
    pub losses: Vec<String>,
    /// The upstream's id of its last answer. Stored for searches; not shown.
    pub provider_id: Option<String>,
}

impl Provenance {
    /// Writes the object as callers see it.
    pub fn write(&self, writer: &mut Writer) {
        writer.object(|writer| self.write_shown(writer));
    }

    fn write_shown(&self, writer: &mut Writer) {
        write_optional(writer.key("model"), self.model.as_deref());
        writer.key("losses").array(|writer| self.losses.iter().for_each(|loss| writer.string(loss)));
    }

    /// Reads what [`Provenance::to_json`] wrote.
    pub fn read(raw: Raw<'_>) -> Self {
        let losses = raw.get("losses").into_iter().flat_map(Raw::elements).filter_map(Raw::as_str);
        Self {
            model: raw.get_str("model").map(Cow::into_owned),
            losses: losses.map(|loss| loss.decode().into_owned()).collect(),
            provider_id: raw.get_str("provider_id").map(Cow::into_owned),
        }
    }

    /// The object for the store.
    pub fn to_json(&self) -> Json {
        let mut writer = Writer::with_capacity(128);
        writer.object(|writer| {
            self.write_shown(writer);
            if let Some(provider_id) = &self.provider_id {
                writer.key("provider_id").string(provider_id);
            }
        });
        Json::from_writer(writer)
    }
}

/// A response at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// `resp_…`
    pub id: &'a str,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970, once it has completed.
    pub completed_at: Option<u64>,
    /// The current status.
    pub status: Status,
    /// Why it failed.
    pub error: Option<&'a ErrorObject>,
    /// Why it is incomplete.
    pub incomplete_reason: Option<&'a str>,
    /// The output items.
    pub output: &'a [Json],
    /// The token usage.
    pub usage: Option<Usage>,
    /// The model that answered, and the losses.
    pub provenance: &'a Provenance,
    /// The parameters of the request that it repeats.
    pub settings: &'a ResponseSettings,
}

impl Snapshot<'_> {
    /// Writes the object.
    pub fn write(&self, writer: &mut Writer) {
        writer.object(|writer| {
            writer.key("id").string(self.id);
            writer.key("object").string("response");
            writer.key("created_at").number(self.created_at);
            write_number(writer.key("completed_at"), self.completed_at);
            writer.key("status").string(self.status.name());
            match self.error {
                Some(error) => writer.key("error").object(|writer| error.write_fields(writer)),
                None => writer.key("error").null(),
            }
            match self.incomplete_reason {
                Some(reason) => {
                    writer.key("incomplete_details").object(|writer| writer.key("reason").string(reason));
                }
                None => writer.key("incomplete_details").null(),
            }
            writer.key("output").array(|writer| self.output.iter().for_each(|item| writer.valid(item.bytes())));
            match &self.usage {
                Some(usage) => usage.write(writer.key("usage")),
                None => writer.key("usage").null(),
            }
            self.provenance.write(writer.key("amalgam"));
            writer.valid(&self.settings.0);
        });
    }
}

/// `"conv_…"` or `{"id": "conv_…"}`; an empty id is none.
fn conversation_id(conversation: Raw<'_>) -> Option<Cow<'_, str>> {
    let id = match conversation.as_str() {
        Some(id) => Some(id.decode()),
        None => conversation.get_str("id"),
    };
    id.filter(|id| !id.is_empty())
}

fn filled<'t>(text: &'t Option<Cow<'_, str>>) -> Option<&'t str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn write_number(writer: &mut Writer, number: Option<u64>) {
    match number {
        Some(number) => writer.number(number),
        None => writer.null(),
    }
}

fn write_instructions(writer: &mut Writer, instructions: Option<&Input<'_>>) {
    match instructions {
        None => writer.null(),
        Some(Input::Text(text)) => writer.json_str(*text),
        Some(Input::Items(items)) => writer.array(|writer| items.iter().for_each(|item| writer.raw(item.raw))),
    }
}

fn write_text(writer: &mut Writer, text: &Text<'_>) {
    writer.object(|writer| {
        writer.key("format");
        match &text.format {
            TextFormat::Text => writer.object(|writer| writer.key("type").string("text")),
            TextFormat::JsonObject => writer.object(|writer| writer.key("type").string("json_object")),
            TextFormat::Other(raw) => writer.raw(*raw),
            TextFormat::JsonSchema(format) => writer.object(|writer| {
                writer.key("type").string("json_schema");
                writer.key("name").string(&format.name);
                write_json_str(writer.key("description"), format.description);
                writer.key("schema").raw(format.schema);
                writer.key("strict").bool(format.strict.unwrap_or(false));
            }),
        }
        if let Some(verbosity) = &text.verbosity {
            writer.key("verbosity").string(verbosity);
        }
    });
}

fn write_json_str(writer: &mut Writer, text: Option<JsonStr<'_>>) {
    match text {
        Some(text) => writer.json_str(text),
        None => writer.null(),
    }
}

/// Writes a function with description, parameters and strict, null if they are absent. The credentials of an MCP server
/// are omitted.
fn write_tool(writer: &mut Writer, tool: &Tool<'_>) {
    let function = match &tool.kind {
        ToolKind::Function(function) => function,
        ToolKind::Hosted(HostedTool::Mcp, _) => {
            return writer.object(|writer| {
                for (key, value) in tool.raw.fields() {
                    match &*key.decode() {
                        "authorization" => {}
                        "headers" => writer.key("headers").null(),
                        key => writer.key_text(key).raw(value),
                    }
                }
            });
        }
        _ => return writer.raw(tool.raw),
    };
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("name").string(&function.name);
        write_json_str(writer.key("description"), function.description);
        writer.key("parameters").raw(function.parameters.unwrap_or(Raw::NULL));
        match function.strict {
            Some(strict) => writer.key("strict").bool(strict),
            None => writer.key("strict").null(),
        }
        if let Some(deferred) = function.defer_loading {
            writer.key("defer_loading").bool(deferred);
        }
    });
}

impl Text<'_> {
    /// Writes the object in its published form.
    pub fn write(&self, writer: &mut Writer) {
        write_text(writer, self);
    }
}

impl ToolChoice<'_> {
    /// Writes the choice unchanged, or in its published form if the caller used another.
    pub fn write(&self, writer: &mut Writer) {
        write_choice(writer, Some(self));
    }
}

fn write_choice(writer: &mut Writer, choice: Option<&ToolChoice<'_>>) {
    // `tool` and the format of Chat Completions are not part of this API; all other fields are kept.
    let named = |writer: &mut Writer, kind: &str, name: &str, raw: Raw<'_>| match raw {
        raw if raw.get_str("type").as_deref() == Some(kind) && raw.get("name").is_some() => writer.raw(raw),
        _ => writer.object(|writer| {
            writer.key("type").string(kind);
            writer.key("name").string(name);
        }),
    };
    match choice {
        None | Some(ToolChoice::Auto) => writer.string("auto"),
        Some(ToolChoice::None) => writer.string("none"),
        Some(ToolChoice::Required) => writer.string("required"),
        Some(ToolChoice::Function(name, raw)) => named(writer, "function", name, *raw),
        Some(ToolChoice::Custom(name, raw)) => named(writer, "custom", name, *raw),
        Some(ToolChoice::Client(_, raw) | ToolChoice::Hosted(_, raw) | ToolChoice::Mcp { raw, .. }) => {
            writer.raw(*raw);
        }
        Some(ToolChoice::Allowed(AllowedTools { required, tools })) => writer.object(|writer| {
            writer.key("type").string("allowed_tools");
            writer.key("mode").string(if *required { "required" } else { "auto" });
            writer.key("tools").array(|writer| tools.iter().for_each(|tool| write_choice(writer, Some(tool))));
        }),
    }
}
