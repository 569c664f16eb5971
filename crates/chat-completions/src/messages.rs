//! The messages of a request as items: messages, calls, outputs of calls, reasoning.

use std::collections::{HashMap, HashSet, VecDeque};

use amalgam_core::Losses;
use amalgam_protocol::{Json, JsonStr, Raw, ShapeError, Writer};

use crate::{
    content::{ContentSource, shown, write_content},
    fields::{expect_array, expect_object, present, required_object, required_text, text},
};

const ROLES: &str = "`system`, `developer`, `user`, `assistant`, `tool`, `function`";

/// Where instructions at the beginning of the messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeadingInstructions {
    /// Into the input, like all other messages.
    Input,
    /// Into the parameter `instructions`: they apply to this turn only, and precede the items of a conversation.
    Instructions,
}

/// The items of the messages, and the index of the message that each comes from.
#[derive(Debug, Default)]
pub(crate) struct MessageItems {
    pub(crate) input: Option<Json>,
    pub(crate) instructions: Option<Json>,
    pub(crate) input_from: Vec<usize>,
    pub(crate) instructions_from: Vec<usize>,
}

/// Reads all messages. An error names the path below `messages`.
pub(crate) fn read(
    messages: Raw<'_>,
    leading: LeadingInstructions,
    losses: &mut Losses,
) -> Result<MessageItems, ShapeError> {
    expect_array(messages, "an array of messages")?;
    let mut reader = MessageReader {
        input: ItemList::default(),
        instructions: ItemList::default(),
        at_front: leading == LeadingInstructions::Instructions,
        custom_calls: HashSet::new(),
        functions: HashMap::new(),
        losses,
    };
    let mut count = 0;
    for (index, message) in messages.elements().enumerate() {
        reader.message(index, message).map_err(|error| error.at(index))?;
        count += 1;
    }
    if count == 0 {
        return Err(ShapeError::value("", "must have at least one message"));
    }
    let MessageReader { input, instructions, .. } = reader;
    Ok(MessageItems {
        input: Some(Json::array(|writer| writer.outside(input.items.bytes()))),
        instructions: (!instructions.from.is_empty())
            .then(|| Json::array(|writer| writer.outside(instructions.items.bytes()))),
        input_from: input.from,
        instructions_from: instructions.from,
    })
}

#[derive(Default)]
struct ItemList {
    items: Writer,
    from: Vec<usize>,
}

struct MessageReader<'l> {
    input: ItemList,
    instructions: ItemList,
    /// Whether only instructions came so far, and they are kept apart.
    at_front: bool,
    /// Ids of the calls of custom tools.
    custom_calls: HashSet<String>,
    /// Ids of calls in the older form that have no output yet, by the function's name.
    functions: HashMap<String, VecDeque<String>>,
    losses: &'l mut Losses,
}

