//! One request and its answer on one connection, written and read in the task of the turn itself.
//!
//! No task stands between a turn and its upstream: what has arrived is read when the turn is polled, all of it at once,
//! and a turn that is dropped closes its connection.

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
    head::{self, HEAD_BYTES, Head, Parsed, Terms},
    pool::Pool,
};

/// The most that is read at once.
const READ_BYTES: usize = 64 * 1024;

/// The most pieces that are handed to the system at once.
const SLICES: usize = 64;

thread_local! {
    /// Where bytes arrive. One for each thread instead of one for each connection: a stream that waits holds no memory.
    static ARRIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
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

    /// Whether nothing has come since the last answer. An upstream has nothing to say between two of them: if there is
    /// something, it is the end of the connection, or a reason not to use it.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        ARRIVED.with_borrow_mut(|room| self.poll_read(&mut context, room).is_pending())
    }

    /// Reads into `room`; nothing means that the upstream has closed.
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
pub(super) enum Broken {
    /// The upstream has not got the whole request and has said nothing: it cannot have acted on it.
    NotTaken(io::Error),
    /// The connection broke before the answer began.
    Closed(io::Error),
    /// What came is not an answer.
    Head(ModelError),
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn exchange(
    connection: Connection,
    head: Bytes,
    body: Bytes,
    pool: &Arc<Pool>,
) -> Result<(Head, Body), Broken> {
    let mut asking =
        Asking { connection, unsent: Some(Unsent { head, body, sent: 0 }), failed: None, partial: Vec::new() };
    let Answered { head, terms, first, clean } = poll_fn(|context| asking.poll(context)).await?;
    let Asking { connection, unsent, failed, .. } = asking;
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

struct Asking {
    connection: Connection,
    unsent: Option<Unsent>,
    /// Why sending ended early. An answer may have come all the same: a refusal is often sent before a body is read.
    failed: Option<io::Error>,
    /// The beginning of a head that did not arrive in one piece.
    partial: Vec<u8>,
}

struct Answered {
    head: Head,
    terms: Terms,
    /// What has arrived of the body.
    first: Vec<u8>,
    /// Nothing came behind the answer.
    clean: bool,
}

impl Asking {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Answered, Broken>> {
        if let Some(unsent) = &mut self.unsent
            && let Poll::Ready(sent) = unsent.poll(&mut self.connection, context)
        {
            self.unsent = None;
            self.failed = sent.err();
        }
        ARRIVED.with_borrow_mut(|room| {
            loop {
                let arrived = match self.connection.poll_read(context, room) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) => Err(ErrorKind::UnexpectedEof.into()),
                    Poll::Ready(arrived) => arrived,
                };
                let arrived = match arrived {
                    Ok(length) => room.get(..length).unwrap_or_default(),
                    Err(error) => return Poll::Ready(Err(self.broken(error))),
                };
                let read = if self.partial.is_empty() {
                    read_head(arrived)
                } else {
                    self.partial.extend_from_slice(arrived);
                    read_head(&self.partial)
                };
                match read {
                    Ok(Some(answered)) => return Poll::Ready(Ok(answered)),
                    Err(error) => return Poll::Ready(Err(Broken::Head(error))),
                    Ok(None) if self.partial.is_empty() => self.partial.extend_from_slice(arrived),
                    Ok(None) => {}
                }
                // Interim answers count too: there is no end to them otherwise.
                if self.partial.len() > HEAD_BYTES {
                    return Poll::Ready(Err(Broken::Head(head::too_large())));
                }
            }
        })
    }

    fn broken(&mut self, error: io::Error) -> Broken {
        let half_sent = self.unsent.is_some() || self.failed.is_some();
        let error = self.failed.take().unwrap_or(error);
        match half_sent && self.partial.is_empty() {
            true => Broken::NotTaken(error),
            false => Broken::Closed(error),
        }
    }
}

/// The head at the beginning of what has arrived, with what follows it.
fn read_head(mut arrived: &[u8]) -> Result<Option<Answered>, ModelError> {
    loop {
        match head::parse(arrived)? {
            Parsed::Partial => return Ok(None),
            Parsed::Interim(length) => arrived = arrived.get(length..).unwrap_or_default(),
            Parsed::Whole(head, mut terms, length) => {
                let rest = arrived.get(length..).unwrap_or_default();
                let mut first = Vec::with_capacity(rest.len());
                let used = terms.framing.decode(rest, &mut first).map_err(|_| ModelError::CutShort)?;
                return Ok(Some(Answered { head, terms, first, clean: used == rest.len() }));
            }
        }
    }
}

/// What is left to send of a request.
struct Unsent {
    head: Bytes,
    body: Bytes,
    sent: usize,
}

impl Unsent {
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

    /// Fills in what is sent next; how many pieces that are.
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

/// The body of an answer. Read to its end, it gives the connection back; dropped before, it closes it.
pub(super) struct Body {
    /// Taken when nothing more is read from it.
    connection: Option<Connection>,
    framing: Framing,
    reusable: bool,
    /// What came together with the head.
    first: Vec<u8>,
    /// The rest of the request, where the answer began before all of it was sent.
    unsent: Option<Unsent>,
    pool: Arc<Pool>,
}

/// What a look at a body brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Something was appended.
    Some,
    /// The body is over, and was before.
    End,
}

impl Body {
    /// Whether everything has arrived and was handed out.
    pub(super) fn is_over(&self) -> bool {
        self.framing.is_over() && self.first.is_empty()
    }

    /// Bytes that are still to come, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.framing.left().map(|left| left + self.first.len() as u64)
    }

    /// Appends what has arrived to `piece`.
    pub(super) fn poll_fill(&mut self, context: &mut Context<'_>, piece: &mut Vec<u8>) -> Poll<io::Result<Arrived>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            match piece.capacity() {
                0 => *piece = first,
                _ => piece.extend_from_slice(&first),
            }
            return Poll::Ready(Ok(Arrived::Some));
        }
        let filled = ready!(self.poll_arrival(context, piece));
        if filled.is_err() {
            self.connection = None;
        }
        self.settle();
        Poll::Ready(filled)
    }

    fn poll_arrival(&mut self, context: &mut Context<'_>, piece: &mut Vec<u8>) -> Poll<io::Result<Arrived>> {
        if self.framing.is_over() {
            return Poll::Ready(Ok(Arrived::End));
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
        ARRIVED.with_borrow_mut(|room| {
            loop {
                let length = ready!(connection.poll_read(context, room))?;
                if length == 0 {
                    self.reusable = false;
                    return Poll::Ready(match self.framing.ends_with_close() {
                        true => {
                            self.framing = Framing::Length(0);
                            Ok(Arrived::End)
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
                    return Poll::Ready(Ok(Arrived::Some));
                }
                if self.framing.is_over() {
                    return Poll::Ready(Ok(Arrived::End));
                }
            }
        })
    }

    /// Gives the connection back once nothing of the answer is left on it.
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
