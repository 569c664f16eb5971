//! How an upstream's answer becomes [`ModelEvent`]s: written once a wire, free of I/O.

use amalgam_core::{ModelError, ModelEvent};
use amalgam_protocol::Frame;
use bytes::Bytes;

/// Reads one answer of an upstream.
///
/// An implementer promises: exactly one [`ModelEvent::Finish`] comes out of a whole or a streamed answer, as the last
/// event; an answer that ends without saying so is [`ModelError::CutShort`].
pub(crate) trait Decode: Send + Unpin + 'static {
    /// One frame of a streamed answer.
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// The stream is over. Called once, and not after a `Finish`.
    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// A whole answer, 2xx.
    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;
}
