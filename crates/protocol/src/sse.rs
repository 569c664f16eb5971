//! Server-sent events: a reader for bytes in any pieces, and a writer of frames.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

use crate::json::{Literal, Writer};

/// The last frame of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

const EVENT: &[u8] = b"event: ";
const DATA: &[u8] = b"data: ";

/// A received event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The `event:` line, if there was one.
    pub event: Option<Bytes>,
    /// The `data:` lines, joined by line feeds.
    pub data: Bytes,
}

/// A line exceeded the reader's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event stream has a line of more than {limit} bytes")]
pub struct Overlong {
    /// The maximum length of a line.
    pub limit: usize,
}

/// Splits a byte stream into frames. Data that arrives in one piece is not copied.
#[derive(Debug)]
pub struct Reader {
    /// The received bytes.
    chunk: Bytes,
    /// How many of them were read.
    at: usize,
    /// The beginning of an incomplete line.
    partial_line: BytesMut,
    /// Whether the last line ended in CR: a following LF belongs to it.
    after_cr: bool,
    started: bool,
    event: Option<Bytes>,
    data: Option<Data>,
    limit: usize,
}

#[derive(Debug)]
enum Data {
    One(Bytes),
    Many(BytesMut),
}

impl Reader {
    /// A reader for lines, and joined data, of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            at: 0,
            partial_line: BytesMut::new(),
            after_cr: false,
            started: false,
            event: None,
            data: None,
            limit,
        }
    }

    /// Adds the next piece. Call [`Reader::frame`] until it returns `None` before the next push.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the last piece is used up before the next one comes");
        self.chunk = chunk;
    }

    /// The next complete frame, if there is one.
    pub fn frame(&mut self) -> Result<Option<Frame>, Overlong> {
        if let Some(frame) = self.fast_frame() {
            return Ok(Some(frame));
        }
        // Lines are read in place: a `Bytes` slice for each would cost reference counting.
        let chunk = std::mem::take(&mut self.chunk);
        let found = self.frame_in(&chunk);
        match self.at < chunk.len() {
            true => self.chunk = chunk,
            false => self.at = 0,
        }
        found
    }

    /// A frame of the usual form, if it is complete: one `data:` line, alone or after its `event:` line. Found without
    /// scanning each line.
    fn fast_frame(&mut self) -> Option<Frame> {
        let between = self.started && !self.after_cr && self.partial_line.is_empty();
        if !between || self.event.is_some() || self.data.is_some() {
            return None;
        }
        let rest = self.chunk.get(self.at..)?;
        let event = match rest.starts_with(EVENT) {
            true => Some(EVENT.len()..memchr2(b'\n', b'\r', rest)?),
            false => None,
        };
        let named = event.as_ref().map_or(0, |event| event.end + 1);
        if named > self.limit || (named > 0 && rest.get(named - 1) != Some(&b'\n')) {
            return None;
        }
        let data = rest.get(named..)?.strip_prefix(DATA)?;
        let length = memchr2(b'\n', b'\r', data)?;
        if data.get(length..length + 2)? != b"\n\n" || DATA.len() + length > self.limit {
            return None;
        }
        let start = self.at + named + DATA.len();
        let frame = Frame {
            event: event.map(|event| self.chunk.slice(self.at + event.start..self.at + event.end)),
            data: self.chunk.slice(start..start + length),
        };
        self.at = start + length + 2;
        if self.at == self.chunk.len() {
            (self.chunk, self.at) = (Bytes::new(), 0);
        }
        Some(frame)
    }

    /// Handles the end of the stream: returns a frame without a final blank line. Call until it returns `None`.
    pub fn end(&mut self) -> Option<Frame> {
        if !self.partial_line.is_empty() {
            let line = self.partial_line.split().freeze();
            if let Ok(Some(frame)) = self.take_line(&line, 0..line.len()) {
                return Some(frame);
            }
        }
        self.flush()
    }

    fn frame_in(&mut self, chunk: &Bytes) -> Result<Option<Frame>, Overlong> {
        while let Some(rest) = chunk.get(self.at..).filter(|rest| !rest.is_empty()) {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                self.at += 1;
                continue;
            }
            let found = memchr2(b'\n', b'\r', rest);
            if self.partial_line.len() + found.unwrap_or(rest.len()) > self.limit {
                return Err(Overlong { limit: self.limit });
            }
            let Some(length) = found else {
                self.partial_line.extend_from_slice(rest);
                self.at = chunk.len();
                break;
            };
            let line = self.at..self.at + length;
            self.at = line.end + 1;
            self.after_cr = chunk.get(line.end) == Some(&b'\r');
            let frame = if self.partial_line.is_empty() {
                self.take_line(chunk, line)?
            } else {
                self.partial_line.extend_from_slice(chunk.get(line).unwrap_or_default());
                let line = self.partial_line.split().freeze();
                self.take_line(&line, 0..line.len())?
            };
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    /// Reads the line at `place` in `text`.
    fn take_line(&mut self, text: &Bytes, mut place: Range<usize>) -> Result<Option<Frame>, Overlong> {
        let mut line = text.get(place.clone()).unwrap_or_default();
        if !std::mem::replace(&mut self.started, true)
            && let Some(marked) = line.strip_prefix(b"\xef\xbb\xbf")
        {
            place.start += 3;
            line = marked;
        }
        if line.is_empty() {
            return Ok(self.flush());
        }
        let (name, value) = match memchr::memchr(b':', line) {
            // A comment.
            Some(0) => return Ok(None),
            Some(colon) => {
                let (name, value) = line.split_at(colon);
                let space = usize::from(value.get(1) == Some(&b' '));
                (name, place.start + colon + 1 + space..place.end)
            }
            None => (line, place.end..place.end),
        };
        match name {
            // Some servers omit the blank line: the next `event:` line ends the event before it.
            b"event" => {
                let finished = self.data.is_some().then(|| self.flush()).flatten();
                self.event = Some(text.slice(value));
                return Ok(finished);
            }
            b"data" => {
                let joined = match self.data.take() {
                    None => Data::One(text.slice(value)),
                    Some(data) => {
                        let mut joined = match data {
                            Data::One(first) => BytesMut::from(&first[..]),
                            Data::Many(joined) => joined,
                        };
                        if joined.len() + value.len() > self.limit {
                            return Err(Overlong { limit: self.limit });
                        }
                        joined.extend_from_slice(b"\n");
                        joined.extend_from_slice(text.get(value).unwrap_or_default());
                        Data::Many(joined)
                    }
                };
                self.data = Some(joined);
            }
            _ => {}
        }
        Ok(None)
    }

    fn flush(&mut self) -> Option<Frame> {
        let event = self.event.take();
        let data = match self.data.take()? {
            Data::One(data) => data,
            Data::Many(data) => data.freeze(),
        };
        Some(Frame { event, data })
    }
}

