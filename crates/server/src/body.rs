//! Reads request bodies: bounded in size, time and content type.
//!
//! The wires parse the bytes.

use std::{pin::pin, time::Duration};

use amalgam_core::{Fault, FaultKind};
use axum::extract::Request;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    request_memory::{RequestMemory, Reservation},
    text_share::TextShare,
};

/// The maximum buffer that a stated length reserves; beyond it the buffer grows with the data.
const MAX_TRUSTED_LENGTH: usize = 128 * 1024;
/// The minimum rate of a body after its first pause, in bytes per second. Without it, one byte per pause would hold a
/// connection and its memory for as long as the client likes.
const MIN_RATE: u64 = 16 * 1024;

/// The limits on the size and speed of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// The maximum size.
    pub bytes: usize,
    /// The maximum number of bytes that are not images and files in base64.
    pub text_bytes: usize,
    /// The maximum pause between chunks. A body may be slow for this long at first; then it needs 16 KiB per second.
    pub pause: Duration,
}

/// Reads the body of a request whose content type [`expect_type`] has checked; returns it with the head.
pub(crate) async fn read_json(
    request: Request,
    limits: BodyLimits,
    memory: &RequestMemory,
) -> Result<(Parts, Bytes), Fault> {
    let (head, body) = request.into_parts();
    Ok((head, read(body, limits, memory).await?))
}

/// Checks that a request with a body has the content type JSON, or a form if `form` is set.
///
/// A page of another site can send a body without a type, and forms, but not JSON unless a preflight request allowed
/// it.
pub(crate) fn expect_type(request: &Request, form: bool) -> Result<(), Fault> {
    match request.body().is_end_stream() || form {
        true => Ok(()),
        false => expect_json(request.headers()),
    }
}

/// Reads a whole body. A body that arrives as one chunk is not copied. Its bytes count in `memory` as long as any part
/// of them is referenced.
///
/// A stated length beyond the limit is refused before anything is read. The faults are `TooLarge`, `OutOfMemory`,
/// `RequestTimeout`, and `Invalid` for a body that breaks off or has invalid framing.
pub async fn read<B>(body: B, limits: BodyLimits, memory: &RequestMemory) -> Result<Bytes, Fault>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let stated = body.size_hint().lower();
    if stated > limits.bytes as u64 {
        return Err(too_large(limits.bytes));
    }
    let mut chunks = pin!(body);
    let mut pace = None;
    let mut whole = PartialBody::new(limits, memory, usize::try_from(stated).unwrap_or(0));
    loop {
        // Most bodies arrive with their head: data that is here already needs no timer.
        let next = match chunks.frame().now_or_never() {
            Some(next) => next,
            None => {
                let pace = pace.get_or_insert_with(|| Pace::new(limits.pause, Instant::now()));
                match timeout_at(pace.deadline(whole.len(), Instant::now())?, chunks.frame()).await {
                    Ok(next) => next,
                    // The next iteration decides whether that was too slow.
                    Err(_) => continue,
                }
            }
        };
        let Some(frame) = next else { return Ok(whole.into_bytes()) };
        let frame = frame.map_err(|error| {
            Fault::new(FaultKind::Invalid, "The request body ended early or is framed wrongly.").detail(error)
        })?;
        // No wire reads trailers.
        let Ok(chunk) = frame.into_data() else { continue };
        whole.push(chunk)?;
    }
}

/// The minimum speed of a body or a message.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
    /// The number of bytes so far, and when it was last counted.
    received: usize,
    received_at: Instant,
    /// The time at which the number has to be larger.
    due_at: Instant,
    due: usize,
}

impl Pace {
    pub(crate) fn new(pause: Duration, now: Instant) -> Self {
        Self { pause, received: 0, received_at: now, due_at: now + pause, due: 0 }
    }

    /// How long to wait for more with `received` bytes so far; `RequestTimeout` if the client is too slow.
    pub(crate) fn deadline(&mut self, received: usize, now: Instant) -> Result<Instant, Fault> {
        if received > self.received {
            (self.received, self.received_at) = (received, now);
        }
        let window = self.pause / 2;
        // Far beyond the end of a window, it was this process that did not read.
        let process_stalled = now > self.due_at + self.pause;
        if now >= self.due_at {
            if received < self.due && !process_stalled {
                return Err(too_slow());
            }
            self.due_at = now + window;
            // Bytes arrive in chunks: one in transit at the end of the window is not missed.
            let counted = window - (window / 4).min(Duration::from_secs(1));
            self.due = received.saturating_add((MIN_RATE as f64 * counted.as_secs_f64()) as usize);
        }
        let silent_until = self.received_at + self.pause;
        match now >= silent_until {
            true => Err(too_slow()),
            false => Ok(silent_until.min(self.due_at)),
        }
    }
}

