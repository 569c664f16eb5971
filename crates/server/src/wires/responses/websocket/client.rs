//! The client of a WebSocket: its messages, the errors for it, and keepalive pings.

use std::{pin::Pin, sync::Arc, time::Duration};

use amalgam_core::{Fault, FaultKind, Scope};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    select,
    time::{Instant, Sleep, sleep_until},
};
use tokio_tungstenite::tungstenite::protocol::frame::{Utf8Bytes, coding::CloseCode};

use super::message::{self, Lane, in_lane, refusal};
use super::message_stream::{MessageStream, ReceiveError, Received};
use crate::{body::BodyLimits, request_log::RequestLog, request_memory::RequestMemory};

/// The idle time after which the client is pinged. Pings also keep proxies from closing the connection.
const PING_AFTER: Duration = Duration::from_secs(15);

/// The timeout for the answer to a ping.
const PONG_WITHIN: Duration = Duration::from_secs(15);

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The client has disconnected.
    Disconnected,
    /// The client closes it.
    ClosedByClient,
    /// The server closes it.
    Close(CloseCode, Utf8Bytes),
}

impl End {
    pub(super) fn close(code: CloseCode, reason: &'static str) -> Self {
        Self::Close(code, Utf8Bytes::from_static(reason))
    }
}

/// The client's activity, to be handled by [`Client::handle`]; none when the keepalive timer fires.
pub(super) type Activity = Result<Option<Received>, ReceiveError>;

/// Where refused messages are logged and counted.
pub(super) struct RefusalLog {
    pub(super) log: Arc<RequestLog>,
    /// The caller who opened the connection, with the id of that request.
    pub(super) opened_by: Option<Scope>,
}

/// The client's end of a connection.
pub(super) struct Client<S> {
    messages: MessageStream<S>,
    refusals: RefusalLog,
    /// The keepalive timer.
    alarm: Pin<Box<Sleep>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) async fn new(stream: S, limits: BodyLimits, memory: &RequestMemory, refusals: RefusalLog) -> Self {
        Self {
            refusals,
            messages: MessageStream::new(stream, limits, memory).await,
            alarm: Box::pin(sleep_until(Instant::now() + PING_AFTER)),
        }
    }

    /// Waits for the client. Cancel-safe.
    pub(super) async fn activity(&mut self) -> Activity {
        select! {
            received = self.messages.receive() => received.map(Some),
            () = self.alarm.as_mut() => Ok(None),
        }
    }

    /// Handles activity by the protocol; returns a message.
    pub(super) async fn handle(&mut self, activity: Activity) -> Result<Option<Bytes>, End> {
        let fault = match activity {
            Ok(Some(Received::Text(message))) => return Ok(Some(message)),
            Ok(Some(Received::Pong)) => return Ok(None),
            // Waits until the pong is sent: a client that does not read cannot make the server queue pongs.
            Ok(Some(Received::Ping)) => return self.flush().await.map(|()| None),
            Ok(None) => return self.check_alive().await.map(|()| None),
            Ok(Some(Received::Close)) => return Err(End::ClosedByClient),
            Err(ReceiveError::Disconnected) => return Err(End::Disconnected),
            Err(ReceiveError::Protocol(reason)) => return Err(End::Close(CloseCode::Protocol, reason.into())),
            Err(ReceiveError::NotText) => return Err(End::close(CloseCode::Invalid, "a message is not UTF-8")),
            Err(ReceiveError::Refused(fault)) => fault,
        };
        self.send_fault(&fault, &None).await?;
        Err(match fault.kind {
            FaultKind::UnsupportedMedia => End::close(CloseCode::Unsupported, "text only"),
            FaultKind::TooLarge => End::close(CloseCode::Size, "a message is too large"),
            FaultKind::OutOfMemory => End::close(CloseCode::Again, "there is no memory for a message"),
            _ => End::close(CloseCode::Policy, "a message was not sent in time"),
        })
    }

    /// The same during a response: another request is refused.
    pub(super) async fn handle_busy(&mut self, activity: Activity, depth: usize) -> Result<(), End> {
        let Some(message) = self.handle(activity).await? else { return Ok(()) };
        let (lane, create) = message::read(&message, depth);
        let fault = create.err().unwrap_or_else(|| {
            let message = "A response is in progress on this connection: wait for its end, or open another connection.";
            Fault::new(FaultKind::Conflict, message).code("response_in_progress")
        });
        self.send_fault(&fault, &lane).await
    }

    /// Pings an idle client, or disconnects it if it does not answer.
    async fn check_alive(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let received_at = self.messages.received_at();
        if now.duration_since(received_at) < PING_AFTER {
            self.alarm.as_mut().reset(received_at + PING_AFTER);
            return Ok(());
        }
        // Anything that the client sends after a ping counts as an answer.
        match self.messages.pinged_at().filter(|at| *at > received_at) {
            Some(at) if now >= at + PONG_WITHIN => {
                Err(End::close(CloseCode::Policy, "a ping was not answered in time"))
            }
            Some(at) => {
                self.alarm.as_mut().reset(at + PONG_WITHIN);
                Ok(())
            }
            None => {
                self.alarm.as_mut().reset(now + PONG_WITHIN);
                self.messages.ping().await.map_err(|_| End::Disconnected)
            }
        }
    }

    /// Queues an event; `flush` sends it.
    pub(super) async fn queue(&mut self, event: Bytes) -> Result<(), End> {
        self.messages.queue(event).await.map_err(|_| End::Disconnected)
    }

    /// Sends queued events. Waits while the client does not read.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        self.messages.flush().await.map_err(|_| End::Disconnected)
    }

    /// Sends an error event.
    pub(super) async fn send_fault(&mut self, fault: &Fault, lane: &Lane) -> Result<(), End> {
        let RefusalLog { log, opened_by } = &self.refusals;
        log.message_refused(opened_by.as_ref(), fault);
        self.queue(in_lane(refusal(fault), lane)).await?;
        self.flush().await
    }

    /// Closes the connection.
    pub(super) async fn end(self, end: End) {
        match end {
            End::Disconnected => {}
            End::ClosedByClient => self.messages.answer_close().await,
            End::Close(code, reason) => self.messages.close(code, reason).await,
        }
    }
}
