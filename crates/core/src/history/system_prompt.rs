//! The system prompt of a turn that the server composes: one message with the parts of AGN-003 in order.

use amalgam_protocol::{Content, Input, Item, ItemKind, Json, Role, Writer};

use super::{Entry, History};

/// A prompt that the server composed, or the server's part of one.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemPrompt {
    /// A system message of text parts.
    message: Json,
    /// Whether the parts include the request's instructions; otherwise these precede the message unchanged.
    whole: bool,
}

/// The author of the instructions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionsOf {
    /// A wire of this server: they are text parts of one system message.
    Server,
    /// The caller: items are passed on unchanged.
    Caller,
}

impl SystemPrompt {
    /// Composes the parts in order: the instructions, and then the guidance for the offered tools. None if the
    /// instructions can be sent unchanged.
    pub fn compose(instructions: Option<&Input<'_>>, of: InstructionsOf, guidance: Option<&str>) -> Option<Self> {
        let parts: Option<Vec<String>> = match (instructions, of) {
            (None, _) => Some(Vec::new()),
            (Some(Input::Text(text)), _) => Some(vec![text.decode().into_owned()]),
            (Some(Input::Items(items)), InstructionsOf::Server) => items
                .iter()
                .map(|item| match &item.kind {
                    ItemKind::Message(message) if message.role == Role::System => texts(&message.content),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(|messages| messages.concat()),
            (Some(Input::Items(_)), InstructionsOf::Caller) => None,
        };
        let whole = parts.is_some();
        let parsed = matches!(instructions, Some(Input::Items(_)));
        let parts: Vec<String> = parts.into_iter().flatten().chain(guidance.map(str::to_owned)).collect();
        let composed = guidance.is_some() || (whole && parsed);
        (composed && !parts.is_empty()).then(|| Self { message: message_of(&parts), whole })
    }

    /// Inserts the prompt at the start of a history.
    pub fn apply<'a>(&'a self, history: &mut History<'a>) {
        if self.whole {
            history.instructions.clear();
        }
        if let Ok(Item { kind: ItemKind::Message(message), .. }) = Item::read(self.message.raw()) {
            history.instructions.push(Entry::Message { role: Role::System, content: message.content, item: None });
        }
    }
}

fn texts(content: &Content<'_>) -> Option<Vec<String>> {
    match content {
        Content::Text(text) => Some(vec![text.decode().into_owned()]),
        Content::Parts(parts) => parts.iter().map(|part| Some(part.text()?.decode().into_owned())).collect(),
        Content::Value(_) => None,
    }
}

fn message_of(parts: &[String]) -> Json {
    let mut writer = Writer::with_capacity(parts.iter().map(|part| part.len() + 64).sum::<usize>() + 64);
    writer.object(|writer| {
        writer.key("type").string("message");
        writer.key("role").string(Role::System.name());
        writer.key("content").array(|writer| {
            for part in parts {
                writer.object(|writer| {
                    writer.key("type").string("input_text");
                    writer.key("text").string(part);
                });
            }
        });
    });
    Json::from_writer(writer)
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::ResponseParameters;
    use serde_json::{Value, json};

    use super::*;
    use crate::history::normalise;

    /// The texts of each instruction of a request after the prompt is applied, and whether it is the request's own
    /// item.
    fn instruction_texts(request: &Value, of: InstructionsOf, guidance: Option<&str>) -> Vec<(Vec<String>, bool)> {
        let text = request.to_string();
        let parameters = text.parse::<ResponseParameters>().unwrap();
        let request = parameters.view().unwrap();
        let mut history = normalise(request.instructions.as_ref(), None);
        let prompt = SystemPrompt::compose(request.instructions.as_ref(), of, guidance);
        if let Some(prompt) = &prompt {
            prompt.apply(&mut history);
        }
        let entries = history.instructions.iter().map(|entry| match entry {
            Entry::Message { content, item, .. } => (texts(content).unwrap(), item.is_some()),
            _ => (Vec::new(), true),
        });
        entries.collect()
    }

    fn one(texts: &[&str]) -> Vec<(Vec<String>, bool)> {
        vec![(texts.iter().map(|text| (*text).to_owned()).collect(), false)]
    }

    // right C1, right C8
    #[test]
    fn the_parts_of_a_prompt_stand_in_one_message_and_guidance_is_the_last() {
        let (server, caller) = (InstructionsOf::Server, InstructionsOf::Caller);
        let part = |text: &str| json!({"type": "input_text", "text": text});
        let ours = json!({"instructions": [{"type": "message", "role": "system", "content": [part("a"), part("b")]}]});
        assert_eq!(instruction_texts(&ours, server, Some("g")), one(&["a", "b", "g"]));
        assert_eq!(instruction_texts(&ours, server, None), one(&["a", "b"]));
        assert_eq!(instruction_texts(&json!({"instructions": "a"}), caller, Some("g")), one(&["a", "g"]));
        assert_eq!(instruction_texts(&json!({"instructions": "a"}), caller, None), one(&["a"]));
        assert_eq!(instruction_texts(&json!({}), caller, Some("g")), one(&["g"]));
        assert_eq!(instruction_texts(&json!({}), server, None), []);
        // Items of the caller are unchanged, and guidance follows them.
        let mut expected = vec![(vec!["a".to_owned(), "b".to_owned()], true)];
        assert_eq!(instruction_texts(&ours, caller, None), expected);
        expected.extend(one(&["g"]));
        assert_eq!(instruction_texts(&ours, caller, Some("g")), expected);
    }
}
