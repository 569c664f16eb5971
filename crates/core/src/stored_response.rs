//! Renders a stored response: as a response object, and as the frames of its stream.

use amalgam_protocol::{DONE, ErrorObject, EventKind, Json, Raw, ResponseSettings, Snapshot, Status, Writer};

use crate::{
    file_search::{self, Results},
    store::{ResponseState, StoredResponse},
};

impl StoredResponse {
    /// The response object, byte for byte as its caller received it.
    pub fn object(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.output.bytes().len() + self.settings.len() + 640);
        self.write(&mut writer);
        writer.into_bytes()
    }

    /// The response with search results that its caller did not include.
    #[must_use]
    pub fn with_results(mut self) -> Self {
        self.output = array_of(&self.items(Results::Shown));
        self
    }

    /// The output items as the API returns them.
    fn items(&self, results: Results) -> Vec<Json> {
        let items = self.output.raw().elements().map(|item| Json::within(self.output.bytes(), item));
        items.map(|item| file_search::shown(item, results)).collect()
    }

    /// Writes the response object.
    pub fn write(&self, writer: &mut Writer) {
        let state = &self.status;
        let output = self.items(Results::Hidden);
        let settings = ResponseSettings::stored(self.settings.clone());
        Snapshot {
            id: &self.id,
            created_at: self.created_at_ms / 1000,
            completed_at: state.completed_at_ms.map(|at| at / 1000),
            status: state.status,
            error: state.error.as_ref(),
            incomplete_reason: state.incomplete_reason.as_deref(),
            output: &output,
            usage: state.usage,
            provenance: &state.provenance,
            settings: &settings,
        }
        .write(writer);
    }

    /// A complete stream of a finished response, rebuilt from the response: its beginning, its items and its end. For
    /// responses whose events are not stored.
    pub fn all_frames(&self) -> Vec<u8> {
        let status = ResponseState {
            status: Status::InProgress,
            completed_at_ms: None,
            error: None,
            incomplete_reason: None,
            usage: None,
            provenance: self.status.provenance.clone(),
        };
        let begun = Self { status, output: no_items(), ..self.clone() };
        let mut writer = Writer::default();
        let mut sequence = 0;
        for kind in [EventKind::Created, EventKind::InProgress] {
            writer.frame(kind.name(), |writer| {
                writer.key("sequence_number").number(sequence);
                begun.write(writer.key("response"));
            });
            sequence += 1;
        }
        for (index, item) in self.items(Results::Hidden).iter().enumerate() {
            for kind in [EventKind::ItemAdded, EventKind::ItemDone] {
                writer.frame(kind.name(), |writer| {
                    writer.key("sequence_number").number(sequence);
                    writer.key("output_index").number(index as u64);
                    writer.key("item").raw(item.raw());
                });
                sequence += 1;
            }
        }
        let mut frames = writer.into_bytes();
        frames.extend_from_slice(&self.final_frames(sequence));
        frames
    }

    /// The frames that end its stream, numbered from `sequence`; empty while it has not ended.
    ///
    /// They are not stored with the other frames: they follow from the response itself, also when the process that ran it
    /// crashed before it could write them.
    pub fn final_frames(&self, mut sequence: u64) -> Vec<u8> {
        let mut writer = Writer::default();
        let kind = match self.status.status {
            Status::Queued | Status::InProgress => return Vec::new(),
            Status::Completed => EventKind::Completed,
            Status::Incomplete => EventKind::Incomplete,
            // The API has no event for a cancellation; every client knows this one, and the status inside is exact.
            Status::Cancelled => EventKind::Incomplete,
            Status::Failed => EventKind::Failed,
        };
        if let (Status::Failed, Some(error)) = (self.status.status, &self.status.error) {
            error_frame(&mut writer, sequence, error);
            sequence += 1;
        }
        writer.frame(kind.name(), |writer| {
            writer.key("sequence_number").number(sequence);
            self.write(writer.key("response"));
        });
        writer.outside(DONE);
        writer.into_bytes()
    }
}

/// The `error` event: nested for the specification, flat for the SDKs.
pub fn error_frame(writer: &mut Writer, sequence: u64, error: &ErrorObject) {
    writer.frame(EventKind::Error.name(), |writer| {
        writer.key("sequence_number").number(sequence);
        writer.key("error").object(|writer| error.write_fields(writer));
        for (name, text) in [("code", &error.code), ("param", &error.param)] {
            match text {
                Some(text) => writer.key(name).string(text),
                None => writer.key(name).null(),
            }
        }
        writer.key("message").string(&error.message);
    });
}

/// An array of items in its stored form.
pub fn array_of(items: &[Json]) -> Json {
    let length: usize = items.iter().map(|item| item.bytes().len() + 1).sum();
    let mut writer = Writer::with_capacity(length + 2);
    writer.array(|writer| items.iter().for_each(|item| writer.valid(item.bytes())));
    Json::from_writer(writer)
}

/// The empty array.
pub fn no_items() -> Json {
    Json::from(Raw::parse(b"[]").expect("an empty array is JSON"))
}
