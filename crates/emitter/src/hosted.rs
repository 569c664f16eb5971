//! Output items of calls that the server runs itself. They are `mcp_call` items, because agent clients ignore those,
//! while they would run a `function_call` again. `file_search` has an item of its own.

use std::borrow::Cow;

use amalgam_protocol::{EventKind, Json, Raw, Writer};

use super::Emitter;
use amalgam_core::{CallDisplay, IdKind, ModelCallId, file_search::FileSearchItem, file_search::queries};

/// A call that the server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedCall {
    /// The item's id.
    pub id: String,
    /// The kind of its output item.
    pub shown: CallDisplay,
    /// The model's id for the call.
    pub call_id: String,
    /// Where the tool comes from.
    pub label: String,
    /// The tool's name there.
    pub name: String,
    /// The exact text that the model sent.
    pub arguments: String,
    /// The item that requested approval, if one was needed.
    pub approval_request_id: Option<String>,
}

/// The result of a call, for its output item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedCallResult {
    /// The output, as text.
    pub output: String,
    /// The error message.
    pub error: Option<String>,
}

impl Emitter {
    /// A new id for an item of this response.
    pub fn make_id(&mut self, kind: IdKind) -> String {
        self.ids.make(kind)
    }

    /// Emits the tools of an MCP server, a JSON array.
    pub fn list_tools(&mut self, label: &str, tools: &Json) {
        self.close();
        let id = self.ids.make(IdKind::McpListTools);
        let item = |tools: &[u8]| {
            let mut writer = Writer::with_capacity(tools.len() + 128);
            writer.object(|writer| {
                writer.key("type").string("mcp_list_tools");
                writer.key("id").string(&id);
                writer.key("server_label").string(label);
                // Without `error`: some clients refuse a null.
                writer.key("tools").valid(tools);
            });
            Json::from_writer(writer)
        };
        self.item_added(|| item(b"[]"));
        self.hosted_event(EventKind::McpListInProgress, &id, |_| {});
        self.hosted_event(EventKind::McpListCompleted, &id, |_| {});
        self.item_done(item(tools.bytes()));
    }

    /// Emits the beginning of a call.
    pub fn begin_hosted(&mut self, call: &HostedCall) {
        self.close();
        if let CallDisplay::FileSearch { .. } = call.shown {
            return self.begin_search(call);
        }
        let call_id = self.call_ids;
        self.item_added(|| call.item("in_progress", "", None, call_id, |_| {}));
        self.hosted_event(EventKind::McpArgumentsDelta, &call.id, |writer| {
            writer.key("delta").string(&call.arguments);
        });
        self.hosted_event(EventKind::McpArgumentsDone, &call.id, |writer| {
            writer.key("arguments").string(&call.arguments);
        });
        self.hosted_event(EventKind::McpCallInProgress, &call.id, |_| {});
    }

    /// Emits the end of the last call that was begun.
    pub fn end_hosted(&mut self, call: &HostedCall, end: &HostedCallResult) {
        if let CallDisplay::FileSearch { results } = call.shown {
            return self.end_search(call, end, results);
        }
        let (kind, status) = match end.error {
            None => (EventKind::McpCallCompleted, "completed"),
            Some(_) => (EventKind::McpCallFailed, "failed"),
        };
        self.hosted_event(kind, &call.id, |_| {});
        let (call_ids, known) = (self.call_ids, self.model_call(call));
        let stored = call.item(status, &call.arguments, Some(end), call_ids, |writer| known.write_fields(writer));
        self.item_with_stored_form(stored, call.item(status, &call.arguments, Some(end), call_ids, |_| {}));
    }

    fn begin_search(&mut self, call: &HostedCall) {
        let call_id = self.call_ids.then_some(&*call.call_id);
        let begun =
            FileSearchItem { id: &call.id, call_id, status: "in_progress", queries: &[], output: None, results: false };
        self.item_added(|| begun.shown());
        self.hosted_event(EventKind::FileSearchInProgress, &call.id, |_| {});
        self.hosted_event(EventKind::FileSearchSearching, &call.id, |_| {});
    }

