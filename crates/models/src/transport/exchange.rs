//! One request and its answer on one connection, written and read in the turn's own task.
//!
//! Without a task per connection, all bytes that have arrived are read when the turn is polled, and dropping the turn
//! closes its connection.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, ErrorKind, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use amalgam_core::ModelError;
use bytes::Bytes;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{
    framing::Framing,
    head::{self, HEAD_BYTES, Head, ParsedHead, Terms},
    pool::Pool,
};

/// The maximum size of one read.
const READ_BYTES: usize = 64 * 1024;

/// The maximum number of slices of one write.
const SLICES: usize = 64;

thread_local! {
    /// The read buffer. One for each thread instead of one for each connection, so that a waiting stream holds no
    /// memory.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// A connection to an upstream.
pub(super) struct Connection(Io);

enum Io {
    Plain(TcpStream),
    Tls(Box<TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>>),
}

impl Connection {
    pub(super) fn new(stream: MaybeHttpsStream<TokioIo<TcpStream>>) -> Self {
        Self(match stream {
            MaybeHttpsStream::Http(plain) => Io::Plain(plain.into_inner()),
            secure => Io::Tls(Box::new(TokioIo::new(secure))),
        })
    }

    /// Whether nothing has arrived since the last answer. Anything that arrives between answers is the end of the
    /// connection, or a reason not to reuse it.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        READ_BUFFER.with_borrow_mut(|room| self.poll_read(&mut context, room).is_pending())
    }

    /// Reads into `room`; 0 means that the upstream has closed the connection.
    fn poll_read(&mut self, context: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(room);
        ready!(match &mut self.0 {
            Io::Plain(stream) => Pin::new(stream).poll_read(context, &mut room),
            Io::Tls(stream) => Pin::new(stream).poll_read(context, &mut room),
        })?;
        Poll::Ready(Ok(room.filled().len()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Io::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Io::Plain(_) => Poll::Ready(Ok(())),
            Io::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The upstream has not received the whole request and has sent nothing, so it cannot have acted on it.
    NotSent(io::Error),
    /// The connection broke before the answer began.
    Closed(io::Error),
    /// The bytes that arrived are not a valid head.
    InvalidHead(ModelError),
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn exchange(
    connection: Connection,
    head: Bytes,
    body: Bytes,
    pool: &Arc<Pool>,
) -> Result<(Head, Body), ExchangeError> {
    let mut pending = PendingExchange {
        connection,
        unsent: Some(OutgoingRequest { head, body, sent: 0 }),
        failed: None,
        partial: Vec::new(),
    };
    let AnswerHead { head, terms, first, clean } = poll_fn(|context| pending.poll(context)).await?;
    let PendingExchange { connection, unsent, failed, .. } = pending;
    let mut body = Body {
        connection: Some(connection),
        reusable: terms.reusable && clean && failed.is_none(),
        framing: terms.framing,
        first,
        unsent,
        pool: Arc::clone(pool),
    };
    body.settle();
    Ok((head, body))
}

struct PendingExchange {
    connection: Connection,
    unsent: Option<OutgoingRequest>,
    /// Why sending ended early. An answer may still arrive: a refusal is often sent before the body is read.
    failed: Option<io::Error>,
    /// The beginning of a head that did not arrive at once.
    partial: Vec<u8>,
}

struct AnswerHead {
    head: Head,
    terms: Terms,
    /// The part of the body that arrived with the head.
    first: Vec<u8>,
    /// Whether nothing followed the answer.
    clean: bool,
}

impl PendingExchange {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<AnswerHead, ExchangeError>> {
        if let Some(unsent) = &mut self.unsent
            && let Poll::Ready(sent) = unsent.poll(&mut self.connection, context)
        {
            self.unsent = None;
            self.failed = sent.err();
        }
        READ_BUFFER.with_borrow_mut(|room| {
            loop {
                let arrived = match self.connection.poll_read(context, room) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) => Err(ErrorKind::UnexpectedEof.into()),
                    Poll::Ready(arrived) => arrived,
                };
                let arrived = match arrived {
                    Ok(length) => room.get(..length).unwrap_or_default(),
                    Err(error) => return Poll::Ready(Err(self.error(error))),
                };
                let read = if self.partial.is_empty() {
                    read_head(arrived)
                } else {
                    self.partial.extend_from_slice(arrived);
                    read_head(&self.partial)
                };
                match read {
                    Ok(Some(answered)) => return Poll::Ready(Ok(answered)),
                    Err(error) => return Poll::Ready(Err(ExchangeError::InvalidHead(error))),
                    Ok(None) if self.partial.is_empty() => self.partial.extend_from_slice(arrived),
                    Ok(None) => {}
                }
                // Interim answers count too, because there could be any number of them.
                if self.partial.len() > HEAD_BYTES {
                    return Poll::Ready(Err(ExchangeError::InvalidHead(head::too_large())));
                }
            }
        })
    }

    fn error(&mut self, error: io::Error) -> ExchangeError {
        let half_sent = self.unsent.is_some() || self.failed.is_some();
        let error = self.failed.take().unwrap_or(error);
        match half_sent && self.partial.is_empty() {
            true => ExchangeError::NotSent(error),
            false => ExchangeError::Closed(error),
        }
    }
}

/// Reads a complete head from the received bytes, and the part of the body that follows it.
fn read_head(mut arrived: &[u8]) -> Result<Option<AnswerHead>, ModelError> {
    loop {
        match head::parse(arrived)? {
            ParsedHead::Partial => return Ok(None),
            ParsedHead::Interim(length) => arrived = arrived.get(length..).unwrap_or_default(),
            ParsedHead::Whole(head, mut terms, length) => {
                let rest = arrived.get(length..).unwrap_or_default();
                let mut first = Vec::with_capacity(rest.len());
                let used = terms.framing.decode(rest, &mut first).map_err(|_| ModelError::CutShort)?;
                return Ok(Some(AnswerHead { head, terms, first, clean: used == rest.len() }));
            }
        }
    }
}

/// The part of a request that is not sent yet.
struct OutgoingRequest {
    head: Bytes,
    body: Bytes,
    sent: usize,
}

impl OutgoingRequest {
    fn poll(&mut self, connection: &mut Connection, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.gather(&mut slices);
            if count == 0 {
                return connection.poll_flush(context);
            }
            self.sent += match ready!(connection.poll_write(context, slices.get(..count).unwrap_or_default()))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => written,
            };
        }
    }

    /// Fills in the slices to send next, and returns their number.
    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut sent = self.sent;
        let pieces = [&self.head, &self.body].into_iter();
        let left = pieces.filter_map(|piece| {
            let left = piece.get(sent..).filter(|left| !left.is_empty());
            sent = sent.saturating_sub(piece.len());
            left
        });
        slices.iter_mut().zip(left).map(|(slice, left)| *slice = IoSlice::new(left)).count()
    }
}

