//! Content parts as blocks of the Messages API.
//!
//! A part that the API does not support becomes a short text in its place, so that the model knows of it, and a loss.

use std::{borrow::Cow, collections::HashMap};

use amalgam_core::Losses;
use amalgam_protocol::{Content, File, Image, JsonStr, Part, PartKind, Writer};
use base64::{Engine, prelude::BASE64_STANDARD};

use crate::messages_fields;

use super::native::with_fields;

/// Where blocks are written, which determines the kinds that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Text only.
    System,
    /// Text only, as far as this adapter writes it.
    Assistant,
    /// All kinds.
    User,
    /// All kinds.
    ToolResult,
}

/// Writes content as blocks.
pub(super) struct Blocks<'w, 'a> {
    pub(super) writer: &'w mut Writer,
    pub(super) place: Place,
    /// Images that were fetched for this call, by address.
    pub(super) images: &'a HashMap<String, String>,
    pub(super) losses: &'w mut Losses,
    /// Whether parts are written with what only this API has.
    pub(super) native: bool,
}

impl Blocks<'_, '_> {
    /// Writes every part of `content`. The API refuses text without a visible character, so it is omitted.
    pub(super) fn content(&mut self, content: &Content<'_>) {
        match content {
            Content::Text(text) => self.text(*text),
            Content::Value(value) => self.own_text(value.text()),
            Content::Parts(parts) => parts.iter().for_each(|part| self.part(part)),
        }
    }

    /// Writes the client's text, with its own escapes.
    pub(super) fn text(&mut self, text: JsonStr<'_>) {
        if !is_blank(text) {
            text_block(self.writer, |writer| writer.json_str(text));
        }
    }

    /// Writes a text of the adapter.
    pub(super) fn own_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            text_block(self.writer, |writer| writer.string(text));
        }
    }

    fn part(&mut self, part: &Part<'_>) {
        let Some(fields) = messages_fields::of(part.raw).filter(|_| self.native) else {
            return self.plain_part(part);
        };
        if let Some(block) = fields.get("block") {
            return self.writer.raw(block);
        }
        let mut written = Writer::default();
        let Self { place, images, native, .. } = *self;
        Blocks { writer: &mut written, place, images, losses: self.losses, native }.plain_part(part);
        if !written.bytes().is_empty() {
            self.writer.valid(&with_fields(written.bytes(), fields));
        }
    }

    fn plain_part(&mut self, part: &Part<'_>) {
        match &part.kind {
            PartKind::Text { text, .. } | PartKind::Refusal(text) => self.text(*text),
            PartKind::Image(image) | PartKind::Screenshot(image) => self.image(image),
            PartKind::File(file) => self.file(file),
            PartKind::Audio => self.missing("audio", "the upstream takes no audio"),
            PartKind::Video => self.missing("video", "the upstream takes no video"),
            // Only the server that sealed it can read it.
            PartKind::Encrypted => self.losses.add("input.encrypted_content", "not readable here"),
            PartKind::Other(kind) if part.raw.get("encrypted_content").is_some() => {
                self.losses.add(format!("input.{kind}"), "not readable here");
            }
            PartKind::Other(kind) => {
                self.losses.add(format!("input.{kind}"), "sent as its JSON text");
                self.own_text(part.raw.text());
            }
        }
    }

    fn image(&mut self, image: &Image<'_>) {
        if !self.place.takes_media() {
            return self.missing("image", "the upstream takes images from the user and from tools only");
        }
        let Some(url) = &image.url else {
            return self.missing("image", "files by id are not reachable for the upstream");
        };
        if image.detail.as_deref() == Some("low") {
            self.losses.add("input.image.detail", "the upstream looks at images in full");
        }
        self.image_at(url.0);
    }

    /// Writes an image by its address.
    pub(super) fn image_at(&mut self, url: JsonStr<'_>) {
        let url = url.decode();
        let url = self.images.get(&*url).map_or(&*url, String::as_str);
        match DataUri::split(url) {
            Some(DataUri { media_type, base64: Some(data) }) => self.image_bytes(media_type, data),
            Some(_) => self.missing("image", "only base64 data is carried over"),
            None => self.source_block("image", None, |writer| url_source(writer, url)),
        }
    }

    fn image_bytes(&mut self, media_type: &str, data: &str) {
        let media_type = if media_type == "image/jpg" { "image/jpeg" } else { media_type };
        self.source_block("image", None, |writer| base64_source(writer, media_type, data));
    }

    fn file(&mut self, file: &File<'_>) {
        if !self.place.takes_media() {
            return self.missing("file", "the upstream takes files from the user and from tools only");
        }
        let title = file.filename.as_deref();
        match (&file.data, &file.url) {
            (Some(data), _) => self.file_bytes(&data.decode(), title),
            (None, Some(url)) => {
                let url = url.decode();
                let kind = if media_type_of(&url).is_some_and(|kind| kind.starts_with("image/")) {
                    "image"
                } else {
                    "document"
                };
                self.source_block(kind, title.filter(|_| kind == "document"), |writer| url_source(writer, &url));
            }
            (None, None) => self.missing("file", "files by id are not reachable for the upstream"),
        }
    }

    fn file_bytes(&mut self, data: &str, title: Option<&str>) {
        let uri = DataUri::split(data);
        let data = match &uri {
            Some(DataUri { base64: Some(data), .. }) => *data,
            Some(_) => return self.missing("file", "only base64 data is carried over"),
            None => data,
        };
        let declared =
            uri.map(|uri| uri.media_type).filter(|kind| !kind.is_empty() && *kind != "application/octet-stream");
        let kind = declared.or_else(|| title.and_then(media_type_of));
        // Base64 of `%PDF-`: some clients send neither type nor name.
        if kind == Some("application/pdf") || data.starts_with("JVBERi0") {
            return self.source_block("document", title, |writer| base64_source(writer, "application/pdf", data));
        }
        if let Some(kind) = kind.filter(|kind| kind.starts_with("image/")) {
            return self.image_bytes(kind, data);
        }
        let bytes = BASE64_STANDARD.decode(data.trim()).unwrap_or_default();
        match String::from_utf8(bytes) {
            Ok(text) if !text.trim().is_empty() && !text.contains('\0') => {
                self.source_block("document", title, |writer| {
                    writer.key("type").string("text");
                    writer.key("media_type").string("text/plain");
                    writer.key("data").string(&text);
                });
            }
            _ => self.missing("file", "only PDF, images and text are carried over"),
        }
    }

    fn source_block(&mut self, kind: &str, title: Option<&str>, source: impl FnOnce(&mut Writer)) {
        self.writer.object(|writer| {
            writer.key("type").string(kind);
            writer.key("source").object(source);
            if let Some(title) = title.filter(|title| !title.trim().is_empty()) {
                writer.key("title").string(title);
            }
        });
    }

    fn missing(&mut self, what: &str, reason: &'static str) {
        self.losses.add(format!("input.{what}"), reason);
        self.own_text(&format!("[{what} not available]"));
    }
}

