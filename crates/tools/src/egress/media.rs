//! The media type of fetched content: by its first bytes if they are conclusive, otherwise as the server declared it.

use amalgam_core::{FetchedFile, media};
use bytes::Bytes;
use http::{Response, header};

pub(super) fn fetched(response: Response<Bytes>) -> FetchedFile {
    let (parts, bytes) = response.into_parts();
    let named = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media::media_type(&bytes, named).unwrap_or_else(|| media::UNKNOWN.to_owned());
    FetchedFile { media_type, bytes }
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
            assert_eq!(media_type(b"<html>", header), media::UNKNOWN, "{header:?}");
        }
        assert_eq!(media_type(b"RIFF\x10\0\0\0WAVE", Some("image/webp")), media::UNKNOWN);
        assert_eq!(media_type(b"", None), media::UNKNOWN);
    }
}
