//! Content parts in the format of Chat Completions.

use std::{borrow::Cow, collections::HashMap};

use amalgam_core::Losses;
use amalgam_protocol::{Content, File, Image, JsonStr, Literal, Part, PartKind, Raw, Writer};

use super::files;

/// Escaped text, without its quotes.
pub(super) type Escaped<'a> = Cow<'a, [u8]>;

/// One part.
#[derive(Debug, Clone)]
pub(super) enum ChatPart<'a> {
    /// `text`
    Text(Escaped<'a>),
    /// `image_url`
    Image { url: Escaped<'a>, detail: Option<&'static str> },
    /// `file`
    File { name: Escaped<'a>, data: Escaped<'a> },
    /// A part that both APIs write in the same way.
    Same(Raw<'a>),
}

/// Escapes a text of the adapter.
pub(super) fn own<'a>(text: &str) -> Escaped<'a> {
    Cow::Owned(Literal::from_text(text).escaped().to_vec())
}

/// The client's text, with its own escapes.
pub(super) fn unchanged(text: JsonStr<'_>) -> Escaped<'_> {
    Cow::Borrowed(text.escaped().as_bytes())
}

/// Writes texts as one string.
pub(super) fn write_joined(writer: &mut Writer, texts: &[Escaped<'_>], separator: &'static [u8]) {
    if let [text] = texts {
        return writer.escaped(&[text]);
    }
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(texts.len() * 2);
    for text in texts {
        if !pieces.is_empty() {
            pieces.push(separator);
        }
        pieces.push(text);
    }
    writer.escaped(&pieces);
}

impl ChatPart<'_> {
    /// Writes the part as an element of a content list.
    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Same(raw) => writer.raw(*raw),
            Self::Text(text) => writer.object(|writer| {
                writer.key("type").string("text");
                writer.key("text").escaped(&[text]);
            }),
            Self::Image { url, detail } => writer.object(|writer| {
                writer.key("type").string("image_url");
                writer.key("image_url").object(|writer| {
                    writer.key("url").escaped(&[url]);
                    if let Some(detail) = detail {
                        writer.key("detail").string(detail);
                    }
                });
            }),
            Self::File { name, data } => writer.object(|writer| {
                writer.key("type").string("file");
                writer.key("file").object(|writer| {
                    writer.key("filename").escaped(&[name]);
                    writer.key("file_data").escaped(&[data]);
                });
            }),
        }
    }
}

/// Converts content into parts.
pub(super) struct PartReader<'a, 'l> {
    /// Fetched images as `data:` URIs, by address.
    pub(super) images: &'a HashMap<String, String>,
    pub(super) losses: &'l mut Losses,
}

impl<'a> PartReader<'a, '_> {
    /// The parts of a content, in order.
    pub(super) fn read(&mut self, content: &Content<'a>) -> Vec<ChatPart<'a>> {
        match content {
            Content::Text(text) => vec![ChatPart::Text(unchanged(*text))],
            Content::Parts(parts) => parts.iter().filter_map(|part| self.part(part)).collect(),
            Content::Value(value) => vec![self.value(*value)],
        }
    }

    /// A value in place of a string, which some clients send.
    fn value(&mut self, value: Raw<'a>) -> ChatPart<'a> {
        let screenshot = value.get_str("type").as_deref() == Some("computer_screenshot");
        match value.get("image_url").and_then(Raw::as_str) {
            Some(url) if screenshot => ChatPart::Image { url: self.fetched(url), detail: None },
            _ if value.is_null() => ChatPart::Text(Cow::Borrowed(b"")),
            _ => ChatPart::Text(own(value.text())),
        }
    }

    fn part(&mut self, part: &Part<'a>) -> Option<ChatPart<'a>> {
        Some(match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => ChatPart::Text(unchanged(*text)),
            PartKind::Image(image) | PartKind::Screenshot(image) => self.image(image, part.raw),
            PartKind::File(file) => self.file(file, part.raw),
            PartKind::Audio => ChatPart::Same(part.raw),
            PartKind::Video => self.as_json_text(part.raw, "input_video"),
            PartKind::Other(kind) => self.as_json_text(part.raw, kind),
            PartKind::Encrypted => {
                self.lose("encrypted_content", "sealed content cannot be read by this upstream and was left out");
                return None;
            }
        })
    }

    fn image(&mut self, image: &Image<'a>, raw: Raw<'a>) -> ChatPart<'a> {
        let Some(url) = image.url else { return self.as_json_text(raw, "input_image") };
        let detail = match image.detail.as_deref() {
            None => None,
            Some("auto") => Some("auto"),
            Some("low") => Some("low"),
            Some("high") => Some("high"),
            Some(_) => {
                self.lose("input_image.detail", "this upstream knows `low`, `high` and `auto`; `high` was sent");
                Some("high")
            }
        };
        ChatPart::Image { url: self.fetched(url.0), detail }
    }

    /// The `data:` URI that was fetched for an address, or the address.
    fn fetched(&self, url: JsonStr<'a>) -> Escaped<'a> {
        match self.images.is_empty() {
            true => unchanged(url),
            false => self.images.get(&*url.decode()).map_or_else(|| unchanged(url), |data| own(data)),
        }
    }

    fn file(&mut self, file: &File<'a>, raw: Raw<'a>) -> ChatPart<'a> {
        let Some(data) = file.data else { return self.as_json_text(raw, "input_file") };
        let name = file.filename.as_deref().unwrap_or("file");
        match files::as_text(name, data) {
            Some(text) => ChatPart::Text(own(&format!("File: {name}\n\n{text}"))),
            None => ChatPart::File { name: own(name), data: files::as_data_uri(name, data) },
        }
    }

    /// Writes a part that the API does not have as JSON text.
    fn as_json_text(&mut self, raw: Raw<'a>, kind: &str) -> ChatPart<'a> {
        self.lose(kind, "this upstream has no such content; it was sent as JSON text");
        ChatPart::Text(own(raw.text()))
    }

    fn lose(&mut self, kind: &str, reason: &'static str) {
        self.losses.add(format!("input.{kind}"), reason);
    }
}
