//! A fast path for streams whose events differ only in their text.
//!
//! An event that was parsed in full becomes a template: its bytes without the text, the sequence number and the
//! padding. A later event with the same bytes around its text means the same, so only its text is read. Any other event
//! is parsed in full.

use amalgam_protocol::{Frame, JsonStr, Literal};
use bytes::Bytes;

/// The bytes of an event around its text.
#[derive(Debug)]
pub(crate) struct Template {
    event: Option<Bytes>,
    /// Up to the sequence number, or up to the text.
    head: Bytes,
    /// From the sequence number to the text; `None` for an event without a number.
    counted: Option<Bytes>,
    /// From the text to the end, or to the padding.
    tail: Bytes,
    /// From the padding to the end; `None` for an event without padding.
    padded: Option<Bytes>,
}

const NUMBER: &[u8] = b"\"sequence_number\":";
const PADDING: &[u8] = b"\"obfuscation\":\"";

impl Template {
    /// The template of `frame`, whose data is valid JSON and contains the string `text`.
    pub(crate) fn of(frame: &Frame, text: JsonStr<'_>) -> Option<Self> {
        let escaped = text.escaped();
        let start = escaped.as_ptr().addr().checked_sub(frame.data.as_ptr().addr())?;
        let end = start + escaped.len();
        // A copy, because a slice would keep the whole received buffer alive as long as the template.
        let data = Bytes::copy_from_slice(&frame.data);
        let (before, after) = (data.get(..start)?, data.get(end..)?);
        let (head, counted) = match find(before, NUMBER) {
            Some(number) => {
                let digits = before.get(number..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
                (data.slice(..number), Some(data.slice(number + digits..start)))
            }
            None => (data.slice(..start), None),
        };
        let (tail, padded) = match find(after, PADDING) {
            Some(padding) => {
                let length = after.get(padding..)?.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                (data.slice(end..end + padding), Some(data.slice(end + padding + length..)))
            }
            None => (data.slice(end..), None),
        };
        let event = frame.event.as_deref().map(Bytes::copy_from_slice);
        Some(Self { event, head, counted, tail, padded })
    }

    /// The text of an event that differs from the template only in text, number and padding.
    pub(crate) fn fill(&self, frame: &Frame) -> Option<Literal> {
        if frame.event != self.event {
            return None;
        }
        let mut rest = frame.data.strip_prefix(&*self.head)?;
        if let Some(counted) = &self.counted {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            // A JSON number has at least one digit and no leading zero.
            if digits == 0 || (digits > 1 && rest.first() == Some(&b'0')) {
                return None;
            }
            rest = rest.get(digits..)?.strip_prefix(&**counted)?;
        }
        if let Some(padded) = &self.padded {
            rest = rest.strip_suffix(&**padded)?;
            let padding = rest.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            rest = rest.get(..rest.len() - padding)?;
        }
        let text = rest.strip_suffix(&*self.tail)?;
        Literal::check(frame.data.slice_ref(text))
    }
}

/// The index after the only occurrence of `what`.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let mut found = memchr::memmem::find_iter(text, what);
    let first = found.next()?;
    found.next().is_none().then_some(first + what.len())
}

#[cfg(test)]
mod tests {
    use amalgam_protocol::Raw;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn frame(data: String) -> Frame {
        Frame { event: None, data: data.into() }
    }

    fn template(data: String) -> Template {
        let frame = frame(data);
        let text = Raw::parse(&frame.data).unwrap().get("delta").unwrap().as_str().unwrap();
        Template::of(&frame, text).unwrap()
    }

    /// An event with its fields in the published order.
    fn delta(sequence: u64, text: &str, padding: &str) -> String {
        let text = json!(text);
        format!(
            r#"{{"type":"t","sequence_number":{sequence},"item_id":"m","delta":{text},"logprobs":[],"obfuscation":"{padding}"}}"#
        )
    }

    proptest! {
        #[test]
        fn a_filled_template_gives_what_reading_in_full_gives(
            one in any::<String>(), other in any::<String>(), first in 0..200_u64, second in 0..200_u64, padding in "[a-zA-Z0-9]{0,9}",
        ) {
            let template = template(delta(first, &one, "xyz"));
            let next = frame(delta(second, &other, &padding));
            prop_assert_eq!(template.fill(&next).map(|literal| literal.decode()), Some(other));
        }

        #[test]
        fn bytes_that_are_no_text_are_never_taken_for_one(text in prop::collection::vec(any::<u8>(), 0..12)) {
            let template = template(r#"{"delta":"a"}"#.to_owned());
            let data = [b"{\"delta\":\"", &text[..], b"\"}"].concat();
            let read = Raw::parse(&data).ok().and_then(|raw| Some(raw.get("delta")?.as_str()?.escaped().as_bytes().to_vec()));
            let whole = read.filter(|_| Raw::parse(&data).unwrap().fields().count() == 1);
            let filled = template.fill(&Frame { event: None, data: data.clone().into() });
            prop_assert_eq!(filled.map(|literal| literal.escaped().to_vec()), whole);
        }
    }

    #[test]
    fn an_event_that_differs_elsewhere_is_not_taken() {
        let template = template(delta(1, "a", "x"));
        let good = delta(2, "b", "y");
        assert_eq!(template.fill(&frame(good.clone())).map(|text| text.decode()), Some("b".to_owned()));
        for (what, instead) in [
            ("\"m\"", "\"n\""),
            ("[]", "[1]"),
            (":2,", ":-2,"),
            (":2,", ":02,"),
            ("\"b\"", "null"),
            ("\"b\"", "\"b\",\"c\":1"),
            ("\"y\"", "\"y\",\"c\":1"),
        ] {
            let other = good.replacen(what, instead, 1);
            assert_eq!(template.fill(&frame(other.clone())), None, "{other}");
        }
        let mut named = frame(good);
        named.event = Some(Bytes::from_static(b"other"));
        assert_eq!(template.fill(&named), None);
    }
}
