//! Reads a request body whole: bounded in size, in time, and in what it may be.
//!
//! Shape and meaning of the bytes are the wires' business.

use std::{pin::pin, time::Duration};

use amalgam_core::{Fault, FaultKind};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, header, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

/// The most that is reserved on a caller's word about its length; beyond it the buffer grows with what arrives.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;
/// Bytes a second that a body has to bring on average. Without it one byte in every pause would hold a
/// connection for as long as the caller likes.
const MIN_RATE: u64 = 1024;

/// How large a body may be and how slowly it may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// The most bytes that are taken.
    pub bytes: usize,
    /// The longest pause before a piece; also how far the whole may fall behind 1 KiB a second.
    pub pause: Duration,
}

/// Reads the body of a request whose content type was checked by [`expect_type`]; the head is handed back with it.
pub(crate) async fn read_json(request: Request, limits: BodyLimits) -> Result<(Parts, Bytes), Fault> {
    let (head, body) = request.into_parts();
    Ok((head, read(body, limits).await?))
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

/// Collects a body. A body that came in one piece is handed on without a copy.
///
/// A stated length beyond the limit is refused before anything is read. The faults are `TooLarge`,
/// `RequestTimeout`, and `Invalid` for a body that breaks off or is framed wrongly.
pub async fn read<B>(body: B, limits: BodyLimits) -> Result<Bytes, Fault>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let stated = body.size_hint().lower();
    if stated > limits.bytes as u64 {
        return Err(too_large(limits));
    }
    let mut pieces = pin!(body);
    let mut waits_since = None;
    let mut whole = Collected::Empty;
    loop {
        // Most bodies come with their head: what is here already needs no timer.
        let next = match pieces.frame().now_or_never() {
            Some(next) => next,
            None => {
                let now = Instant::now();
                let behind = limits.pause + Duration::from_millis(whole.len() as u64 * 1000 / MIN_RATE);
                let deadline = (*waits_since.get_or_insert(now) + behind).min(now + limits.pause);
                let Ok(next) = timeout_at(deadline, pieces.frame()).await else {
                    return Err(Fault::new(FaultKind::RequestTimeout, "The request body was not sent in time."));
                };
                next
            }
        };
        let Some(frame) = next else { return Ok(whole.into_bytes()) };
        let frame = frame.map_err(|error| {
            Fault::new(FaultKind::Invalid, "The request body ended early or is framed wrongly.").detail(error)
        })?;
        // Trailers say nothing that a wire reads.
        let Ok(piece) = frame.into_data() else { continue };
        if piece.len() > limits.bytes - whole.len() {
            return Err(too_large(limits));
        }
        whole = whole.with(piece, usize::try_from(stated).unwrap_or(0));
    }
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

fn too_large(limits: BodyLimits) -> Fault {
    Fault::new(FaultKind::TooLarge, format!("The request body is larger than {} bytes.", limits.bytes))
}

/// What has arrived so far.
enum Collected {
    Empty,
    One(Bytes),
    Many(BytesMut),
}

impl Collected {
    fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn with(self, piece: Bytes, stated: usize) -> Self {
        match self {
            Self::Empty => Self::One(piece),
            Self::One(first) => {
                let least = first.len() + piece.len();
                let mut all = BytesMut::with_capacity(least.max(stated.min(MAX_TRUSTED_LENGTH)));
                all.extend_from_slice(&first);
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
