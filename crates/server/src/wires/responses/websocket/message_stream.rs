//! A WebSocket connection as messages. tungstenite handles frames, masks, UTF-8 and the close handshake.
//!
//! `receive` is cancel-safe; the methods that send have to be awaited to their end, so that no message is cut.

use amalgam_core::Fault;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::Instant,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        error::ProtocolError,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame, Utf8Bytes,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use amalgam_listener::linger;

use super::bounded_stream::{BoundedStream, FRAGMENT_BYTES};
use crate::{body::BodyLimits, request_memory::RequestMemory};

/// tungstenite's read buffer, allocated as long as the connection is open.
const READ_BUFFER: usize = 4 * 1024;

/// Small messages are written together up to this size.
const WRITE_BUFFER: usize = 16 * 1024;

/// A longer message is sent in fragments. tungstenite never shrinks its write buffer, and connections are long-lived.
const MAX_FRAME_BYTES: usize = 32 * 1024;

/// A message or control frame of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A whole message. It counts as request memory until it is dropped.
    Text(Bytes),
    /// A ping; its pong is sent with the next flush.
    Ping,
    /// A pong, requested or not.
    Pong,
    /// The client closes the connection.
    Close,
}

/// Why receiving failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    /// The connection broke.
    #[error("the client has disconnected")]
    Disconnected,
    /// The client's data is not WebSocket.
    #[error("the client broke the protocol: {0}")]
    Protocol(String),
    /// A text message that is not UTF-8.
    #[error("a message is not UTF-8")]
    NotText,
    /// A message that is too large, too slow, binary, or beyond the memory limit.
    #[error("a message was refused: {0}")]
    Refused(Fault),
}

/// One connection.
pub(super) struct MessageStream<S> {
    stream: WebSocketStream<BoundedStream<S>>,
    pinged_at: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> MessageStream<S> {
    pub(super) async fn new(stream: S, limits: BodyLimits, memory: &RequestMemory) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_frame_size(Some(FRAGMENT_BYTES))
            .max_message_size(Some(limits.bytes));
        let stream = BoundedStream::new(stream, limits, memory);
        Self { stream: WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await, pinged_at: None }
    }

    /// When the client last sent something, including a part of a message.
    pub(super) fn received_at(&self) -> Instant {
        self.stream.get_ref().received_at()
    }

    /// When the client was last pinged.
    pub(super) fn pinged_at(&self) -> Option<Instant> {
        self.pinged_at
    }

    /// The client's next message or control frame. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Received, ReceiveError> {
        match self.stream.next().await {
            Some(Ok(Message::Text(text))) => {
                let reservation = self.stream.get_mut().take_reservation();
                Ok(Received::Text(reservation.hold(text.into())))
            }
            Some(Ok(Message::Ping(_))) => Ok(Received::Ping),
            Some(Ok(Message::Pong(_))) => Ok(Received::Pong),
            Some(Ok(Message::Close(_))) => Ok(Received::Close),
            Some(Err(Error::Io(error))) => Err(match error.downcast::<Fault>() {
                Ok(fault) => ReceiveError::Refused(fault),
                Err(_) => ReceiveError::Disconnected,
            }),
            Some(Err(Error::Utf8(_))) => Err(ReceiveError::NotText),
            // Only data frames with a 64-bit length are longer than a fragment; control frames may not be.
            Some(Err(Error::Capacity(_))) => Err(ReceiveError::Protocol("a frame is too long".to_owned())),
            Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Err(ReceiveError::Disconnected),
            Some(Err(Error::Protocol(error))) => Err(ReceiveError::Protocol(error.to_string())),
            None | Some(Ok(Message::Binary(_) | Message::Frame(_)) | Err(_)) => Err(ReceiveError::Disconnected),
        }
    }

    /// Queues a text message; several are sent in one write. If the buffer is full, waits for the client up to the
    /// write timeout of its stream.
    pub(super) async fn queue(&mut self, mut text: Bytes) -> Result<(), Error> {
        let mut opcode = OpCode::Data(Data::Text);
        loop {
            let fragment = text.split_to(text.len().min(MAX_FRAME_BYTES));
            self.stream.feed(Message::Frame(Frame::message(fragment, opcode, text.is_empty()))).await?;
            opcode = OpCode::Data(Data::Continue);
            if text.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes the queue, including pongs.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.flush().await
    }

    pub(super) async fn ping(&mut self) -> Result<(), Error> {
        self.pinged_at = Some(Instant::now());
        self.stream.send(Message::Ping(Bytes::new())).await
    }

    /// Closes the connection and waits briefly for the client to do the same. `reason` has at most 123 bytes.
    pub(super) async fn close(mut self, code: CloseCode, reason: Utf8Bytes) {
        if self.stream.close(Some(CloseFrame { code, reason })).await.is_ok() {
            linger(&mut self.stream.into_inner().into_inner()).await;
        }
    }

    /// Ends a connection that the client has closed, with tungstenite's close frame.
    pub(super) async fn answer_close(mut self) {
        if self.stream.flush().await.is_ok() {
            let _ = self.stream.into_inner().into_inner().shutdown().await;
        }
    }
}

#[cfg(test)]
#[path = "message_stream_tests.rs"]
mod tests;