fn too_slow() -> Fault {
    Fault::new(FaultKind::RequestTimeout, "The request body was not sent in time.")
}

/// Checks that the headers announce uncompressed JSON.
///
/// `Content-Encoding` is checked too: a compressed body would otherwise be called malformed JSON.
pub fn expect_json(headers: &HeaderMap) -> Result<(), Fault> {
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")
    {
        return Err(Fault::new(
            FaultKind::UnsupportedMedia,
            "Compressed request bodies are not supported. Send the body without a Content-Encoding.",
        ));
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(value), None) if is_json(value) => Ok(()),
        _ => Err(Fault::new(
            FaultKind::UnsupportedMedia,
            "Missing or unsupported Content-Type. Send the body with `Content-Type: application/json`.",
        )),
    }
}

fn is_json(value: &HeaderValue) -> bool {
    let essence = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let Some((application, subtype)) = essence.split_at_checked(12) else { return false };
    let suffix = subtype.get(subtype.len().saturating_sub(5)..).unwrap_or_default();
    application.eq_ignore_ascii_case(b"application/")
        && (subtype.eq_ignore_ascii_case(b"json") || suffix.eq_ignore_ascii_case(b"+json"))
}

/// The fault for a body or a message beyond its limit.
pub(crate) fn too_large(limit: usize) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("The request body is larger than {limit} bytes."))
}

/// The fault for a body or a message with more text than allowed.
pub(crate) fn too_much_text(limit: usize) -> Fault {
    let message = format!("The request body has more than {limit} bytes, images and files apart.");
    Fault::new(FaultKind::TooLarge, message)
}

/// The received part of a body, within its limits.
#[derive(Debug)]
struct PartialBody {
    limits: BodyLimits,
    stated: usize,
    reservation: Reservation,
    chunks: Chunks,
    /// Counts text once the body is larger than its text may be.
    text: Option<TextShare>,
}

#[derive(Debug)]
enum Chunks {
    One(Bytes),
    Many(Vec<u8>),
}

impl Chunks {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes,
        }
    }
}

impl PartialBody {
    /// An empty buffer; `stated` is the length that the sender announced.
    fn new(limits: BodyLimits, memory: &RequestMemory, stated: usize) -> Self {
        let chunks = Chunks::One(Bytes::new());
        Self { limits, stated, reservation: memory.reservation(), chunks, text: None }
    }

    fn len(&self) -> usize {
        self.chunks.bytes().len()
    }

    /// Adds a chunk, or refuses it.
    fn push(&mut self, chunk: Bytes) -> Result<(), Fault> {
        let before = self.len();
        let length = before + chunk.len();
        if length > self.limits.bytes {
            return Err(too_large(self.limits.bytes));
        }
        if length > self.limits.text_bytes {
            let text = self.text.get_or_insert_with(|| {
                let mut text = TextShare::default();
                text.take(self.chunks.bytes());
                text
            });
            text.take(&chunk);
            if text.bytes() > self.limits.text_bytes {
                return Err(too_much_text(self.limits.text_bytes));
            }
        }
        if before == 0 {
            self.reservation.expect(length)?;
            self.chunks = Chunks::One(chunk);
            return Ok(());
        }
        let mut all = match std::mem::replace(&mut self.chunks, Chunks::One(Bytes::new())) {
            Chunks::Many(all) => all,
            Chunks::One(first) => {
                let capacity = length.max(self.stated.min(MAX_TRUSTED_LENGTH));
                self.reservation.expect(capacity)?;
                let mut all = Vec::with_capacity(capacity);
                all.extend_from_slice(&first);
                all
            }
        };
        if length > all.capacity() {
            // Doubles the buffer, up to the largest possible body.
            let limit = if self.stated >= length { self.stated } else { self.limits.bytes };
            let mut capacity = (all.capacity() * 2).min(limit).max(length);
            if !self.reservation.resize(capacity) {
                self.reservation.expect(length)?;
                capacity = length;
            }
            all.reserve_exact(capacity - all.len());
        }
        all.extend_from_slice(&chunk);
        self.chunks = Chunks::Many(all);
        Ok(())
    }

    fn into_bytes(self) -> Bytes {
        let bytes = match self.chunks {
            Chunks::One(bytes) => bytes,
            Chunks::Many(bytes) => bytes.into(),
        };
        self.reservation.hold(bytes)
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
