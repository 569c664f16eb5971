//! Writes an entry of the history as an input item, with the caller's bytes wherever nothing must change.

use std::collections::HashMap;

use amalgam_core::{Call, CallKind, Entry, Loss, Output, Seal};
use amalgam_protocol::{Content, Image, Item, ItemKind, Part, PartKind, Raw, Reasoning, Role, Shape, TextKind, Writer};

use crate::{
    messages_fields,
    reasoning_seal::{FOREIGN_REASONING, Owner, reasoning_summary},
};

/// The loss for reasoning of which only a summary is known.
const UNREADABLE: &str = "reasoning without encrypted_content cannot be sent back; its summary is sent as text";

/// What writing items needs, and the losses.
pub(super) struct Context<'a> {
    /// The configured name of the upstream.
    pub(super) upstream: &'a str,
    /// The model's name at the upstream.
    pub(super) model: &'a str,
    pub(super) seal: &'a dyn Seal,
    pub(super) seal_context: &'a str,
    /// Fetched images as `data:` URIs, by address.
    pub(super) images: &'a HashMap<String, String>,
    pub(super) losses: Vec<Loss>,
}

impl Context<'_> {
    fn lose(&mut self, field: &'static str, reason: &'static str) {
        let loss = Loss::new(field, reason);
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }
}

pub(super) fn write(writer: &mut Writer, entry: &Entry<'_>, context: &mut Context<'_>) {
    // What only the Messages API has is refused by other upstreams.
    if let Some(stripped) = messages_fields::stripped(entry)
        && let Ok(item) = Item::read(stripped.raw())
        && let Some(entry) = messages_fields::with_item(entry, &item)
    {
        return write_entry(writer, &entry, context);
    }
    write_entry(writer, entry, context);
}

fn write_entry(writer: &mut Writer, entry: &Entry<'_>, context: &mut Context<'_>) {
    match entry {
        Entry::Message { role, content, item } => write_message(writer, *role, content, *item, context),
        Entry::Note(text) | Entry::Summary(text) => write_text_message(writer, Role::User, text),
        Entry::Call(call) if call.hosted => write_hosted_call(writer, call),
        Entry::Call(call) => write_named(writer, call.item, call.renamed.then_some(&*call.call_id)),
        Entry::Output(output) if output.hosted => write_hosted_output(writer, output),
        Entry::Output(output) => write_output(writer, output, context),
        Entry::Reasoning(item) => write_reasoning(writer, item, context),
        Entry::Opaque(item) if messages_fields::is_block(item) => {
            context.lose("messages", "a block of a tool that another upstream has run is left out");
        }
        Entry::Opaque(item) => match sealed_by_us(item, context) {
            false => writer.raw(item.raw),
            true => context.lose("input.compaction", "a sealed summary is for our own eyes"),
        },
    }
}

/// An upstream cannot read content that this server sealed.
fn sealed_by_us(item: &Item<'_>, context: &Context<'_>) -> bool {
    let content = item.raw.get("encrypted_content").and_then(Raw::as_str);
    content.is_some_and(|content| context.seal.is_sealed(&content.decode()))
}

/// A server-run call is a function call for the upstream, because it was offered as a function.
fn write_hosted_call(writer: &mut Writer, call: &Call<'_>) {
    writer.object(|writer| {
        writer.key("type").string("function_call");
        writer.key("call_id").string(&call.call_id);
        writer.key("name").string(&call.name);
        writer.key("arguments").literal(&call.wire_arguments());
    });
}

fn write_hosted_output(writer: &mut Writer, output: &Output<'_>) {
    writer.object(|writer| {
        writer.key("type").string("function_call_output");
        writer.key("call_id").string(&output.call_id);
        writer.key("output").string(&output.content.text());
    });
}

/// The output of a function or custom tool must be a text or a list of parts; some clients send other JSON, or nothing.
fn write_output(writer: &mut Writer, output: &Output<'_>, context: &Context<'_>) {
    let renamed = output.renamed.then_some(&*output.call_id);
    let is_plain = matches!(output.kind, CallKind::Function | CallKind::Custom);
    let is_value = is_plain && matches!(output.content, Content::Value(_));
    let is_missing = is_plain && output.item.get("output").is_none();
    let screenshot = output.screenshot().and_then(|url| context.images.get(&*url.decode()));
    let must_change = screenshot.is_some() || must_change_content(Role::User, &output.content, context);
    if !(is_value || is_missing || must_change) {
        return write_named(writer, output.item, renamed);
    }
    writer.object(|writer| {
        for (key, value) in output.item.fields() {
            let key = key.decode();
            let writer = writer.key_text(&key);
            match (&*key, &output.content) {
                ("output", Content::Value(value)) if is_plain && value.is_null() => writer.string(""),
                ("output", Content::Value(value)) if is_plain => writer.string(value.text()),
                ("output", Content::Value(value)) if let Some(data) = screenshot => {
                    write_screenshot(writer, *value, data)
                }
                ("output", content) => write_content(writer, Role::User, content, context),
                (key, _) => write_call_id(writer, output.item, key, value, renamed),
            }
        }
        if is_missing {
            writer.key("output").string("");
        }
    });
}

