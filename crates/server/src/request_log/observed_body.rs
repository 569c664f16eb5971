//! A streamed response body that ends its request.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{Error, body::Body};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use super::{OpenRequest, RequestEnd};

/// The body of a stream. The request ends with its last frame, or when the connection drops it.
pub(super) struct ObservedBody {
    body: Body,
    request: Box<OpenRequest>,
    is_open: bool,
}

impl ObservedBody {
    pub(super) fn new(body: Body, request: Box<OpenRequest>) -> Self {
        request.log.metrics.stream_opened();
        Self { body, request, is_open: true }
    }

    fn end(&mut self, end: RequestEnd) {
        if std::mem::replace(&mut self.is_open, false) {
            self.request.log.metrics.stream_closed();
        }
        self.request.end(end);
    }
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self { body, request, .. } = &mut *self;
        let polled = request.span().in_scope(|| Pin::new(body).poll_frame(context));
        match &polled {
            Poll::Ready(None) => self.end(RequestEnd::Answered),
            Poll::Ready(Some(Err(_))) => self.end(RequestEnd::Disconnected),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        // hyper does not poll a body again that says it has ended.
        let end = match self.body.is_end_stream() {
            true => RequestEnd::Answered,
            false => RequestEnd::Disconnected,
        };
        self.end(end);
    }
}

impl std::fmt::Debug for ObservedBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ObservedBody")
    }
}
