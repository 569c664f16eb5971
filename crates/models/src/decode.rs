//! The trait of decoders: an upstream's answer becomes [`ModelEvent`]s. One implementation for each API, free of I/O.

use amalgam_core::{ModelError, ModelEvent};
use amalgam_protocol::Frame;
use bytes::Bytes;

/// Reads one answer of an upstream.
///
/// An implementer guarantees exactly one [`ModelEvent::Finish`], as the last event of a whole or a streamed answer. An
/// answer that ends without its final event is [`ModelError::CutShort`].
pub(crate) trait Decode: Send + Unpin + 'static {
    /// Decodes one frame of a streamed answer.
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// Handles the end of the stream. Called once, and not after a `Finish`.
    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// Decodes a whole answer with a 2xx status.
    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;
}
