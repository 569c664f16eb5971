//! Items that are being written.

use amalgam_protocol::{ClientTool, Json, Literal, Raw, Writer};

use super::{extra::with_fields, is_complete_json};
use amalgam_core::{CallKind, IdKind};

/// The position of the open item in the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) output_index: u64,
}

/// A message: finished parts and the open one.
#[derive(Debug)]
pub(super) struct OpenMessage {
    id: String,
    phase: Option<String>,
    pub(super) parts: Vec<Json>,
    pub(super) part: Option<OpenPart>,
    /// Whether the upstream has ended it.
    pub(super) ended: bool,
    /// Fields of the upstream's item that ours does not have.
    pub(super) fields: Option<Json>,
    /// The location fields of the open part's deltas, encoded once.
    located: Option<Vec<u8>>,
}

impl OpenMessage {
    pub(super) fn new(id: String, phase: Option<String>) -> Self {
        Self { id, phase, parts: Vec::new(), part: None, ended: false, fields: None, located: None }
    }

    pub(super) fn append(&mut self, delta: &Literal, logprobs: Option<&Json>) {
        let Some(part) = &mut self.part else { return };
        part.text.extend_from_slice(delta.escaped());
        if let Some(logprobs) = logprobs {
            part.logprobs.extend(logprobs.raw().elements().map(Json::from));
        }
    }

    /// Whether a text delta continues the open part.
    pub(super) fn takes_text(&self) -> bool {
        !self.ended && self.part.as_ref().is_some_and(|part| !part.refusal)
    }

    /// How many characters the open part has.
    pub(super) fn chars(&self) -> usize {
        self.part.as_ref().map_or(0, |part| Literal::from_escaped(&part.text).decode().chars().count())
    }

    /// Whether anything was written.
    pub(super) fn has_content(&self) -> bool {
        !self.parts.is_empty() || self.part.as_ref().is_some_and(|part| !part.text.is_empty())
    }

    /// The open part is complete.
    pub(super) fn end_part(&mut self, part: Json) {
        self.parts.push(part);
        self.located = None;
    }

    /// Adds an annotation to the open part and returns its index.
    pub(super) fn annotate(&mut self, annotation: Json) -> u64 {
        let Some(part) = &mut self.part else { return 0 };
        part.annotations.push(annotation);
        part.annotations.len() as u64 - 1
    }

    pub(super) fn locate(&self, place: Place, writer: &mut Writer) {
        writer.key("item_id").string(&self.id);
        writer.key("output_index").number(place.output_index);
        writer.key("content_index").number(self.parts.len() as u64);
    }

    /// The fields of [`OpenMessage::locate`] for a delta of the open part, from the comma before them to the quote of the text.
    pub(super) fn located(&mut self, place: Place) -> &[u8] {
        if self.located.is_none() {
            let mut writer = Writer::default();
            writer.outside(b",");
            self.locate(place, &mut writer);
            writer.outside(b",\"delta\":\"");
            self.located = Some(writer.into_bytes());
        }
        self.located.as_deref().unwrap_or_default()
    }

    pub(super) fn item(&self, status: &str) -> Json {
        let length: usize = self.parts.iter().map(|part| part.bytes().len() + 1).sum();
        let mut writer = Writer::with_capacity(length + 192);
        writer.object(|writer| {
            writer.key("type").string("message");
            writer.key("id").string(&self.id);
            writer.key("status").string(status);
            writer.key("role").string("assistant");
            if let Some(phase) = &self.phase {
                writer.key("phase").string(phase);
            }
            writer.key("content").array(|writer| self.parts.iter().for_each(|part| writer.valid(part.bytes())));
        });
        with_fields(Json::from_writer(writer), self.fields.as_ref())
    }
}

/// A text or a refusal.
#[derive(Debug)]
pub(super) struct OpenPart {
    refusal: bool,
    text: Vec<u8>,
    annotations: Vec<Json>,
    logprobs: Vec<Json>,
    /// Fields of the upstream's part that ours does not have.
    pub(super) fields: Option<Json>,
}

impl OpenPart {
    pub(super) fn text() -> Self {
        Self { refusal: false, text: Vec::new(), annotations: Vec::new(), logprobs: Vec::new(), fields: None }
    }

    pub(super) fn refusal() -> Self {
        Self { refusal: true, ..Self::text() }
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.refusal
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.refusal == other.refusal
    }

    /// The fields of the event that ends the part.
    pub(super) fn write_done(&self, writer: &mut Writer) {
        match self.refusal {
            true => writer.key("refusal").escaped(&[&self.text]),
            false => {
                writer.key("text").escaped(&[&self.text]);
                writer.key("logprobs").array(|writer| self.logprobs.iter().for_each(|one| writer.valid(one.bytes())));
            }
        }
    }

    pub(super) fn json(&self) -> Json {
        let mut writer = Writer::with_capacity(self.text.len() + 64);
        writer.object(|writer| match self.refusal {
            true => {
                writer.key("type").string("refusal");
                writer.key("refusal").escaped(&[&self.text]);
            }
            false => {
                writer.key("type").string("output_text");
                writer.key("text").escaped(&[&self.text]);
                writer
                    .key("annotations")
                    .array(|writer| self.annotations.iter().for_each(|one| writer.valid(one.bytes())));
                writer.key("logprobs").array(|writer| self.logprobs.iter().for_each(|one| writer.valid(one.bytes())));
            }
        });
        with_fields(Json::from_writer(writer), self.fields.as_ref())
    }
}