    /// There is no event for a failed search; the item's status says so.
    fn end_search(&mut self, call: &HostedCall, end: &HostedCallResult, results: bool) {
        let status = match end.error {
            None => "completed",
            Some(_) => "failed",
        };
        if end.error.is_none() {
            self.hosted_event(EventKind::FileSearchCompleted, &call.id, |_| {});
        }
        let arguments = Raw::parse(call.arguments.as_bytes()).unwrap_or(Raw::EMPTY_OBJECT);
        let output = Raw::parse(end.output.as_bytes()).ok();
        let queries: Vec<Cow<'_, str>> = queries(arguments);
        let call_id = self.call_ids.then_some(&*call.call_id);
        let search = FileSearchItem { id: &call.id, call_id, status, queries: &queries, output, results };
        if let Some(output) = output {
            self.may_cite(output);
        }
        self.item_with_stored_form(search.stored(self.model_call(call)), search.shown());
    }

    /// Emits a request for approval of a call.
    pub fn request_approval(&mut self, call: &HostedCall) {
        self.close();
        let shown = call.request(|_| {});
        let known = self.model_call(call);
        self.item_added(|| shown.clone());
        self.item_with_stored_form(call.request(|writer| known.write_fields(writer)), shown);
    }

    /// The ids by which the model knows a call of the current answer.
    fn model_call<'c>(&self, call: &'c HostedCall) -> ModelCallId<'c> {
        ModelCallId { call_id: &call.call_id, round: self.round }
    }

    /// Completes an item that is stored with private fields.
    fn item_with_stored_form(&mut self, stored: Json, shown: Json) {
        self.stored_forms.push((self.output.len(), stored));
        self.item_done(shown);
    }

    fn hosted_event(&mut self, kind: EventKind, id: &str, fill: impl FnOnce(&mut Writer)) {
        let place = self.place();
        self.event(kind, |writer| {
            writer.key("item_id").string(id);
            writer.key("output_index").number(place.output_index);
            fill(writer);
        });
    }
}

impl HostedCall {
    /// The approval request item.
    fn request(&self, private: impl FnOnce(&mut Writer)) -> Json {
        let mut writer = Writer::with_capacity(self.arguments.len() + 192);
        writer.object(|writer| {
            writer.key("type").string("mcp_approval_request");
            writer.key("id").string(&self.id);
            writer.key("server_label").string(&self.label);
            writer.key("name").string(&self.name);
            writer.key("arguments").string(&self.arguments);
            private(writer);
        });
        Json::from_writer(writer)
    }

    fn item(
        &self,
        status: &str,
        arguments: &str,
        end: Option<&HostedCallResult>,
        call_id: bool,
        private: impl FnOnce(&mut Writer),
    ) -> Json {
        let output = end.map(|end| end.output.as_str());
        let error = end.and_then(|end| end.error.as_deref());
        let mut writer = Writer::with_capacity(arguments.len() + output.map_or(0, str::len) + 256);
        writer.object(|writer| {
            writer.key("type").string("mcp_call");
            writer.key("id").string(&self.id);
            writer.key("status").string(status);
            if call_id {
                writer.key("call_id").string(&self.call_id);
            }
            writer.key("server_label").string(&self.label);
            writer.key("name").string(&self.name);
            writer.key("arguments").string(arguments);
            write_optional(writer.key("approval_request_id"), self.approval_request_id.as_deref());
            write_optional(writer.key("output"), output);
            match error {
                // Clients expect an object here, in the format of a tool's own content.
                Some(error) => writer.key("error").object(|writer| {
                    writer.key("type").string("mcp_tool_execution_error");
                    writer.key("content").array(|writer| {
                        writer.object(|writer| {
                            writer.key("type").string("text");
                            writer.key("text").string(error);
                        });
                    });
                }),
                None => writer.key("error").null(),
            }
            private(writer);
        });
        Json::from_writer(writer)
    }
}

fn write_optional(writer: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => writer.string(text),
        None => writer.null(),
    }
}

#[cfg(test)]
#[path = "hosted_tests.rs"]
mod tests;
