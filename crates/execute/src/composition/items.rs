//! The composition in the published formats: messages of `input_text`, results as `function_call_output`.

use std::collections::HashSet;

use amalgam_protocol::{Json, Raw, Writer};

use super::{
    Composition, ToolsSent, filled, plain, results_block, results_of, user_text, write_choice, write_text, write_tools,
};
use crate::results::failure;

impl Composition<'_> {
    /// The body for an upstream with the published formats.
    pub fn body(&self) -> Vec<u8> {
        let chained = self.chained();
        let mut writer = Writer::with_capacity(1024);
        writer.object(|writer| {
            self.write_head(writer, chained);
            writer.key("input").array(|writer| self.items().iter().for_each(|item| writer.raw(item.raw())));
            if chained.is_none() || self.tools == ToolsSent::OnEveryCall {
                write_tools(writer, self.request.tools_json);
            }
            write_choice(writer, "function", self.request.tool_choice_name);
        });
        writer.into_bytes()
    }

    /// The input items in order.
    ///
    /// A result is an output item if its call is visible: in the previous response, or in the history. Otherwise it is
    /// written as text, never as both. With outputs and nothing else there is no user message.
    pub fn items(&self) -> Vec<Json> {
        let mut items = Vec::new();
        let chained = self.chained().is_some();
        if !chained {
            items.push(self.system_item());
            items.extend_from_slice(self.history);
        }
        let open = self.open_calls();
        let results = || results_of(self.request.tool_results_json.unwrap_or_default());
        let is_seen = |result: &Raw<'_>| call_id(*result).is_some_and(|id| chained || open.contains(&id));
        let outputs: Vec<Json> = results().filter(is_seen).filter_map(output_item).collect();
        let orphans = results_block(results().filter(|result| !is_seen(result)));
        let blocks = [filled(self.blocks.rag_context_block), orphans.as_deref()];
        let is_silent = self.request.instruction.is_empty()
            && self.attachments.is_empty()
            && blocks.iter().all(Option::is_none)
            && !outputs.is_empty();
        items.extend(outputs);
        if !is_silent {
            items.push(self.user_message(blocks));
        }
        items
    }

    /// The previous response. A result without a call id cannot be an output item, and an upstream that waits for
    /// outputs accepts nothing else: then the whole conversation is sent.
    fn chained(&self) -> Option<&str> {
        let mut results = results_of(self.request.tool_results_json.unwrap_or_default());
        self.continuation().filter(|_| results.all(|result| call_id(result).is_some()))
    }

    /// The system message.
    pub fn system_item(&self) -> Json {
        let own = [filled(self.request.system_prompt), filled(self.blocks.tool_usage_metadata_block)];
        message("system", self.context.system, &[], own)
    }

    /// The user's message: instruction, attachments, retrieved context.
    pub fn user_item(&self) -> Json {
        self.user_message([filled(self.blocks.rag_context_block), None])
    }

    fn user_message(&self, blocks: [Option<&str>; 2]) -> Json {
        message("user", &user_text(self.request.mode, self.request.instruction), self.attachments, blocks)
    }

    /// Calls in the history without an output.
    fn open_calls(&self) -> HashSet<String> {
        let mut open = HashSet::new();
        for item in self.history.iter().map(Json::raw) {
            let Some(id) = item.get_str("call_id") else { continue };
            match item.get_str("type").as_deref() {
                Some("function_call") => _ = open.insert(id.into_owned()),
                Some("function_call_output") => _ = open.remove(&*id),
                _ => {}
            }
        }
        open
    }
}

fn call_id(result: Raw<'_>) -> Option<String> {
    let id = result.get("CallId").or_else(|| result.get("callId")).and_then(plain)?;
    (!id.trim().is_empty()).then(|| id.into_owned())
}

fn output_item(result: Raw<'_>) -> Option<Json> {
    let result_text = result.get("ResultJson").or_else(|| result.get("resultJson")).and_then(plain);
    let error = result.get("ErrorMessage").and_then(plain);
    let error = error.filter(|error| !error.trim().is_empty());
    let output = match (result_text, error) {
        (Some(text), None) => text.into_owned(),
        (Some(text), Some(_)) if !text.trim().is_empty() => text.into_owned(),
        (_, Some(error)) => failure(&error),
        (None, None) => failure("the tool gave no result"),
    };
    let call_id = call_id(result)?;
    let mut writer = Writer::with_capacity(output.len() + 80);
    writer.object(|writer| {
        writer.key("type").string("function_call_output");
        writer.key("call_id").string(&call_id);
        writer.key("output").string(&output);
    });
    Some(Json::from_writer(writer))
}

fn message(role: &str, first: &str, attachments: &[Json], others: [Option<&str>; 2]) -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("type").string("message");
        writer.key("role").string(role);
        writer.key("content").array(|writer| {
            write_text(writer, "input_text", first);
            attachments.iter().for_each(|part| writer.raw(part.raw()));
            others.into_iter().flatten().for_each(|text| write_text(writer, "input_text", text));
        });
    });
    Json::from_writer(writer)
}

#[cfg(test)]
#[path = "items_tests.rs"]
mod tests;