/// Writes an item whose call id may have been replaced.
fn write_named(writer: &mut Writer, item: Raw<'_>, renamed: Option<&str>) {
    match renamed {
        None => writer.raw(item),
        Some(_) => {
            write_fields(writer, item, |writer, key, value| write_call_id(writer, item, key, value, renamed));
        }
    }
}

fn write_call_id(writer: &mut Writer, item: Raw<'_>, key: &str, value: Raw<'_>, renamed: Option<&str>) {
    // The output of a local shell call refers to its call by `id`.
    let names_the_call = key == "call_id" || (key == "id" && item.get("call_id").is_none());
    match renamed {
        Some(call_id) if names_the_call => writer.string(call_id),
        _ => writer.raw(value),
    }
}

/// Writes an object with the same keys; `write` writes each value.
fn write_fields(writer: &mut Writer, object: Raw<'_>, mut write: impl FnMut(&mut Writer, &str, Raw<'_>)) {
    writer.object(|writer| {
        for (key, value) in object.fields() {
            let key = key.decode();
            write(writer.key_text(&key), &key, value);
        }
    });
}

fn write_message(writer: &mut Writer, role: Role, content: &Content<'_>, item: Option<Raw<'_>>, context: &Context<'_>) {
    let Some(item) = item else {
        return writer.object(|writer| {
            writer.key("type").string("message");
            writer.key("role").string(role.name());
            write_content(writer.key("content"), role, content, context);
        });
    };
    let typed = item.get("type").is_some_and(|kind| kind.shape() == Shape::String);
    let same_content = !must_change_content(role, content, context);
    let known_role = item.get("role").and_then(Raw::as_str).is_some_and(|role| Role::NAMES.contains(&role.escaped()));
    if typed && same_content && known_role {
        return writer.raw(item);
    }
    writer.object(|writer| {
        // Some upstreams refuse a message without `type`.
        if !typed {
            writer.key("type").string("message");
        }
        for (key, value) in item.fields() {
            match &*key.decode() {
                "type" if !typed => {}
                // RAM-13: an upstream refuses an unknown role.
                "role" if !known_role => writer.key("role").string(role.name()),
                "content" if !same_content => write_content(writer.key("content"), role, content, context),
                key => writer.key_text(key).raw(value),
            }
        }
    });
}

pub(super) fn write_text_message(writer: &mut Writer, role: Role, text: &str) {
    writer.object(|writer| {
        writer.key("type").string("message");
        writer.key("role").string(role.name());
        writer.key("content").array(|writer| {
            writer.object(|writer| {
                writer.key("type").string(if role == Role::Assistant { "output_text" } else { "input_text" });
                writer.key("text").string(text);
                if role == Role::Assistant {
                    writer.key("annotations").array(|_| {});
                }
            });
        });
    });
}

fn must_change_content(role: Role, content: &Content<'_>, context: &Context<'_>) -> bool {
    match content {
        Content::Text(_) | Content::Value(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| must_change(role, part, context)),
    }
}

fn must_change(role: Role, part: &Part<'_>, context: &Context<'_>) -> bool {
    match &part.kind {
        _ if has_null_text(part) => true,
        PartKind::Text { kind: TextKind::Plain, .. } => true,
        PartKind::Text { kind: TextKind::Input, .. } => role == Role::Assistant,
        PartKind::Text { kind: TextKind::Output, .. } => role != Role::Assistant,
        PartKind::Image(image) => is_chat_image(part) || fetched(image, context).is_some(),
        _ => false,
    }
}

/// RAM-19: a text may be null here, and nowhere else.
fn has_null_text(part: &Part<'_>) -> bool {
    let is_null = |name: &str| part.raw.get(name).is_some_and(Raw::is_null);
    part.text().is_some_and(|text| text.is_empty()) && (is_null("text") || is_null("refusal"))
}

fn write_content(writer: &mut Writer, role: Role, content: &Content<'_>, context: &Context<'_>) {
    match content {
        Content::Text(text) => writer.json_str(*text),
        Content::Value(value) => writer.raw(*value),
        Content::Parts(parts) => {
            writer.array(|writer| parts.iter().for_each(|part| write_part(writer, role, part, context)));
        }
    }
}

