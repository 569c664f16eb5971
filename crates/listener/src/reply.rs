//! The responses that no wire sends: to data that is not HTTP, to timeouts, and beyond the connection limit.
//!
//! No request was read, so the wire is unknown; all responses have the OpenAI error format.

use std::io::IoSlice;

/// Why a connection gets a response without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    BadHead,
    HeadTimeout,
    UriTooLong,
    HeadTooLarge,
    Full,
    FullForAddress,
    ShuttingDown,
}

impl Refusal {
    /// A whole response: head, blank line, body.
    pub(super) fn bytes(self, max_head_bytes: usize) -> Vec<u8> {
        let status = self.status_line();
        let body = self.body(max_head_bytes);
        let retry = match self {
            Self::Full | Self::FullForAddress | Self::ShuttingDown => "retry-after: 1\r\n",
            Self::BadHead | Self::HeadTimeout | Self::UriTooLong | Self::HeadTooLarge => "",
        };
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{retry}connection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }

    fn status_line(self) -> &'static str {
        match self {
            Self::BadHead => "400 Bad Request",
            Self::HeadTimeout => "408 Request Timeout",
            Self::UriTooLong => "414 URI Too Long",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Full | Self::FullForAddress | Self::ShuttingDown => "503 Service Unavailable",
        }
    }

    fn body(self, max_head_bytes: usize) -> String {
        let (message, kind, code) = match self {
            Self::BadHead => {
                ("The request is not valid HTTP/1.1.".into(), "invalid_request_error", "malformed_request")
            }
            Self::HeadTimeout => {
                ("The request was not sent in time.".into(), "invalid_request_error", "request_timeout")
            }
            Self::UriTooLong => ("The request target is too long.".into(), "invalid_request_error", "uri_too_long"),
            Self::HeadTooLarge => (
                format!(
                    "The request line and headers are more than this server takes: {max_head_bytes} bytes, 100 headers."
                ),
                "invalid_request_error",
                "headers_too_large",
            ),
            Self::Full => (
                "The server has as many connections as it can serve. Try again shortly.".into(),
                "server_error",
                "server_is_overloaded",
            ),
            Self::FullForAddress => (
                "Your address has as many connections as it may. Close some of them, or try again shortly.".into(),
                "server_error",
                "too_many_connections",
            ),
            Self::ShuttingDown => {
                ("The server is shutting down. Try again shortly.".into(), "server_error", "server_is_shutting_down")
            }
        };
        // The messages above contain nothing that JSON has to escape.
        format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#)
    }
}

/// Recognises the bodiless response that hyper writes for a head it cannot parse.
///
/// hyper has no hook for it, so it is recognised by its exact form: one of three status codes and no header but these
/// three. A wire's response has a content type, hence one header more.
pub(super) fn automatic(slices: &[IoSlice<'_>]) -> Option<Refusal> {
    let mut filled = slices.iter().filter(|slice| !slice.is_empty());
    let (Some(head), None) = (filled.next(), filled.next()) else { return None };
    // Most writes are events, or heads with more headers: one comparison rules them out.
    let rest = head.strip_prefix(b"HTTP/1.").filter(|rest| rest.len() < 160)?;
    let rest = rest.strip_suffix(b"\r\n\r\n")?;
    let mut lines = rest.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let refusal = match lines.next()?.get(1..5)? {
        b" 400" => Refusal::BadHead,
        b" 414" => Refusal::UriTooLong,
        b" 431" => Refusal::HeadTooLarge,
        _ => return None,
    };
    let (mut closes, mut empty) = (false, false);
    for line in lines {
        match line {
            b"connection: close" => closes = true,
            b"content-length: 0" => empty = true,
            date if date.starts_with(b"date: ") => {}
            _ => return None,
        }
    }
    (closes && empty).then_some(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Refusal; 7] = [
        Refusal::BadHead,
        Refusal::HeadTimeout,
        Refusal::UriTooLong,
        Refusal::HeadTooLarge,
        Refusal::Full,
        Refusal::FullForAddress,
        Refusal::ShuttingDown,
    ];

    #[test]
    fn every_refusal_is_a_response_with_an_error_object_of_the_stated_length() {
        for refusal in ALL {
            let bytes = refusal.bytes(65_536);
            let text = std::str::from_utf8(&bytes).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
            let json: serde_json::Value = serde_json::from_str(body).unwrap();
            let error = json["error"].as_object().unwrap();
            assert_eq!(error.keys().map(String::as_str).collect::<Vec<_>>(), ["code", "message", "param", "type"]);
        }
    }

    #[test]
    fn only_the_exact_form_of_the_automatic_response_is_recognised() {
        let cases: [(&[u8], Option<Refusal>); 7] = [
            (
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n",
                Some(Refusal::BadHead),
            ),
            (b"HTTP/1.0 431 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Some(Refusal::HeadTooLarge)),
            (b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            (b"HTTP/1.1 400 Bad Request\r\ncontent-type: a/b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", None),
            (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", None),
            (b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\nrest", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(automatic(&[IoSlice::new(bytes)]), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_response_that_follows_or_precedes_other_bytes_is_left_alone() {
        let reply = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(automatic(&[IoSlice::new(reply), IoSlice::new(b"x")]), None);
        assert_eq!(automatic(&[IoSlice::new(b""), IoSlice::new(reply)]), Some(Refusal::BadHead));
    }
}
