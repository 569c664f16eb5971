//! Reads a request body whole: bounded in size, in time, and in what it may be.
//!
//! Shape and meaning of the bytes are the wires' business.

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

/// The most that is reserved on a caller's word about its length; beyond it the buffer grows with what arrives.
const MAX_TRUSTED_LENGTH: usize = 128 * 1024;
/// Bytes a second that a body has to bring once its first moments are over. Without it one byte in every pause would hold
/// a connection, and the memory behind it, for as long as the caller likes.
const MIN_RATE: u64 = 16 * 1024;

/// How large a body may be and how slowly it may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// The most bytes that are taken.
    pub bytes: usize,
    /// The most bytes that are not images and files in base64.
    pub text_bytes: usize,
    /// The longest pause before a piece. For so long a body may also come as slowly as it likes; then 16 KiB a second.
    pub pause: Duration,
}

/// Reads the body of a request whose content type was checked by [`expect_type`]; the head is handed back with it.
pub(crate) async fn read_json(
    request: Request,
    limits: BodyLimits,
    memory: &RequestMemory,
) -> Result<(Parts, Bytes), Fault> {
    let (head, body) = request.into_parts();
    Ok((head, read(body, limits, memory).await?))
}

/// Checks that a request which has a body says what it is: JSON, or a form where `form` says so.
///
/// A page of another site can send a body without a type, and forms, but no JSON unless a preflight request allowed it.
pub(crate) fn expect_type(request: &Request, form: bool) -> Result<(), Fault> {
    match request.body().is_end_stream() || form {
        true => Ok(()),
        false => expect_json(request.headers()),
    }
}

/// Collects a body. A body that came in one piece is handed on without a copy. It counts in `memory` for as long as any part
/// of it is held.
///
/// A stated length beyond the limit is refused before anything is read. The faults are `TooLarge`, `OutOfMemory`,
/// `RequestTimeout`, and `Invalid` for a body that breaks off or is framed wrongly.
pub async fn read<B>(body: B, limits: BodyLimits, memory: &RequestMemory) -> Result<Bytes, Fault>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let stated = body.size_hint().lower();
    if stated > limits.bytes as u64 {
        return Err(too_large(limits.bytes));
    }
    let mut pieces = pin!(body);
    let mut pace = None;
    let mut whole = Collected::new(limits, memory, usize::try_from(stated).unwrap_or(0));
    loop {
        // Most bodies come with their head: what is here already needs no timer.
        let next = match pieces.frame().now_or_never() {
            Some(next) => next,
            None => {
                let pace = pace.get_or_insert_with(|| Pace::new(limits.pause, Instant::now()));
                match timeout_at(pace.deadline(whole.len(), Instant::now())?, pieces.frame()).await {
                    Ok(next) => next,
                    // Whether that was too slow is for the next round to say.
                    Err(_) => continue,
                }
            }
        };
        let Some(frame) = next else { return Ok(whole.into_bytes()) };
        let frame = frame.map_err(|error| {
            Fault::new(FaultKind::Invalid, "The request body ended early or is framed wrongly.").detail(error)
        })?;
        // Trailers say nothing that a wire reads.
        let Ok(piece) = frame.into_data() else { continue };
        whole.push(piece)?;
    }
}

/// How fast a body, or a message, has to come.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
    /// Bytes so far, and since when it is so many.
    come: usize,
    come_at: Instant,
    /// By then there have to be so many bytes.
    due_at: Instant,
    due: usize,
}

impl Pace {
    pub(crate) fn new(pause: Duration, now: Instant) -> Self {
        Self { pause, come: 0, come_at: now, due_at: now + pause, due: 0 }
    }