/// The body of an answer. Read to its end, it returns the connection to the pool; dropped before, it closes it.
pub(super) struct Body {
    /// `None` when nothing more is read.
    connection: Option<Connection>,
    framing: Framing,
    reusable: bool,
    /// Bytes that arrived with the head.
    first: Vec<u8>,
    /// The rest of the request, if the answer began before all of it was sent.
    unsent: Option<OutgoingRequest>,
    pool: Arc<Pool>,
}

/// The result of reading from a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRead {
    /// Bytes were appended.
    Data,
    /// The body has ended.
    End,
}

impl Body {
    /// Whether the whole body was read.
    pub(super) fn is_over(&self) -> bool {
        self.framing.is_over() && self.first.is_empty()
    }

    /// The number of remaining bytes, if it is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.framing.left().map(|left| left + self.first.len() as u64)
    }

    /// Appends the bytes that have arrived to `piece`.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>, piece: &mut Vec<u8>) -> Poll<io::Result<BodyRead>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            match piece.capacity() {
                0 => *piece = first,
                _ => piece.extend_from_slice(&first),
            }
            return Poll::Ready(Ok(BodyRead::Data));
        }
        let filled = ready!(self.poll_arrival(context, piece));
        if filled.is_err() {
            self.connection = None;
        }
        self.settle();
        Poll::Ready(filled)
    }

    fn poll_arrival(&mut self, context: &mut Context<'_>, piece: &mut Vec<u8>) -> Poll<io::Result<BodyRead>> {
        if self.framing.is_over() {
            return Poll::Ready(Ok(BodyRead::End));
        }
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        if let Some(unsent) = &mut self.unsent
            && let Poll::Ready(sent) = unsent.poll(connection, context)
        {
            self.unsent = None;
            self.reusable &= sent.is_ok();
        }
        READ_BUFFER.with_borrow_mut(|room| {
            loop {
                let length = ready!(connection.poll_read(context, room))?;
                if length == 0 {
                    self.reusable = false;
                    return Poll::Ready(match self.framing.ends_with_close() {
                        true => {
                            self.framing = Framing::Length(0);
                            Ok(BodyRead::End)
                        }
                        false => Err(ErrorKind::UnexpectedEof.into()),
                    });
                }
                let before = piece.len();
                let arrived = room.get(..length).unwrap_or_default();
                piece.reserve(length);
                let used = self.framing.decode(arrived, piece).map_err(|_bad| ErrorKind::InvalidData)?;
                self.reusable &= used == length;
                if piece.len() > before {
                    return Poll::Ready(Ok(BodyRead::Data));
                }
                if self.framing.is_over() {
                    return Poll::Ready(Ok(BodyRead::End));
                }
            }
        })
    }

    /// Returns the connection to the pool once the answer is complete.
    fn settle(&mut self) {
        if self.framing.is_over()
            && let Some(connection) = self.connection.take()
            && self.reusable
            && self.unsent.is_none()
        {
            self.pool.put(connection);
        }
    }

    /// The pool that the connection came from.
    pub(super) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
