//! Counts what a stream of Responses events delivered, without storing it.
//!
//! Only the first bytes of each line are looked at, so the check costs little on the two cores it shares with the
//! server under test, and it does not care where the stream was cut into pieces.

/// Longer than every line start that matters.
const HEAD: usize = 48;

#[derive(Default)]
pub(crate) struct SseCount {
    line: Vec<u8>,
    /// `response.output_text.delta` events.
    pub(crate) deltas: u64,
    /// `response.completed` events.
    pub(crate) completed: u64,
    /// `error`, `response.failed` and `response.incomplete` events.
    pub(crate) failed: u64,
    /// `data: [DONE]` lines.
    pub(crate) done: u64,
}

impl SseCount {
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = piece.split_at(end);
            self.keep_head(line);
            self.end_line();
            piece = behind.split_first().map_or(&[], |(_, rest)| rest);
        }
        self.keep_head(piece);
    }

    /// What is wrong with the stream now that it has ended, if anything.
    pub(crate) fn complaint(&self, expected_deltas: u64) -> Option<String> {
        let whole = self.deltas == expected_deltas && self.completed == 1 && self.done == 1 && self.failed == 0;
        (!whole).then(|| {
            format!(
                "stream ended with {} of {expected_deltas} deltas, {} response.completed, {} [DONE], {} failures",
                self.deltas, self.completed, self.done, self.failed
            )
        })
    }

    fn keep_head(&mut self, bytes: &[u8]) {
        let room = HEAD.saturating_sub(self.line.len());
        self.line.extend(bytes.iter().take(room));
    }

    fn end_line(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if let Some(kind) = line.strip_prefix(b"event: ") {
            match kind {
                b"response.output_text.delta" => self.deltas += 1,
                b"response.completed" => self.completed += 1,
                b"error" | b"response.failed" | b"response.incomplete" => self.failed += 1,
                _ => {}
            }
        } else if line == b"data: [DONE]" {
            self.done += 1;
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers;

    fn whole_stream() -> Vec<u8> {
        let script = answers::response_script();
        (0..script.len()).flat_map(|at| script.frame(at).unwrap().to_vec()).collect()
    }

    #[test]
    fn any_cutting_of_a_stream_gives_the_same_count() {
        let stream = whole_stream();
        for size in [1, 7, 100, 4096, stream.len()] {
            let mut count = SseCount::default();
            stream.chunks(size).for_each(|piece| count.feed(piece));

            assert_eq!(count.complaint(answers::TOKENS as u64), None, "pieces of {size} bytes");
        }
    }

    #[test]
    fn a_stream_without_its_end_or_with_a_failure_is_complained_about() {
        let stream = whole_stream();
        let mut cut = SseCount::default();
        cut.feed(&stream[..stream.len() - 4]);
        let mut failed = SseCount::default();
        failed.feed(&stream);
        failed.feed(b"event: response.failed\r\ndata: {}\r\n\r\n");

        assert!(cut.complaint(answers::TOKENS as u64).is_some());
        assert!(failed.complaint(answers::TOKENS as u64).is_some());
    }
}
