//! Uploaded files in a history: finds their ids, and replaces them by their content.
//!
//! Stored items name a file by its id. The model gets the content instead, as if the caller had sent it: adapters need
//! not know about uploads.

use std::{borrow::Cow, collections::HashMap};

use amalgam_protocol::{Content, Item, ItemKind, Json, Part, PartKind, Raw, Writer};

use super::{Entry, History};
use crate::{fault::Fault, loss::Loss, media};

/// The prefix of the ids of uploaded files; other ids are an upstream's.
const PREFIX: &str = "file_AM-";

/// The fields of a part that locate its content.
const LOCATION_FIELDS: [&str; 6] = ["type", "file_id", "image_url", "file_url", "file_data", "filename"];

/// An uploaded file as content for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The owner's name for the file.
    pub filename: String,
    /// The media type.
    pub media_type: String,
    /// Its content as a `data:` URI.
    pub data_uri: String,
}

/// The uploaded file that a part names.
pub fn named_by<'p>(part: &'p Part<'_>) -> Option<&'p str> {
    let id = match &part.kind {
        PartKind::Image(image) => &image.file_id,
        PartKind::File(file) => &file.file_id,
        _ => return None,
    };
    id.as_deref().filter(|id| id.starts_with(PREFIX))
}

/// The uploaded files that a history names, with duplicates.
pub fn named<'h>(history: &'h History<'_>) -> impl Iterator<Item = &'h str> {
    let entries = history.instructions.iter().chain(&history.entries);
    entries.filter_map(parts).flat_map(|(_, parts)| parts.iter().filter_map(named_by))
}

/// The items of a history that name uploaded files, with their content.
#[derive(Debug)]
pub struct ExpandedItems {
    /// One for each instruction and each entry, in order; none if it is unchanged.
    items: Vec<Option<Json>>,
    /// The files that do not exist any more.
    losses: Vec<Loss>,
}

impl ExpandedItems {
    /// Inserts `uploads` into `history`. A file that is not among them was deleted; the model reads that.
    pub fn new(history: &History<'_>, uploads: &HashMap<String, Upload>) -> Self {
        let mut losses = Vec::new();
        let entries = history.instructions.iter().chain(&history.entries);
        let items = entries.map(|entry| expand(entry, uploads, &mut losses)).collect();
        Self { items, losses }
    }

    /// The original history with the content of the files.
    pub fn history<'a>(&'a self, history: &History<'a>) -> Result<History<'a>, Fault> {
        let mut items = self.items.iter();
        let mut put = |entries: &[Entry<'a>]| -> Result<Vec<Entry<'a>>, Fault> {
            entries.iter().zip(items.by_ref()).map(|(entry, item)| replaced(entry, item.as_ref())).collect()
        };
        let instructions = put(&history.instructions)?;
        let entries = put(&history.entries)?;
        let losses = history.losses.iter().chain(&self.losses).cloned().collect();
        Ok(History { instructions, entries, losses })
    }
}

/// The field of an entry that has parts, and the parts.
fn parts<'h, 'a>(entry: &'h Entry<'a>) -> Option<(&'static str, &'h [Part<'a>])> {
    match entry {
        Entry::Message { content: Content::Parts(parts), .. } => Some(("content", parts)),
        Entry::Output(output) if !output.hosted => match &output.content {
            Content::Parts(parts) => Some(("output", parts)),
            Content::Text(_) | Content::Value(_) => None,
        },
        _ => None,
    }
}

fn expand(entry: &Entry<'_>, uploads: &HashMap<String, Upload>, losses: &mut Vec<Loss>) -> Option<Json> {
    let (field, parts) = parts(entry)?;
    if !parts.iter().any(|part| named_by(part).is_some()) {
        return None;
    }
    let mut writer = Writer::default();
    writer.object(|writer| {
        let item = match entry {
            Entry::Message { item, .. } => *item,
            Entry::Output(output) => Some(output.item),
            _ => None,
        };
        match (item, entry) {
            (Some(item), _) => {
                for (key, value) in item.fields().filter(|(key, _)| !key.is(field)) {
                    writer.key_text(&key.decode()).raw(value);
                }
            }
            (None, Entry::Message { role, .. }) => {
                writer.key("type").string("message");
                writer.key("role").string(role.name());
            }
            (None, _) => {}
        }
        writer.key(field).array(|writer| {
            for part in parts {
                match named_by(part) {
                    None => writer.raw(part.raw),
                    Some(id) => write_upload(writer, part, id, uploads.get(id), losses),
                }
            }
        });
    });
    Some(Json::from_writer(writer))
}

fn write_upload(writer: &mut Writer, part: &Part<'_>, id: &str, upload: Option<&Upload>, losses: &mut Vec<Loss>) {
    let Some(upload) = upload else {
        let kind = part.raw.get_str("type").unwrap_or(Cow::Borrowed("input_file"));
        let loss = Loss::new(format!("input.{kind}"), "an uploaded file is not there any more; the model is told so");
        if !losses.contains(&loss) {
            losses.push(loss);
        }
        return writer.object(|writer| {
            writer.key("type").string("input_text");
            writer.key("text").string(&format!("[The file {id} is no longer available.]"));
        });
    };
    let sent_filename = match &part.kind {
        PartKind::File(file) => file.filename.as_deref(),
        _ => None,
    };
    // A data URI has no characters to escape.
    let data: &[&[u8]] = &[upload.data_uri.as_bytes()];
    writer.object(|writer| {
        // An image is sent as an image, whichever kind of part named it.
        match media::is_image(&upload.media_type) {
            true => {
                writer.key("type").string("input_image");
                writer.key("image_url").escaped(data);
            }
            false => {
                writer.key("type").string("input_file");
                writer.key("filename").string(sent_filename.unwrap_or(&upload.filename));
                writer.key("file_data").escaped(data);
            }
        }
        for (key, value) in part.raw.fields() {
            let key = key.decode();
            if !LOCATION_FIELDS.contains(&&*key) {
                writer.key_text(&key).raw(value);
            }
        }
    });
}

fn replaced<'a>(entry: &Entry<'a>, item: Option<&'a Json>) -> Result<Entry<'a>, Fault> {
    let Some(raw) = item.map(Json::raw) else { return Ok(entry.clone()) };
    let content = content(raw)?;
    Ok(match entry {
        Entry::Message { role, .. } => Entry::Message { role: *role, content, item: Some(raw) },
        Entry::Output(output) => Entry::Output(super::Output { item: raw, content, ..output.clone() }),
        other => other.clone(),
    })
}

fn content(raw: Raw<'_>) -> Result<Content<'_>, Fault> {
    match Item::read(raw).map(|item| item.kind) {
        Ok(ItemKind::Message(message) | ItemKind::AgentMessage(message)) => Ok(message.content),
        Ok(ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output)) => Ok(output.output),
        _ => Err(Fault::internal("an item with its files cannot be read")),
    }
}

#[cfg(test)]
#[path = "uploads_tests.rs"]
mod tests;
