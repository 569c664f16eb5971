//! Connections that switch to another protocol after one request.
//!
//! hyper returns the stream and its buffer once it has written a 101. The new protocol runs in the same task, under the
//! same connection limit and write timeout, and until the same drain ends.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use amalgam_core::BoxFuture;
use tokio::sync::watch;

use super::client_stream::ClientStream;

/// The code that continues with a connection.
type Successor = Box<dyn FnOnce(Switched) -> BoxFuture<'static, ()> + Send>;

/// Switches the protocol of a connection: in the extensions of an upgrade request.
#[derive(Clone, Default)]
pub struct Switch(Arc<Mutex<Option<Successor>>>);

impl Switch {
    /// Sets the code that continues with the connection once the response to this request, which has to be a 101, was
    /// written.
    pub fn to<F>(&self, successor: impl FnOnce(Switched) -> F + Send + 'static)
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

/// A connection after the switch.
pub struct Switched {
    /// Both directions.
    pub stream: ClientStream,
    /// Becomes true when the server begins to shut down.
    pub draining: watch::Receiver<bool>,
}