/// A reasoning item: finished summaries and the open one.
#[derive(Debug)]
pub(super) struct OpenReasoning {
    id: String,
    pub(super) summaries: Vec<Json>,
    pub(super) current: Option<Vec<u8>>,
    /// Fields of the upstream's part that ours does not have.
    pub(super) part_fields: Option<Json>,
    pub(super) encrypted_content: Option<String>,
    /// Fields of the upstream's item that ours does not have.
    pub(super) fields: Option<Json>,
}

impl OpenReasoning {
    pub(super) fn new(id: String) -> Self {
        Self { id, summaries: Vec::new(), current: None, part_fields: None, encrypted_content: None, fields: None }
    }

    pub(super) fn locate(&self, place: Place, writer: &mut Writer) {
        writer.key("item_id").string(&self.id);
        writer.key("output_index").number(place.output_index);
        writer.key("summary_index").number(self.summaries.len() as u64);
    }

    pub(super) fn item(&self) -> Json {
        let mut writer = Writer::default();
        writer.object(|writer| {
            writer.key("type").string("reasoning");
            writer.key("id").string(&self.id);
            writer.key("summary").array(|writer| self.summaries.iter().for_each(|part| writer.valid(part.bytes())));
            if let Some(sealed) = &self.encrypted_content {
                writer.key("encrypted_content").string(sealed);
            }
        });
        with_fields(Json::from_writer(writer), self.fields.as_ref())
    }
}

pub(super) fn summary_part(text: &[u8]) -> Json {
    let mut writer = Writer::with_capacity(text.len() + 40);
    writer.object(|writer| {
        writer.key("type").string("summary_text");
        writer.key("text").escaped(&[text]);
    });
    Json::from_writer(writer)
}

/// A call: its head, and the escaped arguments or input so far.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) key: u64,
    id: String,
    call_id: String,
    pub(super) kind: CallKind,
    pub(super) name: String,
    namespace: Option<String>,
    pub(super) text: Vec<u8>,
    /// Whether the upstream has ended it.
    pub(super) ended: bool,
    /// Fields of the upstream's item that ours does not have.
    pub(super) fields: Option<Json>,
}

impl OpenCall {
    pub(super) fn new(
        key: u64,
        id: String,
        call_id: String,
        kind: CallKind,
        name: String,
        namespace: Option<String>,
    ) -> Self {
        Self { key, id, call_id, kind, name, namespace, text: Vec::new(), ended: false, fields: None }
    }

    /// Whether nothing can follow: the upstream has ended it, or the arguments are complete JSON.
    pub(super) fn is_complete(&self) -> bool {
        self.ended || (self.kind != CallKind::Custom && is_complete_json(&self.text))
    }

    pub(super) fn locate(&self, place: Place, writer: &mut Writer) {
        writer.key("item_id").string(&self.id);
        writer.key("output_index").number(place.output_index);
    }

    /// Whether the arguments can be used, even if the answer was cut after them.
    pub(super) fn is_whole(&self) -> bool {
        self.kind != CallKind::Custom && is_complete_json(&self.text)
    }

    /// The item as announced.
    pub(super) fn item_so_far(&self) -> Json {
        self.write("in_progress", b"")
    }

    pub(super) fn item(&self, status: &str) -> Json {
        self.write(status, &self.text)
    }

    fn write(&self, status: &str, text: &[u8]) -> Json {
        let mut writer = Writer::with_capacity(text.len() + 128);
        writer.object(|writer| {
            writer.key("type").string(match self.kind {
                CallKind::Function => "function_call",
                CallKind::Custom => "custom_tool_call",
                CallKind::Client(tool) => tool.call_type(),
            });
            writer.key("id").string(&self.id);
            writer.key("status").string(status);
            writer.key("call_id").string(&self.call_id);
            match self.kind {
                CallKind::Function | CallKind::Custom => {
                    writer.key("name").string(&self.name);
                    if let Some(namespace) = &self.namespace {
                        writer.key("namespace").string(namespace);
                    }
                    let field = if self.kind == CallKind::Function { "arguments" } else { "input" };
                    writer.key(field).escaped(&[text]);
                }
                CallKind::Client(tool) => self.write_payload(tool, writer),
            }
        });
        with_fields(Json::from_writer(writer), self.fields.as_ref())
    }

    /// Writes the action or operation of a tool with its own item type; an empty object if the model wrote no JSON.
    fn write_payload(&self, tool: ClientTool, writer: &mut Writer) {
        let arguments = Literal::from_escaped(&self.text).decode();
        let payload = Raw::parse(arguments.as_bytes()).unwrap_or(Raw::EMPTY_OBJECT);
        match tool {
            ClientTool::LocalShell => writer.key("action").object(|writer| {
                writer.key("type").string("exec");
                if payload.get("env").is_none() {
                    writer.key("env").object(|_| {});
                }
                for (key, value) in payload.fields().filter(|(key, _)| !key.is("type")) {
                    writer.key_text(&key.decode()).raw(value);
                }
            }),
            ClientTool::ToolSearch => {
                writer.key("execution").string("client");
                writer.key("arguments").raw(payload);
            }
            _ => writer.key(tool.payload_field()).raw(payload),
        }
    }
}

pub(super) fn id_kind(kind: CallKind) -> IdKind {
    match kind {
        CallKind::Function => IdKind::FunctionCall,
        CallKind::Custom => IdKind::CustomToolCall,
        CallKind::Client(ClientTool::Shell) => IdKind::ShellCall,
        CallKind::Client(ClientTool::LocalShell) => IdKind::LocalShellCall,
        CallKind::Client(ClientTool::ApplyPatch) => IdKind::ApplyPatchCall,
        CallKind::Client(ClientTool::ToolSearch) => IdKind::ToolSearchCall,
        CallKind::Client(ClientTool::Computer) => IdKind::ComputerCall,
    }
}
