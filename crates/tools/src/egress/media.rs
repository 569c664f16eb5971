//! What kind of thing was fetched: by its own first bytes where they tell, else by the server's word.

use amalgam_core::Fetched;
use bytes::Bytes;
use http::{HeaderMap, Response, header};

const UNKNOWN: &str = "application/octet-stream";

pub(super) fn fetched(response: Response<Bytes>) -> Fetched {
    let (parts, bytes) = response.into_parts();
    let media_type = match by_bytes(&bytes) {
        Some(known) => known.to_owned(),
        // A kind that its bytes would have told was not told, so the word is wrong.
        None => {
            by_header(&parts.headers).filter(|named| !is_told_by_bytes(named)).unwrap_or_else(|| UNKNOWN.to_owned())
        }
    };
    Fetched { media_type, bytes }
}

fn by_bytes(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

fn is_told_by_bytes(named: &str) -> bool {
    matches!(named, "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "application/pdf")
}

/// Type and subtype in lower case, without parameters, if it is one at all.
fn by_header(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next()?.trim().to_ascii_lowercase();
    let (kind, subtype) = essence.split_once('/')?;
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    (token(kind) && token(subtype) && essence.len() <= 127).then_some(essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media_type(bytes: &'static [u8], content_type: Option<&'static str>) -> String {
        let mut response = Response::new(Bytes::from_static(bytes));
        if let Some(value) = content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, value.parse().unwrap());
        }
        fetched(response).media_type
    }

    #[test]
    fn bytes_win_over_the_header() {
        let cases: [(&[u8], &str); 6] = [
            (b"\x89PNG\r\n\x1a\nrest", "image/png"),
            (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
            (b"GIF87arest", "image/gif"),
            (b"GIF89arest", "image/gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            (b"%PDF-1.7", "application/pdf"),
        ];
        for (bytes, expected) in cases {
            for header in [None, Some("text/html"), Some("image/gif")] {
                assert_eq!(media_type(bytes, header), expected);
            }
        }
    }

    #[test]
    fn the_header_counts_where_bytes_cannot_tell() {
        assert_eq!(media_type(b"<svg>", Some("Image/SVG+xml; charset=utf-8")), "image/svg+xml");
        assert_eq!(media_type(b"a,b", Some("text/csv")), "text/csv");
    }

    #[test]
    fn a_header_that_the_bytes_disprove_or_that_is_none_counts_for_nothing() {
        for header in [
            Some("image/png"),
            Some("application/pdf"),
            Some("image/jpg"),
            Some("nonsense"),
            Some("a/b c"),
            Some("/"),
            None,
        ] {
            assert_eq!(media_type(b"<html>", header), UNKNOWN, "{header:?}");
        }
        assert_eq!(media_type(b"RIFF\x10\0\0\0WAVE", Some("image/webp")), UNKNOWN);
        assert_eq!(media_type(b"", None), UNKNOWN);
    }
}