impl Writer {
    /// Writes the most frequent frame: `response.output_text.delta`. `located` is the encoded text between the sequence
    /// number and the delta, `logprobs` an array; both must be valid.
    pub fn text_delta(&mut self, sequence: u64, located: &[u8], delta: &Literal, logprobs: Option<&[u8]>) {
        self.reserve(located.len() + delta.escaped().len() + logprobs.map_or(0, <[u8]>::len) + 144);
        self.outside(
            b"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":",
        );
        self.digits(sequence);
        self.outside(located);
        self.outside(delta.escaped());
        let Some(logprobs) = logprobs else { return self.outside(b"\",\"logprobs\":[]}\n\n") };
        self.outside(b"\",\"logprobs\":");
        let start = self.bytes().len();
        self.outside(logprobs);
        self.keep_to_one_line(start);
        self.outside(b"}\n\n");
    }

    /// Writes one frame whose data is the JSON object that `fill` writes. `event` is one of our constants.
    pub fn frame(&mut self, event: &str, fill: impl FnOnce(&mut Self)) {
        self.outside(b"event: ");
        self.outside(event.as_bytes());
        self.outside(b"\ndata: ");
        let start = self.bytes().len();
        self.object(|writer| {
            writer.outside(b"\"type\":\"");
            writer.outside(event.as_bytes());
            writer.outside(b"\"");
            fill(writer);
        });
        // JSON of callers or upstreams may have newlines, which would end the data line.
        self.keep_to_one_line(start);
        self.outside(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let mut reader = Reader::new(1 << 20);
        let mut frames = Vec::new();
        for piece in pieces {
            reader.push(Bytes::copy_from_slice(piece));
            while let Some(frame) = reader.frame().unwrap() {
                frames.push(frame);
            }
        }
        while let Some(frame) = reader.end() {
            frames.push(frame);
        }
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        frames.iter().map(|frame| (frame.event.as_ref().map(text), text(&frame.data))).collect()
    }

    fn frames() -> impl Strategy<Value = Vec<(Option<String>, String)>> {
        let event = prop::option::of("[a-z_.]{1,12}");
        let data = prop::collection::vec("[^\r\n]{0,12}", 1..3).prop_map(|lines| lines.join("\n"));
        prop::collection::vec((event, data), 0..6)
    }

    fn written(frames: &[(Option<String>, String)], ending: &str, comments: bool) -> String {
        let mut text = String::new();
        for (event, data) in frames {
            if comments {
                text += &format!(": keep alive{ending}id: 7{ending}");
            }
            if let Some(event) = event {
                text += &format!("event: {event}{ending}");
            }
            for line in data.split('\n') {
                text += &format!("data: {line}{ending}");
            }
            text += ending;
        }
        text
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_frames(
            frames in frames(),
            ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            comments in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = written(&frames, ending, comments).into_bytes();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), frames.clone());
            let single: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(read(&single), frames);
        }
    }

    #[test]
    fn values_of_several_lines_stay_in_one_frame() {
        let spread = crate::Raw::parse(b"{\n  \"a\": [1,\r\n 2], \"b\": \"x\\ny\"\n}").unwrap();
        let mut writer = Writer::default();
        writer.frame("a", |writer| writer.key("value").raw(spread));
        writer.text_delta(1, b",\"at\":0,\"delta\":\"", &Literal::from_text("b"), Some(b"[\n{}\n]"));
        let frames = read(&[writer.bytes()]);
        let data: Vec<_> = frames.iter().map(|(_, data)| &**data).collect();
        let expected = [
            r#"{"type":"a","value":{   "a": [1,   2], "b": "x\ny" }}"#,
            r#"{"type":"response.output_text.delta","sequence_number":1,"at":0,"delta":"b","logprobs":[ {} ]}"#,
        ];
        assert_eq!(data, expected);
    }

    #[test]
    fn a_missing_final_newline_loses_nothing() {
        // O-17
        let expected = vec![(Some("a".to_owned()), "1".to_owned()), (None, "2".to_owned())];
        assert_eq!(read(&[b"event: a\ndata: 1\n\ndata: 2"]), expected);
        assert_eq!(read(&[b"event: a\ndata: 1\n\ndata: 2\n"]), expected);
    }

    #[test]
    fn an_event_line_ends_the_event_before_it() {
        // O-17
        let frames = read(&[b"event: a\ndata: 1\nevent: b\ndata: 2\n\n"]);
        assert_eq!(frames, vec![(Some("a".into()), "1".into()), (Some("b".into()), "2".into())]);
    }

    #[test]
    fn a_byte_order_mark_is_passed_by() {
        assert_eq!(read(&[b"\xef\xbb\xbfdata: 1\n\n"]), vec![(None, "1".into())]);
    }

    #[test]
    fn a_line_without_end_is_refused_at_the_limit() {
        let mut reader = Reader::new(10);
        reader.push(Bytes::from_static(b"data: 1234567890"));
        assert_eq!(reader.frame(), Err(Overlong { limit: 10 }));

        // Also after frames that take the fast path, in a name as in data.
        for long in [&b"data: 12345\n\n"[..], b"event: 1234\ndata: 1\n\n"] {
            let mut reader = Reader::new(10);
            reader.push(Bytes::from([b"data: 1\n\nevent: a\ndata: 2\n\n", long].concat()));
            let event = Some(Bytes::from_static(b"a"));
            assert_eq!(reader.frame(), Ok(Some(Frame { event: None, data: Bytes::from_static(b"1") })));
            assert_eq!(reader.frame(), Ok(Some(Frame { event, data: Bytes::from_static(b"2") })));
            assert_eq!(reader.frame(), Err(Overlong { limit: 10 }));
        }
    }

    #[test]
    fn data_in_one_piece_is_not_copied() {
        let piece = Bytes::from_static(b"data: {\"a\":1}\n\n");
        let mut reader = Reader::new(100);
        reader.push(piece.clone());
        let frame = reader.frame().unwrap().unwrap();
        assert_eq!(frame.data.as_ptr(), piece[6..].as_ptr());
    }
}
