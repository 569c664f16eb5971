//! Replies of the scripted upstream: status, headers, and a script of steps.
//!
//! A `Reply` is plain data. Flags such as `crlf` or `split` apply to the whole script when it is rendered, so the order
//! in which a test sets them does not matter. `wire` sends the steps over a socket.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

/// One scripted answer of an [`Upstream`](super::Upstream).
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) opening: Opening,
    pub(super) delay: Duration,
    pub(super) gate: Option<Gate>,
    pub(super) framing: Framing,
    pub(super) steps: Vec<Step>,
    pub(super) split: Option<usize>,
    crlf: bool,
    final_newline: bool,
}

/// How an answer starts.
#[derive(Clone, Debug)]
pub(super) enum Opening {
    /// A proper status line and headers.
    Head { status: u16, headers: Vec<(String, String)> },
    /// No head at all: the steps are the first bytes on the socket, and the socket is closed after them.
    None,
}

/// How the end of a body is marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Framing {
    Chunked,
    Length,
    UntilClose,
}

/// One step of a script. Bodies are lists of sends; the others sit between them.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Payload),
    Stall(Duration),
    Hold(Gate),
    Cut,
    Reset,
    Hang,
}

/// Bytes of a body, or one event-stream frame that is rendered with the line ending of its reply.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    Bytes(Bytes),
    Frame { event: Option<String>, data: String },
}

/// A point where a script waits until the test opens it.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    /// A closed gate. Clones share it.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Releases every script that waits at this gate, now and later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn wait(&self) {
        // The sender is a field of `self`, so the channel cannot close while this waits.
        self.0.subscribe().wait_for(|open| *open).await.expect("a gate keeps its own sender");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Constructors.
impl Reply {
    /// A JSON body with status 200.
    pub fn json(value: Value) -> Self {
        Self::bytes("application/json", value.to_string())
    }

    /// Any body with status 200.
    pub fn bytes(content_type: &str, body: impl Into<Bytes>) -> Self {
        let mut reply = Self::status(200).header("content-type", content_type);
        reply.steps.push(Step::Send(Payload::Bytes(body.into())));
        reply
    }

    /// An empty answer with this status; give it a body with [`Reply::with_json`] or [`Reply::send`].
    pub fn status(status: u16) -> Self {
        Self {
            opening: Opening::Head { status, headers: Vec::new() },
            delay: Duration::ZERO,
            gate: None,
            framing: Framing::Length,
            steps: Vec::new(),
            split: None,
            crlf: false,
            final_newline: true,
        }
    }

    /// An error page such as a proxy in between would send.
    pub fn html(status: u16, text: &str) -> Self {
        Self::bytes("text/html", format!("<!DOCTYPE html><html><body><h1>{text}</h1></body></html>"))
            .with_status(status)
    }

    /// An empty event stream, to be filled with [`Reply::frame`] and [`Reply::send`].
    pub fn stream() -> Self {
        let mut reply = Self::status(200).header("content-type", "text/event-stream");
        reply.framing = Framing::Chunked;
        reply
    }

    /// An event stream of `(event, data)` pairs; the event name is a `&str` or an `Option<&str>`.
    pub fn sse<'a, E: Into<Option<&'a str>>>(events: impl IntoIterator<Item = (E, Value)>) -> Self {
        events.into_iter().fold(Self::stream(), |reply, (event, data)| reply.frame(event, &data.to_string()))
    }

    /// An event stream whose event names are the `type` fields of the values, as Responses and Messages servers send.
    pub fn sse_typed(events: impl IntoIterator<Item = Value>) -> Self {
        events.into_iter().fold(Self::stream(), |reply, value| {
            let event = value.get("type").and_then(Value::as_str).map(str::to_owned);
            reply.frame(event.as_deref(), &value.to_string())
        })
    }

    /// An event stream of data lines alone that ends in `[DONE]`, as Chat Completions servers send.
    pub fn sse_data(values: impl IntoIterator<Item = Value>) -> Self {
        values.into_iter().fold(Self::stream(), |reply, value| reply.frame(None, &value.to_string())).done()
    }

    /// An event stream with one frame that is not UTF-8.
    pub fn invalid_utf8() -> Self {
        Self::stream().send(&b"data: {\"text\":\"\xff\xfe\xc3\x28\"}\n\n"[..])
    }

    /// An event stream whose only line has this many bytes and no end.
    pub fn huge_line(bytes: usize) -> Self {
        let mut line = b"data: ".to_vec();
        line.resize(bytes, b'x');
        Self::stream().send(line)
    }

    /// These exact bytes instead of an HTTP answer, after which the socket is closed.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        let mut reply = Self::status(200).send(bytes);
        reply.opening = Opening::None;
        reply.framing = Framing::UntilClose;
        reply
    }

    /// Takes the request and closes the connection without a byte.
    pub fn close() -> Self {
        Self::raw(Bytes::new())
    }

    /// Takes the request, resets the connection and answers nothing.
    pub fn reset() -> Self {
        let mut reply = Self::close();
        reply.steps = vec![Step::Reset];
        reply
    }

    /// Takes the request and never answers.
    pub fn hang() -> Self {
        let mut reply = Self::close();
        reply.steps = vec![Step::Hang];
        reply
    }
}

