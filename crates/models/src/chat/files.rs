//! Files inside a request: as text if they are text, otherwise as a data URI.

use std::borrow::Cow;

use amalgam_core::media;
use amalgam_protocol::JsonStr;
use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::parts::{Escaped, own, unchanged};

/// Base64 with or without padding: clients write both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// File name endings of text, for files without a media type.
const TEXT_ENDINGS: &[&str] = &[
    "bash", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "diff", "env", "go", "h", "hpp", "html", "htm", "ini",
    "java", "js", "json", "jsonl", "jsx", "kt", "log", "lua", "md", "markdown", "patch", "php", "pl", "ps1", "py", "r",
    "rb", "rs", "rst", "scala", "sh", "sql", "srt", "svg", "swift", "tex", "toml", "ts", "tsv", "tsx", "txt", "vtt",
    "xml", "yaml", "yml",
];

/// The content of a text file, recognised by its media type or name, and by its bytes.
pub(super) fn as_text(name: &str, data: JsonStr<'_>) -> Option<String> {
    let data = data.decode();
    let (media_type, base64) = split(&data);
    let is_text = match media_type {
        Some(media_type) if media_type != "application/octet-stream" => media::is_text(media_type),
        _ => TEXT_ENDINGS.contains(&ending(name).as_str()),
    };
    let bytes = is_text.then(|| BASE64.decode(base64?.trim_ascii()).ok())??;
    String::from_utf8(bytes).ok()
}

/// The file as a data URI.
pub(super) fn as_data_uri<'a>(name: &str, data: JsonStr<'a>) -> Escaped<'a> {
    if data.escaped().starts_with("data:") {
        return unchanged(data);
    }
    let data = data.decode();
    let media_type = match ending(name).as_str() {
        "pdf" => "application/pdf",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        // The first bytes of every PDF, `%PDF-`.
        _ if data.starts_with("JVBERi0") => "application/pdf",
        _ => "application/octet-stream",
    };
    own(&format!("data:{media_type};base64,{data}"))
}

/// Media type and base64 of a data URI. Bare base64 has no type; a data URI with another encoding has no base64.
fn split(data: &str) -> (Option<&str>, Option<&str>) {
    let Some(uri) = data.strip_prefix("data:") else { return (None, Some(data)) };
    let Some((head, body)) = uri.split_once(',') else { return (None, None) };
    let media_type = head.split(';').next().filter(|media_type| !media_type.is_empty());
    (media_type, head.ends_with(";base64").then_some(body))
}

fn ending(name: &str) -> String {
    name.rsplit_once('.').map_or(Cow::Borrowed(""), |(_, ending)| Cow::Owned(ending.to_ascii_lowercase())).into_owned()
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::Raw;

    use super::*;

    fn text(name: &str, data: &str) -> Option<String> {
        let quoted = format!("\"{data}\"");
        as_text(name, Raw::parse(quoted.as_bytes()).unwrap().as_str().unwrap())
    }

    #[test]
    fn text_is_known_by_media_type_then_by_name_and_must_be_utf8() {
        let hello = Some("hé\n".to_owned());
        assert_eq!(text("a.bin", "data:text/plain;charset=utf-8;base64,aMOpCg=="), hello);
        assert_eq!(text("a", "data:application/ld+json;base64,aMOpCg"), hello);
        assert_eq!(text("a.RS", "aMOpCg=="), hello);
        assert_eq!(text("a.csv", "data:application/octet-stream;base64,aMOpCg=="), hello);
        assert_eq!(text("a.pdf", "aMOpCg=="), None);
        assert_eq!(text("a.txt", "data:application/pdf;base64,aMOpCg=="), None, "the media type wins");
        assert_eq!(text("a.txt", "/////w=="), None, "not UTF-8");
        assert_eq!(text("a.txt", "data:text/plain,plain"), None, "not base64");
        assert_eq!(text("a.txt", "*"), None);
    }
}
