//! Connections that go on in another protocol after one request.
//!
//! hyper hands back stream and buffer once it has written a 101. What follows runs where the connection ran: in the same
//! task, under the same cap, with the same patience for a client that does not read, and until the same drain ends.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use amalgam_core::BoxFuture;
use tokio::sync::watch;

use super::client_stream::ClientStream;

/// What goes on with a connection.
type Successor = Box<dyn FnOnce(Switched) -> BoxFuture<'static, ()> + Send>;

/// The way to another protocol: among the extensions of a request that asks for one.
#[derive(Clone, Default)]
pub(crate) struct Switch(Arc<Mutex<Option<Successor>>>);

impl Switch {
    /// Says what goes on with the connection once the answer to this request, which has to be a 101, was written.
    pub(crate) fn to<F>(&self, successor: impl FnOnce(Switched) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let successor: Successor = Box::new(|switched| Box::pin(successor(switched)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
    }

    pub(super) fn take(&self) -> Option<Successor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Switch")
    }
}

/// A connection after its switch.
pub(crate) struct Switched {
    /// Both directions.
    pub(crate) stream: ClientStream,
    /// Turns true when the server begins to shut down.
    pub(crate) draining: watch::Receiver<bool>,
}