    /// Until when to wait for more before asking again, with `come` bytes so far; `RequestTimeout` for what comes too
    /// slowly.
    pub(crate) fn deadline(&mut self, come: usize, now: Instant) -> Result<Instant, Fault> {
        if come > self.come {
            (self.come, self.come_at) = (come, now);
        }
        let window = self.pause / 2;
        // Far beyond the end of a window it is this process that was not there to read.
        let is_ours = now > self.due_at + self.pause;
        if now >= self.due_at {
            if come < self.due && !is_ours {
                return Err(too_slow());
            }
            self.due_at = now + window;
            // Bytes come in pieces: one that is under way when the window ends is not missed.
            let counted = window - (window / 4).min(Duration::from_secs(1));
            self.due = come.saturating_add((MIN_RATE as f64 * counted.as_secs_f64()) as usize);
        }
        let silent_until = self.come_at + self.pause;
        match now >= silent_until {
            true => Err(too_slow()),
            false => Ok(silent_until.min(self.due_at)),
        }
    }
}

fn too_slow() -> Fault {
    Fault::new(FaultKind::RequestTimeout, "The request body was not sent in time.")
}

/// Checks that the headers announce JSON in a form that we can read.
///
/// `Content-Encoding` counts too: a compressed body would otherwise be called malformed JSON.
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

/// What is told of a body, or a message, beyond its limit.
pub(crate) fn too_large(most: usize) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("The request body is larger than {most} bytes."))
}

/// The fault for a body, or a message, with more text than is allowed.
pub(crate) fn too_much_text(most: usize) -> Fault {
    let message = format!("The request body has more than {most} bytes, images and files apart.");
    Fault::new(FaultKind::TooLarge, message)
}

/// What has arrived so far of a body, within its bounds.
#[derive(Debug)]
struct Collected {
    limits: BodyLimits,
    stated: usize,
    reservation: Reservation,
    pieces: Pieces,
    /// Counts text once there is more than text may be.
    text: Option<TextShare>,
}

#[derive(Debug)]
enum Pieces {
    One(Bytes),
    Many(Vec<u8>),
}

impl Pieces {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes,
        }
    }
}

impl Collected {
    /// Nothing yet; `stated` is how many bytes the sender says will come.
    fn new(limits: BodyLimits, memory: &RequestMemory, stated: usize) -> Self {
        let pieces = Pieces::One(Bytes::new());
        Self { limits, stated, reservation: memory.reservation(), pieces, text: None }
    }

    fn len(&self) -> usize {
        self.pieces.bytes().len()
    }

    /// Adds a piece, or says why it is one too many.
    fn push(&mut self, piece: Bytes) -> Result<(), Fault> {
        let before = self.len();
        let length = before + piece.len();
        if length > self.limits.bytes {
            return Err(too_large(self.limits.bytes));
        }
        if length > self.limits.text_bytes {
            let text = self.text.get_or_insert_with(|| {
                let mut text = TextShare::default();
                text.take(self.pieces.bytes());
                text
            });
            text.take(&piece);
            if text.bytes() > self.limits.text_bytes {
                return Err(too_much_text(self.limits.text_bytes));
            }
        }
        if before == 0 {
            self.reservation.expect(length)?;
            self.pieces = Pieces::One(piece);
            return Ok(());
        }
        let mut all = match std::mem::replace(&mut self.pieces, Pieces::One(Bytes::new())) {
            Pieces::Many(all) => all,
            Pieces::One(first) => {
                let capacity = length.max(self.stated.min(MAX_TRUSTED_LENGTH));
                self.reservation.expect(capacity)?;
                let mut all = Vec::with_capacity(capacity);
                all.extend_from_slice(&first);
                all
            }
        };
        if length > all.capacity() {
            // Twice as much as before, and no more than can come.
            let most = if self.stated >= length { self.stated } else { self.limits.bytes };
            let mut capacity = (all.capacity() * 2).min(most).max(length);
            if !self.reservation.resize(capacity) {
                self.reservation.expect(length)?;
                capacity = length;
            }
            all.reserve_exact(capacity - all.len());
        }
        all.extend_from_slice(&piece);
        self.pieces = Pieces::Many(all);
        Ok(())
    }

    fn into_bytes(self) -> Bytes {
        let bytes = match self.pieces {
            Pieces::One(bytes) => bytes,
            Pieces::Many(bytes) => bytes.into(),
        };
        self.reservation.hold(bytes)
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