/// Sets up the head.
impl Reply {
    /// Sets the status.
    pub fn with_status(mut self, status: u16) -> Self {
        if let Opening::Head { status: current, .. } = &mut self.opening {
            *current = status;
        }
        self
    }

    /// Sets a header, replacing one with the same name.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        if let Opening::Head { headers, .. } = &mut self.opening {
            headers.retain(|(present, _)| !present.eq_ignore_ascii_case(name));
            headers.push((name.to_owned(), value.into()));
        }
        self
    }

    /// Adds a header of this many bytes.
    pub fn huge_header(self, bytes: usize) -> Self {
        self.header("x-padding", "p".repeat(bytes))
    }

    /// Sends the body in HTTP chunks.
    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunked;
        self
    }

    /// Sends the body without a length; the closed connection is its end.
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::UntilClose;
        self
    }
}

/// Sets up the body.
impl Reply {
    /// Replaces the body with JSON.
    pub fn with_json(mut self, value: Value) -> Self {
        self.steps = vec![Step::Send(Payload::Bytes(value.to_string().into()))];
        self.header("content-type", "application/json")
    }

    /// Appends bytes to the body.
    pub fn send(mut self, bytes: impl Into<Bytes>) -> Self {
        self.steps.push(Step::Send(Payload::Bytes(bytes.into())));
        self
    }

    /// Appends one frame to the body.
    pub fn frame<'a>(mut self, event: impl Into<Option<&'a str>>, data: &str) -> Self {
        let event = event.into().map(str::to_owned);
        self.steps.push(Step::Send(Payload::Frame { event, data: data.to_owned() }));
        self
    }

    /// Appends a comment line such as servers send to keep a connection open.
    pub fn comment(self, text: &str) -> Self {
        self.send(format!(": {text}\n\n"))
    }

    /// Appends `data: [DONE]`.
    pub fn done(self) -> Self {
        self.frame(None, "[DONE]")
    }
}

/// Sets up the timing. A frame is one send: `n_frames` counts the sends before the step.
impl Reply {
    /// Waits this long before the first byte of the head.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits before the first byte of the head until the test opens the gate.
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sends the body in pieces of `bytes`, also inside UTF-8 characters.
    pub fn split(mut self, bytes: usize) -> Self {
        assert!(bytes > 0, "a piece has at least one byte");
        self.split = Some(bytes);
        self
    }

    /// Ends every line of the frames with CR LF.
    pub fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Leaves out the line ends after the last frame.
    pub fn without_final_newline(mut self) -> Self {
        self.final_newline = false;
        self
    }

    /// Pauses at the end of the script so far.
    pub fn stall(mut self, pause: Duration) -> Self {
        self.steps.push(Step::Stall(pause));
        self
    }

    /// Waits at the end of the script so far until the test opens the gate.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Hold(gate.clone()));
        self
    }

    /// Pauses after `n_frames` frames.
    pub fn stall_after(self, n_frames: usize, pause: Duration) -> Self {
        self.insert_after(n_frames, Step::Stall(pause))
    }

    /// Waits after `n_frames` frames until the test opens the gate.
    pub fn hold_after(self, n_frames: usize, gate: &Gate) -> Self {
        self.insert_after(n_frames, Step::Hold(gate.clone()))
    }

    /// Closes the connection after `n_frames` frames without ending the body.
    pub fn cut_after(self, n_frames: usize) -> Self {
        self.insert_after(n_frames, Step::Cut)
    }

    /// Resets the connection after `n_frames` frames.
    pub fn reset_after(self, n_frames: usize) -> Self {
        self.insert_after(n_frames, Step::Reset)
    }

    /// Sends nothing after `n_frames` frames and keeps the connection open.
    pub fn hang_after(self, n_frames: usize) -> Self {
        self.insert_after(n_frames, Step::Hang)
    }

    fn insert_after(mut self, n_frames: usize, step: Step) -> Self {
        let sends = self.steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::Send(_)));
        let position = match n_frames {
            0 => 0,
            _ => match sends.map(|(index, _)| index + 1).nth(n_frames - 1) {
                Some(position) => position,
                None => panic!("the reply has fewer than {n_frames} frames"),
            },
        };
        self.steps.insert(position, step);
        self
    }
}

impl Reply {
    /// Whether the end of the connection is the end of the body.
    pub(super) fn closes(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// The bytes of every send, in order, with line endings as the flags ask.
    pub(super) fn rendered(&self) -> Vec<Bytes> {
        let line_end = if self.crlf { "\r\n" } else { "\n" };
        let mut sends: Vec<Bytes> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Send(Payload::Bytes(bytes)) => sends.push(bytes.clone()),
                Step::Send(Payload::Frame { event, data }) => {
                    let event = event.iter().map(|event| format!("event: {event}{line_end}"));
                    let data = data.split('\n').map(|line| format!("data: {line}{line_end}"));
                    sends.push(event.chain(data).chain([line_end.to_owned()]).collect::<String>().into());
                }
                Step::Stall(_) | Step::Hold(_) | Step::Cut | Step::Reset | Step::Hang => {}
            }
        }
        if !self.final_newline
            && let Some(last) = sends.last_mut()
        {
            last.truncate(last.trim_ascii_end().len());
        }
        sends
    }
}
