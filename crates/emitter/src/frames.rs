//! The frames of a stream and the response object, written from the emitter's state.

use amalgam_protocol::{DONE, EventKind, Snapshot, Writer};

use super::Emitter;
use amalgam_core::Delivery;

impl Emitter {
    /// A sign of life for a client that waits; counts as an event.
    pub fn keepalive(&mut self) {
        self.event(EventKind::Keepalive, |_| {});
    }

    /// Whether frames wait to be sent.
    pub fn has_frames(&self) -> bool {
        !self.frames.bytes().is_empty()
    }

    /// The frames that wait to be sent.
    pub fn frames(&self) -> &[u8] {
        self.frames.bytes()
    }

    /// Bytes of frames that wait to be sent.
    pub fn frames_len(&self) -> usize {
        self.frames.bytes().len()
    }

    /// The complete frames since the last call.
    pub fn take_frames(&mut self) -> Vec<u8> {
        self.frames.take()
    }

    /// The current response object.
    pub fn response(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.response_len());
        self.snapshot().write(&mut writer);
        writer.into_bytes()
    }

    /// Roughly the length of the response object.
    pub(super) fn response_len(&self) -> usize {
        let output: usize = self.output.iter().map(|item| item.bytes().len() + 1).sum();
        output + self.settings.len() + 640
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            id: &self.response_id,
            created_at: self.created_at,
            completed_at: self.completed_at,
            status: self.status,
            error: self.error.as_ref(),
            incomplete_reason: self.incomplete_reason.as_deref(),
            output: &self.output,
            usage: self.usage(),
            provenance: &self.provenance,
            settings: &self.settings,
        }
    }

    pub(super) fn life_cycle(&mut self, kind: EventKind) {
        if self.delivery == Delivery::Whole {
            return;
        }
        let mut frames = std::mem::take(&mut self.frames);
        frames.reserve(self.response_len());
        frames.frame(kind.name(), |writer| {
            writer.key("sequence_number").number(self.sequence);
            let running = matches!(kind, EventKind::Created | EventKind::InProgress);
            let snapshot = self.snapshot();
            let usage = snapshot.usage.or(self.prompt.filter(|_| running));
            Snapshot { usage, ..snapshot }.write(writer.key("response"));
        });
        self.frames = frames;
        self.sequence += 1;
    }

    pub(super) fn event(&mut self, kind: EventKind, fill: impl FnOnce(&mut Writer)) {
        if self.delivery == Delivery::Whole {
            return;
        }
        let sequence = self.sequence;
        self.frames.frame(kind.name(), |writer| {
            writer.key("sequence_number").number(sequence);
            fill(writer);
        });
        self.sequence += 1;
    }

    pub(super) fn done(&mut self) {
        if self.delivery == Delivery::Stream {
            self.frames.outside(DONE);
        }
    }
}
