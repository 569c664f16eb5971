//! Refuses request heads whose lines end in a bare line feed.
//!
//! hyper accepts them. A proxy in front that does not would see other requests in the same bytes, which allows request
//! smuggling. The guard sees the bytes before hyper and makes such a head invalid.

/// The stored prefix of a line: enough for the relevant headers.
const LINE_BYTES: usize = 64;

/// The parser's position in the bytes of a connection.
#[derive(Debug)]
pub(super) struct HeadGuard {
    position: Position,
    last: u8,
    /// The beginning of the line, in lower case.
    line: Vec<u8>,
    /// Bytes of the line.
    length: usize,
    framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before or inside a head.
    Head,
    /// Inside a body with this many bytes left.
    Body(u64),
    /// Inside data that is not parsed: chunks, another protocol.
    Elsewhere,
}

/// The framing that a head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// No body.
    None,
    Length(u64),
    Unknown,
}

impl HeadGuard {
    pub(super) fn new() -> Self {
        Self { position: Position::Head, last: 0, line: Vec::new(), length: 0, framing: Framing::None }
    }

    /// Checks received bytes. A bare line feed in a head becomes a NUL, which is invalid in a head.
    pub(super) fn check(&mut self, mut bytes: &mut [u8]) {
        loop {
            match self.position {
                Position::Elsewhere => return,
                Position::Body(left) => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    let Some((_, rest)) = bytes.split_at_mut_checked(length) else { return };
                    bytes = rest;
                    match left - length as u64 {
                        0 => self.position = Position::Head,
                        left => {
                            self.position = Position::Body(left);
                            return;
                        }
                    }
                }
                Position::Head => {
                    let Some((byte, rest)) = bytes.split_first_mut() else { return };
                    if *byte == b'\n' && self.last != b'\r' {
                        *byte = 0;
                        self.position = Position::Elsewhere;
                        return;
                    }
                    self.last = *byte;
                    match *byte {
                        b'\n' => self.end_line(),
                        byte => {
                            self.length += 1;
                            if self.line.len() < LINE_BYTES {
                                self.line.push(byte.to_ascii_lowercase());
                            }
                        }
                    }
                    bytes = rest;
                }
            }
        }
    }

    fn end_line(&mut self) {
        let text = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if let Some(value) = text.strip_prefix(b"content-length:") {
            let number = std::str::from_utf8(value).ok().and_then(|value| value.trim().parse().ok());
            let is_whole = self.length <= LINE_BYTES;
            self.framing = match (number, self.framing) {
                (Some(length), Framing::None) if is_whole => Framing::Length(length),
                _ => Framing::Unknown,
            };
        } else if text.starts_with(b"transfer-encoding")
            || text.starts_with(b"upgrade")
            || text.starts_with(b"content-length")
        {
            self.framing = Framing::Unknown;
        } else if text.is_empty() && self.length == 1 {
            self.position = match std::mem::replace(&mut self.framing, Framing::None) {
                Framing::None | Framing::Length(0) => Position::Head,
                Framing::Length(length) => Position::Body(length),
                Framing::Unknown => Position::Elsewhere,
            };
        }
        self.line.clear();
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The resulting bytes, if they arrive in two parts split at `cut`.
    fn seen(text: &str, cut: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut guard = HeadGuard::new();
        let (first, second) = bytes.split_at_mut(cut.min(text.len()));
        guard.check(first);
        guard.check(second);
        String::from_utf8(bytes).unwrap()
    }

    // right E5
    #[test]
    fn a_bare_line_feed_in_a_head_is_made_unreadable_and_no_other_byte_is_touched() {
        for good in [
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\na\n\nbGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\n\n",
        ] {
            for cut in 0..good.len() {
                assert_eq!(seen(good, cut), good, "{cut}");
            }
        }
        for (bad, at) in [
            ("GET / HTTP/1.1\nhost: x\r\n\r\n", 14),
            ("GET / HTTP/1.1\r\nhost: x\n\r\n", 23),
            ("GET / HTTP/1.1\r\nhost: x\r\n\n", 25),
            ("\nGET / HTTP/1.1\r\n\r\n", 0),
            ("POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n\n\nGET / HTTP/1.1\nhost: x\r\n\r\n", 54),
        ] {
            for cut in 0..bad.len() {
                let seen = seen(bad, cut);
                assert_eq!(seen.bytes().position(|byte| byte == 0), Some(at), "{bad:?} {cut}");
                assert_eq!(seen.replace('\0', "\n"), bad);
            }
        }
    }

    proptest! {
        #[test]
        fn bodies_of_a_known_length_are_left_alone(body in "[a\r\n]{0,80}", cut in 0_usize..160) {
            let text = format!("POST / HTTP/1.1\r\nCONTENT-LENGTH:{}\r\n\r\n{body}GET / HTTP/1.1\r\n\r\n", body.len());
            prop_assert_eq!(seen(&text, cut), text);
        }
    }
}
