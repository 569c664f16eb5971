//! Requests of clients of the Messages API, for an upstream with the same API: what only this API has is sent as it came.

use std::collections::{HashMap, HashSet};

use amalgam_core::Loss;
use amalgam_protocol::{CreateResponse, Raw, ToolKind, Writer};

use crate::messages_fields;

/// What a request has that only this API has.
pub(super) struct Native<'a> {
    /// Parameters of the request.
    pub(super) fields: Raw<'a>,
    /// Fields of tools that the client runs, by their name; with a `type`, the whole tool.
    tools: HashMap<String, Raw<'a>>,
    /// The names of all functions of the request.
    functions: HashSet<String>,
    /// Tools that the upstream runs, with their index.
    server_tools: Vec<(usize, Raw<'a>)>,
}

impl<'a> Native<'a> {
    /// Reads a request; none if it came through another API.
    pub(super) fn of(settings: &CreateResponse<'a>) -> Option<Self> {
        let fields = messages_fields::of_request(settings)?;
        let mut native = Self { fields, tools: HashMap::new(), functions: HashSet::new(), server_tools: Vec::new() };
        for (index, tool) in settings.tools.iter().enumerate() {
            match (&tool.kind, messages_fields::of(tool.raw)) {
                (ToolKind::Function(function), fields) => {
                    native.functions.insert(function.name.clone().into_owned());
                    native.tools.extend(fields.map(|fields| (function.name.clone().into_owned(), fields)));
                }
                (_, Some(tool)) => native.server_tools.push((index, tool)),
                (_, None) => {}
            }
        }
        Some(native)
    }

    /// Whether a tool is one of the request. Tools that are added between messages stay there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// The tool as the client sent it, if its type has no place in other APIs.
    pub(super) fn whole_tool(&self, name: &str) -> Option<Raw<'a>> {
        self.tools.get(name).copied().filter(|tool| tool.get("type").is_some())
    }

    /// Writes the remaining fields of a tool.
    pub(super) fn write_tool_fields(&self, name: &str, writer: &mut Writer) {
        for (key, value) in self.tools.get(name).copied().into_iter().flat_map(Raw::fields) {
            writer.key_text(&key.decode()).raw(value);
        }
    }

    /// Writes the tools that the upstream runs.
    pub(super) fn write_server_tools(&self, writer: &mut Writer) {
        self.server_tools.iter().for_each(|(_, tool)| writer.raw(*tool));
    }

    /// Whether a loss is about a tool that the upstream runs.
    pub(super) fn is_kept(&self, loss: &Loss) -> bool {
        self.server_tools.iter().any(|(index, _)| loss.field == format!("tools[{index}]"))
    }

    /// Writes sampling and every parameter that other APIs do not have.
    pub(super) fn write(&self, settings: &CreateResponse<'_>, writer: &mut Writer) {
        for (name, number) in [("temperature", settings.temperature), ("top_p", settings.top_p)] {
            if let Some(number) = number {
                writer.key(name).float(number);
            }
        }
        for (key, value) in self.fields.fields().filter(|(key, _)| !key.is("betas")) {
            writer.key_text(&key.decode()).raw(value);
        }
    }
}

/// `object`, one JSON object, with more fields at its end. Nothing stays nothing.
pub(super) fn with_fields(object: &[u8], fields: Raw<'_>) -> Vec<u8> {
    let mut bytes = object.to_vec();
    if bytes.pop() != Some(b'}') {
        return object.to_vec();
    }
    let mut rest = Writer::default();
    rest.outside(&bytes);
    for (key, value) in fields.fields() {
        rest.key_text(&key.decode()).raw(value);
    }
    rest.outside(b"}");
    rest.into_bytes()
}