impl MessageReader<'_> {
    fn message(&mut self, index: usize, message: Raw<'_>) -> Result<(), ShapeError> {
        expect_object(message)?;
        let role = required_text(message, "role")?.decode();
        let is_instruction = matches!(&*role, "system" | "developer");
        self.at_front &= is_instruction;
        if &*role != "function" && present(message, "name").is_some() {
            self.losses.add("messages.name", "messages have no author's name here");
        }
        match &*role {
            "system" | "developer" | "user" => self.said(index, &role, message),
            "assistant" => self.answered(index, message),
            "tool" => self.tool_output(index, message),
            "function" => self.function_output(index, message),
            other => Err(ShapeError::value("role", format!("must be one of {ROLES}, but is `{}`", shown(other)))),
        }
    }

    /// Adds an item that `fill` writes.
    fn item(&mut self, index: usize, fill: impl FnOnce(&mut Writer)) {
        let list = if self.at_front { &mut self.instructions } else { &mut self.input };
        list.items.object(fill);
        list.from.push(index);
    }

    fn write_message(
        &mut self,
        index: usize,
        role: &str,
        content: Raw<'_>,
        source: ContentSource,
    ) -> Result<(), ShapeError> {
        let mut written = Writer::with_capacity(content.text().len() + 32);
        write_content(&mut written, content, source, self.losses).map_err(|error| error.under("content"))?;
        self.item(index, |writer| {
            writer.key("type").string("message");
            writer.key("role").string(role);
            writer.key("content").valid(written.bytes());
        });
        Ok(())
    }

    fn said(&mut self, index: usize, role: &str, message: Raw<'_>) -> Result<(), ShapeError> {
        let content = present(message, "content").ok_or_else(|| ShapeError::missing("content"))?;
        self.write_message(index, role, content, ContentSource::Input)
    }

    /// An answer of the model: reasoning, text, calls.
    fn answered(&mut self, index: usize, message: Raw<'_>) -> Result<(), ShapeError> {
        let reasoning = match text(message, "reasoning_content")? {
            None => text(message, "reasoning")?,
            found => found,
        };
        if let Some(reasoning) = reasoning.filter(|reasoning| !reasoning.is_empty()) {
            self.reasoning(index, reasoning);
        }
        let content =
            present(message, "content").filter(|content| content.as_str().is_none_or(|text| !text.is_empty()));
        if let Some(content) = content {
            self.write_message(index, "assistant", content, ContentSource::Model)?;
        }
        if let Some(refusal) = text(message, "refusal")?.filter(|refusal| !refusal.is_empty()) {
            self.item(index, |writer| {
                writer.key("type").string("message");
                writer.key("role").string("assistant");
                writer.key("content").array(|writer| {
                    writer.object(|writer| {
                        writer.key("type").string("refusal");
                        writer.key("refusal").json_str(refusal);
                    });
                });
            });
        }
        if present(message, "audio").is_some() {
            self.losses.add("messages.audio", "earlier spoken answers are not kept");
        }
        if let Some(calls) = present(message, "tool_calls") {
            expect_array(calls, "an array of tool calls").map_err(|error| error.under("tool_calls"))?;
            for (place, call) in calls.elements().enumerate() {
                self.call(index, call).map_err(|error| error.at(place).under("tool_calls"))?;
            }
        }
        if present(message, "function_call").is_some() {
            let call = required_object(message, "function_call")?;
            let name = required_text(call, "name").map_err(|error| error.under("function_call"))?;
            let arguments = text(call, "arguments").map_err(|error| error.under("function_call"))?;
            // The older form has no ids; outputs name the function.
            let id = format!("call_of_message_{index}");
            self.functions.entry(name.decode().into_owned()).or_default().push_back(id.clone());
            self.write_call(index, CallForm::FUNCTION, &id, name, arguments.unwrap_or_default());
        }
        Ok(())
    }

    fn reasoning(&mut self, index: usize, reasoning: JsonStr<'_>) {
        self.item(index, |writer| {
            writer.key("type").string("reasoning");
            writer.key("summary").array(|_| {});
            writer.key("content").array(|writer| {
                writer.object(|writer| {
                    writer.key("type").string("reasoning_text");
                    writer.key("text").json_str(reasoning);
                });
            });
        });
    }

    fn call(&mut self, index: usize, call: Raw<'_>) -> Result<(), ShapeError> {
        expect_object(call)?;
        let id = required_text(call, "id")?.decode();
        let kind = text(call, "type")?;
        let form = match kind.map(JsonStr::decode).as_deref() {
            None | Some("function") => CallForm::FUNCTION,
            Some("custom") => CallForm::CUSTOM,
            Some(other) => {
                let message = format!("must be `function` or `custom`, but is `{}`", shown(other));
                return Err(ShapeError::value("type", message));
            }
        };
        let fields = required_object(call, form.kind)?;
        let below = |error: ShapeError| error.under(form.kind);
        let name = required_text(fields, "name").map_err(below)?;
        let payload = text(fields, form.payload).map_err(below)?.unwrap_or_default();
        if form == CallForm::CUSTOM {
            self.custom_calls.insert(id.clone().into_owned());
        }
        self.write_call(index, form, &id, name, payload);
        Ok(())
    }

    fn write_call(&mut self, index: usize, form: CallForm, id: &str, name: JsonStr<'_>, payload: JsonStr<'_>) {
        self.item(index, |writer| {
            writer.key("type").string(form.item);
            writer.key("call_id").string(id);
            writer.key("name").json_str(name);
            writer.key(form.payload).json_str(payload);
        });
    }

    fn tool_output(&mut self, index: usize, message: Raw<'_>) -> Result<(), ShapeError> {
        let id = required_text(message, "tool_call_id")?.decode();
        let form = if self.custom_calls.contains(&*id) { CallForm::CUSTOM } else { CallForm::FUNCTION };
        self.output(index, form, &id, message)
    }

    fn function_output(&mut self, index: usize, message: Raw<'_>) -> Result<(), ShapeError> {
        let name = required_text(message, "name")?.decode();
        let id = self.functions.get_mut(&*name).and_then(VecDeque::pop_front);
        let id = id.ok_or_else(|| ShapeError::value("name", "names no function that was called before"))?;
        self.output(index, CallForm::FUNCTION, &id, message)
    }

    fn output(&mut self, index: usize, form: CallForm, id: &str, message: Raw<'_>) -> Result<(), ShapeError> {
        let mut written = Writer::default();
        match present(message, "content") {
            Some(content) => write_content(&mut written, content, ContentSource::Input, self.losses)
                .map_err(|error| error.under("content"))?,
            None => written.string(""),
        }
        self.item(index, |writer| {
            writer.key("type").string(form.output);
            writer.key("call_id").string(id);
            writer.key("output").valid(written.bytes());
        });
        Ok(())
    }
}

/// The names of one kind of call in both APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallForm {
    kind: &'static str,
    payload: &'static str,
    item: &'static str,
    output: &'static str,
}

impl CallForm {
    const FUNCTION: Self =
        Self { kind: "function", payload: "arguments", item: "function_call", output: "function_call_output" };
    const CUSTOM: Self =
        Self { kind: "custom", payload: "input", item: "custom_tool_call", output: "custom_tool_call_output" };
}
