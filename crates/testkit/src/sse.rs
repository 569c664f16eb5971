//! A strict reader for this server's event streams, independent of the server's own.
//!
//! A browser tolerates deviations; this reader does not. It requires lines that end in LF, at most one `event:` line
//! followed by exactly one `data:` line, an empty line after every frame, and neither ids nor comments.

use serde_json::Value;

/// One frame of an event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// The value of the `event:` line.
    pub event: Option<String>,
    /// The value of the `data:` line.
    pub data: String,
}

impl SseEvent {
    /// Whether this is the closing `[DONE]`.
    pub fn is_done(&self) -> bool {
        self.data == "[DONE]"
    }

    /// The data as JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.data) {
            Ok(value) => value,
            Err(error) => panic!("the data of an event is not JSON: {error}: {:?}", self.data),
        }
    }
}

/// All frames of a stream that has ended.
pub fn events(bytes: &[u8]) -> Vec<SseEvent> {
    match try_events(bytes) {
        Ok(events) => events,
        Err(problem) => panic!("{problem}"),
    }
}

/// All frames of a stream that has ended, or its first error.
pub fn try_events(bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
    let mut reader = Reader::default();
    let events = reader.push(bytes)?;
    reader.finish()?;
    Ok(events)
}

/// The JSON of all frames; the last frame must be `[DONE]` and every event name must equal the `type` inside.
pub fn json_events(bytes: &[u8]) -> Vec<Value> {
    let mut events = events(bytes);
    match events.pop() {
        Some(last) if last.is_done() => {}
        last => panic!("the stream does not end in [DONE] but in {last:?}"),
    }
    let checked = events.iter().map(|event| {
        let value = event.json();
        assert_eq!(event.event.as_deref(), value["type"].as_str(), "the event name is not the type: {}", event.data);
        value
    });
    checked.collect()
}

/// Returns an error unless every write contains only whole frames.
pub fn check_writes(writes: &[impl AsRef<[u8]>]) -> Result<(), String> {
    for (index, write) in writes.iter().enumerate() {
        try_events(write.as_ref()).map_err(|problem| format!("write {index}: {problem}"))?;
    }
    Ok(())
}

/// Reads a stream as it arrives.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    rest: Vec<u8>,
}

impl Reader {
    /// The frames that these bytes complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|window| window == b"\n\n") {
            let frame: Vec<u8> = self.rest.drain(..end + 2).collect();
            let frame = std::str::from_utf8(&frame).map_err(|_| format!("a frame is not UTF-8: {frame:?}"))?;
            events.push(parse(frame)?);
        }
        Ok(events)
    }

    /// Returns an error if a frame was begun and not ended.
    pub(crate) fn finish(&self) -> Result<(), String> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(format!("the stream ends inside a frame: {:?}", String::from_utf8_lossy(&self.rest))),
        }
    }
}

fn parse(frame: &str) -> Result<SseEvent, String> {
    let problem = |what: &str| Err(format!("{what}: {frame:?}"));
    if frame.contains('\r') {
        return problem("a frame has a carriage return");
    }
    let mut event = None;
    let mut data = None;
    for line in frame.lines().filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("event", _)) if event.is_some() => return problem("a frame has two event lines"),
            Some(("event", _)) if data.is_some() => return problem("the event line comes after the data line"),
            Some(("event", name)) => event = Some(name.to_owned()),
            Some(("data", _)) if data.is_some() => return problem("a frame has two data lines"),
            Some(("data", text)) => data = Some(text.to_owned()),
            _ => return problem("a line is neither `event: …` nor `data: …`"),
        }
    }
    match data {
        Some(data) => Ok(SseEvent { event, data }),
        None => problem("a frame has no data line"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(bytes: &[u8]) -> String {
        try_events(bytes).expect_err("the stream is malformed")
    }

    #[test]
    fn frames_with_and_without_an_event_name_are_read() {
        let events = events(b"event: a\ndata: {\"type\":\"a\"}\n\ndata: [DONE]\n\n");
        assert_eq!(
            events,
            [
                SseEvent { event: Some("a".to_owned()), data: "{\"type\":\"a\"}".to_owned() },
                SseEvent { event: None, data: "[DONE]".to_owned() },
            ]
        );
    }

    #[test]
    fn a_reader_gives_the_same_frames_for_any_chunking() {
        let stream = "event: ü\ndata: {\"type\":\"ü\"}\n\ndata: [DONE]\n\n".as_bytes();
        for size in 1..stream.len() {
            let mut reader = Reader::default();
            let pieces = stream.chunks(size).flat_map(|piece| reader.push(piece).expect("the stream is well formed"));
            let collected: Vec<SseEvent> = pieces.collect();
            assert_eq!(collected, events(stream), "pieces of {size} bytes");
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn every_deviation_from_the_promised_frame_is_named() {
        let cases: [(&[u8], &str); 10] = [
            (b"data: 1\r\n\r\n", "ends inside a frame"),
            (b"event: a\r\ndata: 1\n\n", "carriage return"),
            (b"data: 1\n", "ends inside a frame"),
            (b"data: 1\ndata: 2\n\n", "two data lines"),
            (b"event: a\nevent: b\ndata: 1\n\n", "two event lines"),
            (b"data: 1\nevent: a\n\n", "after the data line"),
            (b"id: 7\ndata: 1\n\n", "neither"),
            (b": ping\n\n", "neither"),
            (b"event: a\n\n", "no data line"),
            (b"data: \xff\n\n", "not UTF-8"),
        ];
        for (stream, expected) in cases {
            let problem = problem(stream);
            assert!(problem.contains(expected), "{problem:?} does not say {expected:?}");
        }
    }

    #[test]
    fn a_frame_over_two_writes_is_a_complaint_and_two_frames_in_one_are_not() {
        assert_eq!(check_writes(&["data: 1\n\ndata: 2\n\n", "data: 3\n\n"]), Ok(()));
        let problem = check_writes(&["data: 1\n\n", "data: ", "2\n\n"]).expect_err("frame 2 is split");
        assert!(problem.starts_with("write 1: the stream ends inside a frame"), "{problem}");
    }

    #[test]
    #[should_panic(expected = "does not end in [DONE]")]
    fn a_stream_without_done_has_no_json_events() {
        json_events(b"event: a\ndata: {\"type\":\"a\"}\n\n");
    }

    #[test]
    #[should_panic(expected = "the event name is not the type")]
    fn an_event_name_that_is_not_the_type_is_a_complaint() {
        json_events(b"event: a\ndata: {\"type\":\"b\"}\n\ndata: [DONE]\n\n");
    }
}
