//! The media type of bytes: from their content if that is conclusive, otherwise the declared type.

/// The media type of unknown content.
pub const UNKNOWN: &str = "application/octet-stream";

/// The media type by the first bytes.
pub fn by_bytes(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// The media type of `bytes` that were declared as `named`; none if nothing is known.
pub fn media_type(bytes: &[u8], named: Option<&str>) -> Option<String> {
    match by_bytes(bytes) {
        Some(known) => Some(known.to_owned()),
        // Bytes would have shown a type that is recognisable by bytes, so the declaration is wrong.
        None => named.and_then(essence).filter(|named| !is_told_by_bytes(named)),
    }
}

/// The media type of a file: by its bytes, then by the declared type, then by the name, then by whether it is valid
/// text. Valid text is always text: clients declare TypeScript as video, and tables as files of some program.
pub fn of_file(bytes: &[u8], named: Option<&str>, filename: &str) -> String {
    let reads_as_text = !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
    let fits = |known: &String| match by_bytes(bytes) {
        Some(_) => true,
        None if reads_as_text => is_text(known) || known == "image/svg+xml",
        None => known != UNKNOWN,
    };
    if let Some(known) = media_type(bytes, named).filter(fits) {
        return known;
    }
    let ending = filename.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let known = match (reads_as_text, ending.as_deref().unwrap_or_default()) {
        (true, "json") => "application/json",
        (true, "csv") => "text/csv",
        (true, "md" | "markdown") => "text/markdown",
        (true, "html" | "htm") => "text/html",
        (true, "xml") => "application/xml",
        (true, _) => "text/plain",
        (false, "docx") => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        (false, "xlsx") => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        (false, "pptx") => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        (false, _) => UNKNOWN,
    };
    known.to_owned()
}

/// Whether models accept this image type.
pub fn is_image(media_type: &str) -> bool {
    is_told_by_bytes(media_type) && media_type.starts_with("image/")
}

/// Whether files of this type are text.
pub fn is_text(media_type: &str) -> bool {
    let media_type = media_type.to_ascii_lowercase();
    let Some((family, subtype)) = media_type.split_once('/') else { return false };
    let subtype = subtype.strip_prefix("x-").unwrap_or(subtype);
    family == "text"
        || subtype.ends_with("+json")
        || (subtype.ends_with("+xml") && family != "image")
        || (family == "application"
            && matches!(
                subtype,
                "json"
                    | "jsonl"
                    | "ndjson"
                    | "xml"
                    | "yaml"
                    | "toml"
                    | "csv"
                    | "javascript"
                    | "typescript"
                    | "sh"
                    | "sql"
                    | "markdown"
                    | "python"
                    | "httpd-php"
                    | "tex"
                    | "latex"
            ))
}

fn is_told_by_bytes(named: &str) -> bool {
    matches!(named, "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "application/pdf")
}

/// Type and subtype in lower case, without parameters; none if it is not a media type.
fn essence(named: &str) -> Option<String> {
    let essence = named.split(';').next()?.trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    (token(kind) && token(subtype) && essence.len() <= 127).then_some(essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_bytes_are_then_what_it_is_called() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        assert_eq!(of_file(png, Some("text/html"), "a.html"), "image/png");
        assert_eq!(of_file(b"a,b", Some("Text/CSV; charset=utf-8"), "a.bin"), "text/csv");
        for named in ["video/mp2t", "application/vnd.ms-excel", "application/x-anything"] {
            assert_eq!(of_file(b"let x = 1;", Some(named), "a.ts"), "text/plain", "{named}");
            assert_eq!(of_file(b"\0\xff", Some(named), "a.ts"), named);
        }
        assert_eq!(of_file(b"<svg/>", Some("image/svg+xml"), "a"), "image/svg+xml");
        // A type without information, one that the bytes disprove, and none.
        for named in [Some(UNKNOWN), Some("image/png"), Some("no type"), None] {
            assert_eq!(of_file(b"{}", named, "A.JSON"), "application/json", "{named:?}");
            assert_eq!(of_file("hé".as_bytes(), named, "Makefile"), "text/plain", "{named:?}");
            assert_eq!(of_file(b"a\0b", named, "a.txt"), UNKNOWN, "{named:?}");
            assert_eq!(of_file(b"\xff", named, "a.json"), UNKNOWN, "{named:?}");
        }
        assert!(of_file(b"PK\x03\x04\0\xff", None, "a.docx").contains("wordprocessingml"));
        assert_eq!(of_file(b"", None, "empty"), "text/plain");
    }
}