impl Place {
    fn takes_media(self) -> bool {
        matches!(self, Self::User | Self::ToolResult)
    }
}

/// Writes a text block around the string that `text` writes.
pub(super) fn text_block(writer: &mut Writer, text: impl FnOnce(&mut Writer)) {
    writer.object(|writer| {
        writer.key("type").string("text");
        text(writer.key("text"));
    });
}

fn url_source(writer: &mut Writer, url: &str) {
    writer.key("type").string("url");
    writer.key("url").string(url);
}

fn base64_source(writer: &mut Writer, media_type: &str, data: &str) {
    writer.key("type").string("base64");
    writer.key("media_type").string(media_type);
    writer.key("data").string(data);
}

/// Whether a text has no visible character, without decoding a long text.
pub(super) fn is_blank(text: JsonStr<'_>) -> bool {
    let mut rest = text.escaped();
    loop {
        rest = rest.trim_start();
        let shorter = ["\\n", "\\r", "\\t"].iter().find_map(|escape| rest.strip_prefix(escape));
        match shorter {
            Some(shorter) => rest = shorter,
            None => return rest.is_empty(),
        }
    }
}

/// `data:MEDIA;base64,DATA`
struct DataUri<'a> {
    media_type: &'a str,
    /// `None` if the data is not base64.
    base64: Option<&'a str>,
}

impl<'a> DataUri<'a> {
    fn split(url: &'a str) -> Option<Self> {
        let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
        let media_type = head.split(';').next().unwrap_or_default().trim();
        let base64 = head.split(';').skip(1).any(|word| word.trim().eq_ignore_ascii_case("base64"));
        Some(Self { media_type, base64: base64.then_some(data) })
    }
}

/// The media type by the ending of a name or an address, for the types that the API treats specially.
fn media_type_of(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit_once('.')?;
    let ending: Cow<'_, str> = ending.to_ascii_lowercase().into();
    Some(match &*ending {
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    })
}