fn write_part(writer: &mut Writer, role: Role, part: &Part<'_>, context: &Context<'_>) {
    if !must_change(role, part, context) {
        return writer.raw(part.raw);
    }
    match &part.kind {
        PartKind::Image(image) => write_image(writer, part.raw, image, context),
        _ => {
            let output = role == Role::Assistant;
            // Refusals and reasoning have types of their own.
            let is_said =
                matches!(part.kind, PartKind::Text { kind: TextKind::Plain | TextKind::Input | TextKind::Output, .. });
            writer.object(|writer| {
                if is_said {
                    writer.key("type").string(if output { "output_text" } else { "input_text" });
                }
                for (key, value) in part.raw.fields() {
                    match key.escaped() {
                        "type" if is_said => {}
                        // Only text of the model has these fields.
                        "annotations" | "logprobs" if !output => {}
                        "text" | "refusal" if value.is_null() => writer.key_text(&key.decode()).string(""),
                        _ => writer.key_text(&key.decode()).raw(value),
                    }
                }
                if output && is_said && part.raw.get("annotations").is_none() {
                    writer.key("annotations").array(|_| {});
                }
            });
        }
    }
}

/// `{"type": "image_url"}` is the format of Chat Completions.
fn is_chat_image(part: &Part<'_>) -> bool {
    part.raw.get("image_url").is_some_and(|url| url.shape() == Shape::Object)
        || part.raw.get("type").and_then(Raw::as_str).is_some_and(|kind| kind.is("image_url"))
}

fn fetched<'c>(image: &Image<'_>, context: &Context<'c>) -> Option<&'c str> {
    context.images.get(&*image.url?.0.decode()).map(String::as_str)
}

/// Writes a screenshot whose image was fetched.
fn write_screenshot(writer: &mut Writer, screenshot: Raw<'_>, data: &str) {
    writer.object(|writer| {
        for (key, value) in screenshot.fields() {
            let writer = writer.key_text(&key.decode());
            match key.is("image_url") {
                true => writer.string(data),
                false => writer.raw(value),
            }
        }
    });
}

fn write_image(writer: &mut Writer, part: Raw<'_>, image: &Image<'_>, context: &Context<'_>) {
    // Chat Completions has it one level deeper.
    let nested = part.get("image_url").and_then(|url| url.get_str("detail"));
    writer.object(|writer| {
        writer.key("type").string("input_image");
        match (fetched(image, context), image.url) {
            (Some(data), _) => writer.key("image_url").string(data),
            (None, Some(url)) => writer.key("image_url").json_str(url.0),
            (None, None) => {}
        }
        if let Some(file_id) = &image.file_id {
            writer.key("file_id").string(file_id);
        }
        writer.key("detail").string(image.detail.as_deref().or(nested.as_deref()).unwrap_or("auto"));
    });
}

/// Reasoning is sent back only to the upstream that produced it, and only if it can read it: other upstreams refuse the
/// item. They receive its summary as text.
fn write_reasoning(writer: &mut Writer, item: &Item<'_>, context: &mut Context<'_>) {
    let ItemKind::Reasoning(reasoning) = &item.kind else { return writer.raw(item.raw) };
    let Some(sealed) = reasoning.encrypted_content.map(|sealed| sealed.decode()).filter(|sealed| !sealed.is_empty())
    else {
        // Open models return their reasoning in plain text, and accept it in plain text.
        if !reasoning.content.0.is_empty() {
            return writer.raw(item.raw);
        }
        context.lose("input.reasoning", UNREADABLE);
        return write_summary(writer, reasoning);
    };
    if !context.seal.is_sealed(&sealed) {
        return writer.raw(item.raw);
    }
    let Context { upstream, model, seal_context, seal, .. } = *context;
    let owner = Owner { upstream, model, context: seal_context, seal };
    let Some(original) = owner.open(&sealed) else {
        context.lose("input.reasoning", FOREIGN_REASONING);
        return write_summary(writer, reasoning);
    };
    let own = Raw::parse(&original).unwrap_or(Raw::NULL);
    let is_readable = own.get("encrypted_content").is_some()
        || own.get("content").is_some_and(|content| content.elements().next().is_some());
    if !is_readable {
        context.lose("input.reasoning", UNREADABLE);
        return write_summary(writer, reasoning);
    }
    writer.object(|writer| {
        writer.key("type").string("reasoning");
        for (key, value) in own.fields().filter(|(key, _)| !key.is("upstream") && !key.is("model")) {
            writer.key_text(&key.decode()).raw(value);
        }
        for (key, value) in item.raw.fields() {
            let ours = matches!(key.escaped(), "type" | "id" | "encrypted_content");
            if !ours && own.get(&key.decode()).is_none() {
                writer.key_text(&key.decode()).raw(value);
            }
        }
        if item.raw.get("summary").is_none() && own.get("summary").is_none() {
            writer.key("summary").array(|_| {});
        }
    });
}

fn write_summary(writer: &mut Writer, reasoning: &Reasoning<'_>) {
    if let Some(summary) = reasoning_summary(reasoning) {
        write_text_message(writer, Role::Assistant, &summary);
    }
}
