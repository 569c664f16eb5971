//! Templates of URLs and JSON bodies, filled with arguments.

use std::{borrow::Cow, fmt};

use amalgam_protocol::{Json, Raw, Shape, Writer};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::argument;
use crate::egress::check_url;

/// Percent-encodes everything except letters, digits and characters without a meaning in URLs.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A URL with placeholders in its path and query.
pub(super) struct UrlTemplate {
    text: String,
    /// Scheme, host and port, without placeholders.
    origin: String,
    path: Vec<Piece>,
    query: Vec<Vec<Piece>>,
}

enum Piece {
    Text(String),
    Place(String),
}

impl UrlTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("it has to begin with https://")?;
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if scheme.contains(['{', '}']) || authority.contains(['{', '}']) {
            return Err("arguments may fill the path and the query, not the host".to_owned());
        }
        if after.contains('#') {
            return Err("it has a fragment, which is never sent".to_owned());
        }
        let (path, query) = after.split_once('?').map_or((after, None), |(path, query)| (path, Some(query)));
        let template = Self {
            text: text.to_owned(),
            origin: format!("{scheme}://{authority}"),
            path: pieces(path)?,
            query: query.into_iter().flat_map(|query| query.split('&')).map(pieces).collect::<Result<_, _>>()?,
        };
        // With a harmless value in every placeholder it must be a valid URL.
        let sample = template.assemble(|_| Ok(Some(Cow::Borrowed("x"))))?;
        check_url(&sample)?;
        Ok(template)
    }

    /// The URL for these arguments.
    pub(super) fn fill(&self, arguments: Raw<'_>) -> Result<String, String> {
        self.assemble(|name| Ok(argument(arguments, name).map(plain)))
    }

    fn assemble<'a>(&self, value: impl Fn(&str) -> Result<Option<Cow<'a, str>>, String>) -> Result<String, String> {
        let mut url = self.origin.clone();
        for piece in &self.path {
            match piece {
                Piece::Text(text) => url.push_str(text),
                Piece::Place(name) => {
                    let value = value(name)?.ok_or_else(|| format!("the argument `{name}` is missing"))?;
                    if value.is_empty() || is_dot_segment(&value) {
                        return Err(format!("the argument `{name}` cannot be part of a path"));
                    }
                    url.extend(utf8_percent_encode(&value, ENCODED));
                }
            }
        }
        let mut separator = '?';
        for part in &self.query {
            let Some(part) = query_part(part, &value)? else { continue };
            url.push(separator);
            url.push_str(&part);
            separator = '&';
        }
        // Two harmless pieces together may form `..`.
        let path = url.get(self.origin.len()..).unwrap_or_default().split('?').next().unwrap_or_default();
        match is_dot_segment(path) {
            true => Err("the arguments lead out of the path".to_owned()),
            false => Ok(url),
        }
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// One `name=value`; `None` if one of its arguments is absent.
fn query_part<'a>(
    pieces: &[Piece],
    value: &impl Fn(&str) -> Result<Option<Cow<'a, str>>, String>,
) -> Result<Option<String>, String> {
    let mut part = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => part.push_str(text),
            Piece::Place(name) => match value(name)? {
                Some(value) => part.extend(utf8_percent_encode(&value, ENCODED)),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(part))
}

/// Whether a server would resolve the segment as `.` or `..`.
fn is_dot_segment(text: &str) -> bool {
    text.split(['/', '\\']).any(|segment| segment == "." || segment == "..")
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("a `{` has no `}`")?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(format!("`{{{}}}` names no argument", crate::text::printable(name, 100)));
        }
        pieces.push(literal(before)?);
        pieces.push(Piece::Place(name.to_owned()));
        rest = after;
    }
    pieces.push(literal(rest)?);
    Ok(pieces)
}

fn literal(text: &str) -> Result<Piece, String> {
    match text.contains('}') {
        true => Err("a `}` has no `{`".to_owned()),
        false => Ok(Piece::Text(text.to_owned())),
    }
}

/// A value in a URL: the characters of a string, the JSON of anything else.
fn plain(value: Raw<'_>) -> Cow<'_, str> {
    match value.as_str() {
        Some(text) => text.decode(),
        None => Cow::Borrowed(value.text()),
    }
}

/// A body with placeholders.
pub(super) struct BodyTemplate(Json);

impl BodyTemplate {
    pub(super) fn new(template: Json) -> Self {
        Self(template)
    }

    /// The body for these arguments. A field whose argument is absent is omitted.
    pub(super) fn fill(&self, arguments: Raw<'_>) -> Bytes {
        let template = self.0.raw();
        if template.as_str().is_some_and(|text| text.is("arguments")) {
            return Bytes::copy_from_slice(arguments.text().as_bytes());
        }
        let mut writer = Writer::default();
        match filled(template, arguments) {
            TemplateValue::Absent => writer.null(),
            TemplateValue::Value(value) => fill(&mut writer, value, arguments),
            TemplateValue::Argument(value) => writer.raw(value),
        }
        writer.into_bytes().into()
    }
}

enum TemplateValue<'a> {
    /// A value of the template.
    Value(Raw<'a>),
    Argument(Raw<'a>),
    Absent,
}

fn filled<'a>(value: Raw<'a>, arguments: Raw<'a>) -> TemplateValue<'a> {
    let Some(text) = value.as_str() else { return TemplateValue::Value(value) };
    let text = text.decode();
    match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        None => TemplateValue::Value(value),
        Some(name) => argument(arguments, name).map_or(TemplateValue::Absent, TemplateValue::Argument),
    }
}

fn fill(writer: &mut Writer, value: Raw<'_>, arguments: Raw<'_>) {
    match value.shape() {
        Shape::Object => writer.object(|writer| {
            for (key, value) in value.fields() {
                match filled(value, arguments) {
                    TemplateValue::Absent => {}
                    TemplateValue::Argument(value) => writer.key_text(&key.decode()).raw(value),
                    TemplateValue::Value(value) => fill(writer.key_text(&key.decode()), value, arguments),
                }
            }
        }),
        Shape::Array => writer.array(|writer| {
            for value in value.elements() {
                match filled(value, arguments) {
                    // The other elements keep their positions.
                    TemplateValue::Absent => writer.null(),
                    TemplateValue::Argument(value) => writer.raw(value),
                    TemplateValue::Value(value) => fill(writer, value, arguments),
                }
            }
        }),
        _ => writer.raw(value),
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
