//! Parses the head of an answer: status, headers, and how the body is framed.
//!
//! Strict where a head could be read in two ways, because the connection is reused for the next answer.

use std::{mem::MaybeUninit, ops::Range};

use amalgam_core::ModelError;

use super::framing::{Chunked, Framing};

/// The largest head of an answer.
pub(super) const HEAD_BYTES: usize = 64 * 1024;
/// The maximum number of headers.
const FIELDS: usize = 100;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    text: Vec<u8>,
    /// The positions of names and values in the text.
    fields: Vec<(Range<usize>, Range<usize>)>,
}

/// What a head says about the framing of its body and its connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) framing: Framing,
    /// Whether the upstream accepts another request on the same connection.
    pub(super) reusable: bool,
}

/// The result of parsing a head.
#[derive(Debug)]
pub(super) enum ParsedHead {
    /// The head is not complete.
    Partial,
    /// A head of this many bytes.
    Whole(Head, Terms, usize),
    /// An interim answer (1xx) of this many bytes; the final one follows.
    Interim(usize),
}

/// Parses a head at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<ParsedHead, ModelError> {
    let mut room = [const { MaybeUninit::uninit() }; FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut room);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(ParsedHead::Partial),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(too_large());
        }
        Err(error) => return Err(unreadable(error)),
    };
    let status = response.code.unwrap_or_default();
    match status {
        101 => return Err(unreadable("it changes the protocol")),
        100..=199 => return Ok(ParsedHead::Interim(length)),
        200..=999 => {}
        _ => return Err(unreadable("it has no status")),
    }
    let text = bytes.get(..length).unwrap_or_default().to_vec();
    let place = |part: &[u8]| {
        let start = part.as_ptr().addr() - bytes.as_ptr().addr();
        start..start + part.len()
    };
    let fields = response.headers.iter().map(|field| (place(field.name.as_bytes()), place(field.value))).collect();
    let head = Head { status, text, fields };
    let terms = head.terms(response.version == Some(1))?;
    Ok(ParsedHead::Whole(head, terms, length))
}

impl Head {
    /// The first header of this name, if it is text.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next().and_then(|value| std::str::from_utf8(value).ok())
    }

    fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let part = |place: &Range<usize>| self.text.get(place.clone()).unwrap_or_default();
        let named = move |place: &Range<usize>| part(place).eq_ignore_ascii_case(name.as_bytes());
        self.fields.iter().filter(move |(at, _)| named(at)).map(move |(_, value)| part(value))
    }

    /// The members of a list header, which may occur several times.
    fn members<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all(name).flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    }

    fn terms(&self, newer: bool) -> Result<Terms, ModelError> {
        let says = |option: &str| self.members("connection").any(|one| one.eq_ignore_ascii_case(option.as_bytes()));
        let mut reusable = if newer { !says("close") } else { says("keep-alive") && !says("close") };
        let length = self.length()?;
        let mut codings = self.members("transfer-encoding").peekable();
        let framing = if matches!(self.status, 204 | 304) {
            Framing::Length(0)
        } else if codings.peek().is_some() {
            if !newer || !codings.all(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
                return Err(unreadable("its transfer coding is not known"));
            }
            // Both headers are present: a proxy on the path may have used the length, so later bytes on this connection
            // cannot be trusted.
            reusable &= length.is_none();
            Framing::Chunked(Chunked::default())
        } else if let Some(length) = length {
            Framing::Length(length)
        } else {
            reusable = false;
            Framing::UntilClose
        };
        Ok(Terms { framing, reusable })
    }

    /// The `content-length`; several must be equal.
    fn length(&self) -> Result<Option<u64>, ModelError> {
        let mut length = None;
        for stated in self.members("content-length") {
            let digits = std::str::from_utf8(stated).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let number: u64 =
                digits.and_then(|text| text.parse().ok()).ok_or_else(|| unreadable("its length is not a number"))?;
            if *length.get_or_insert(number) != number {
                return Err(unreadable("it states two lengths"));
            }
        }
        Ok(length)
    }
}

pub(super) fn too_large() -> ModelError {
    ModelError::TooLarge(format!("a head of more than {HEAD_BYTES} bytes or {FIELDS} fields"))
}

fn unreadable(why: impl std::fmt::Display) -> ModelError {
    ModelError::Unreadable(format!("a head that is not HTTP/1.1: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(head: &str) -> Result<Terms, ModelError> {
        match parse(head.as_bytes())? {
            ParsedHead::Whole(_, terms, length) if length == head.len() => Ok(terms),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_are_found_whatever_their_case() {
        let text = "HTTP/1.1 200 OK\r\nContent-Type: text/plain \r\nX-Odd: \u{ff}\r\ncontent-length: 2\r\n\r\nok";
        let Ok(ParsedHead::Whole(head, terms, length)) = parse(text.as_bytes()) else { panic!("not a head") };
        assert_eq!(
            (head.status, head.get("content-type"), head.get("CONTENT-LENGTH")),
            (200, Some("text/plain"), Some("2"))
        );
        assert_eq!((head.get("absent"), length), (None, text.len() - 2));
        assert_eq!(terms, Terms { framing: Framing::Length(2), reusable: true });
    }

    #[test]
    fn a_head_says_how_its_body_ends_and_whether_the_connection_stays() {
        let chunked = || Framing::Chunked(Chunked::default());
        for (head, framing, reusable) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", chunked(), true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", chunked(), false),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
            ("HTTP/1.1 204 No Content\r\n\r\n", Framing::Length(0), true),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Framing::Length(0), true),
        ] {
            assert_eq!(terms(head).unwrap(), Terms { framing, reusable }, "{head}");
        }
    }

    #[test]
    fn a_head_with_two_readings_is_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 007 Odd\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 200 OK\r\nfolded: a\r\n b\r\n\r\n",
            "<html>\r\n\r\n",
        ] {
            assert!(matches!(parse(head.as_bytes()), Err(ModelError::Unreadable(_))), "{head}");
        }
    }

    #[test]
    fn every_beginning_of_a_head_waits_for_more() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        for end in 0..head.len() {
            assert!(matches!(parse(&head.as_bytes()[..end]), Ok(ParsedHead::Partial)), "{end}");
        }
        assert!(matches!(parse(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP"), Ok(ParsedHead::Interim(28))));
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "a".repeat(HEAD_BYTES));
        assert!(matches!(parse(long.as_bytes()), Err(ModelError::TooLarge(_))));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1));
        assert!(matches!(parse(many.as_bytes()), Err(ModelError::TooLarge(_))));
    }
}
