//! Parses `multipart/form-data` (RFC 7578) from a complete body of bounded size. The content of a part is a slice of
//! the body.

use amalgam_core::{Fault, FaultKind};
use bytes::Bytes;
use http::{HeaderMap, header};
use memchr::memmem;
use percent_encoding::percent_decode_str;

/// The maximum number of parts.
const MAX_PARTS: usize = 16;
/// The maximum size of the headers of one part.
const MAX_HEADER_BYTES: usize = 8 * 1024;
/// The maximum length of a boundary (RFC 2046).
const MAX_BOUNDARY_BYTES: usize = 70;

/// One field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::wires) struct Part {
    /// The field's name.
    pub(in crate::wires) name: String,
    /// The client's name for the file.
    pub(in crate::wires) filename: Option<String>,
    /// The client's content type for the file.
    pub(in crate::wires) content_type: Option<String>,
    pub(in crate::wires) content: Bytes,
}

/// Checks that the headers announce a form; returns its boundary if it is valid.
pub(in crate::wires) fn expect_form(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let unsupported = |message: &'static str| Fault::new(FaultKind::UnsupportedMedia, message);
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(unsupported(
            "Compressed request bodies are not supported. Send the body without a Content-Encoding.",
        ));
    }
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (essence, parameters) = named.split_once(';').unwrap_or((named, ""));
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(unsupported("Unsupported Content-Type. Send the file as multipart/form-data."));
    }
    let boundary = parameter(parameters, "boundary").filter(|boundary| {
        let allowed = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()) && boundary.bytes().all(allowed)
    });
    Ok(boundary)
}

/// The parts of a form, in order.
pub(in crate::wires) fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Part>, Fault> {
    let mut rest = Rest { body, at: 0, line: format!("\r\n--{boundary}") };
    let mut parts = Vec::new();
    let mut more = rest.skip_preamble()?;
    while more {
        if parts.len() == MAX_PARTS {
            return Err(malformed("it has too many parts"));
        }
        let head = Head::read(rest.headers()?)?;
        let (content, has_next) = rest.content()?;
        let Head { name, filename, content_type } = head;
        parts.push(Part { name, filename, content_type, content });
        more = has_next;
    }
    Ok(parts)
}

/// The unread part of a body.
struct Rest<'a> {
    body: &'a Bytes,
    at: usize,
    /// The delimiter between parts.
    line: String,
}

impl Rest<'_> {
    fn unread(&self) -> &[u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    /// Skips to the first part; false if there is none.
    fn skip_preamble(&mut self) -> Result<bool, Fault> {
        // The first boundary may be at the start of the body, without a line break before it.
        let first = self.line.as_bytes().get(2..).unwrap_or_default();
        if self.unread().starts_with(first)
            && let Some((length, has_next)) = line_end(self.unread().get(first.len()..).unwrap_or_default())
        {
            self.at += first.len() + length;
            return Ok(has_next);
        }
        self.content().map(|(_, has_next)| has_next)
    }

    /// The header lines, up to the empty one.
    fn headers(&mut self) -> Result<&str, Fault> {
        let within = self.unread().get(..MAX_HEADER_BYTES).unwrap_or(self.unread());
        let end = memmem::find(within, b"\r\n\r\n").ok_or_else(|| malformed("the headers of a part have no end"))?;
        let range = self.at..self.at + end;
        self.at += end + 4;
        let lines = self.body.get(range).unwrap_or_default();
        std::str::from_utf8(lines).map_err(|_| malformed("the headers of a part are not UTF-8"))
    }

    /// Everything up to the next boundary, and whether a part follows it.
    fn content(&mut self) -> Result<(Bytes, bool), Fault> {
        let unread = self.unread();
        let ended = memmem::find_iter(unread, self.line.as_bytes()).find_map(|at| {
            let after = at + self.line.len();
            // A line that only starts with the boundary belongs to the content.
            let (length, has_next) = line_end(unread.get(after..).unwrap_or_default())?;
            Some((at, after + length, has_next))
        });
        let (at, after, has_next) = ended.ok_or_else(|| malformed("its last boundary is missing"))?;
        let content = self.body.slice(self.at..self.at + at);
        self.at += after;
        Ok((content, has_next))
    }
}

/// The length of the rest of a boundary's line, and whether a part follows; none if it is not a boundary's line.
fn line_end(rest: &[u8]) -> Option<(usize, bool)> {
    if rest.starts_with(b"--") {
        return Some((rest.len(), false));
    }
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let after = rest.get(padding..).unwrap_or_default();
    after.starts_with(b"\r\n").then_some((padding + 2, true))
}

/// The headers of a part.
struct Head {
    name: String,
    filename: Option<String>,
    content_type: Option<String>,
}

impl Head {
    fn read(lines: &str) -> Result<Self, Fault> {
        let (mut disposition, mut content_type) = (None, None);
        for line in lines.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header of a part has no colon"))?;
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "content-disposition" => disposition = Some(value),
                "content-type" => content_type = Some(value.to_owned()),
                "content-transfer-encoding" if !is_plain(value) => {
                    return Err(malformed("the content of a part is encoded; send its bytes as they are"));
                }
                _ => {}
            }
        }
        let disposition = disposition.ok_or_else(|| malformed("a part has no Content-Disposition"))?;
        let (kind, parameters) = disposition.split_once(';').unwrap_or((disposition, ""));
        if !kind.trim().eq_ignore_ascii_case("form-data") {
            return Err(malformed("a part is no form-data"));
        }
        let name = parameter(parameters, "name").ok_or_else(|| malformed("a part has no name"))?;
        let filename = extended(parameters).or_else(|| parameter(parameters, "filename").map(|name| unescaped(&name)));
        Ok(Self { name, filename, content_type })
    }
}

fn is_plain(coding: &str) -> bool {
    ["7bit", "8bit", "binary"].iter().any(|plain| coding.eq_ignore_ascii_case(plain))
}

/// The value of `name` among `; name=value; name="value"`.
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        let (key, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (value, after) = after.split_once(';').unwrap_or((after, ""));
                (value.trim().to_owned(), after)
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
}

/// A text up to its closing quote, and the rest. A backslash escapes a quote or a backslash, as some clients do.
/// Elsewhere it is a normal character, as in Windows paths.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.chars();
    loop {
        match letters.next()? {
            '"' => return Some((value, letters.as_str())),
            '\\' => match letters.as_str().chars().next() {
                Some(escaped @ ('"' | '\\')) => {
                    letters.next();
                    value.push(escaped);
                }
                _ => value.push('\\'),
            },
            letter => value.push(letter),
        }
    }
}

/// Decodes the characters that browsers escape between quotes.
fn unescaped(name: &str) -> String {
    name.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

/// `filename*=UTF-8''n%C3%A4me`
fn extended(parameters: &str) -> Option<String> {
    let value = parameter(parameters, "filename*")?;
    let mut segments = value.splitn(3, '\'');
    let (charset, _language, name) = (segments.next()?, segments.next()?, segments.next()?);
    let decoded = percent_decode_str(name).decode_utf8().ok()?;
    charset.eq_ignore_ascii_case("utf-8").then(|| decoded.into_owned())
}

pub(in crate::wires) fn malformed(why: &str) -> Fault {
    Fault::new(FaultKind::Invalid, format!("We could not read the form of your request: {why}."))
        .code("invalid_multipart")
}

#[cfg(test)]
#[path = "multipart_tests.rs"]
mod tests;
