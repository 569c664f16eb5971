//! The blocks of an answer while they are being read.

use amalgam_protocol::{ANTHROPIC, Json, Literal, MESSAGES_BLOCK, Raw};

/// A block that has begun and not ended.
pub(super) enum Block {
    Text {
        from: usize,
        citations: Vec<Json>,
    },
    Call {
        custom: bool,
        arguments: Arguments,
    },
    Answer {
        arguments: Arguments,
    },
    Thinking {
        text: Vec<u8>,
        signature: Vec<u8>,
        shown: bool,
    },
    Redacted {
        data: Vec<u8>,
    },
    /// A block that a client of this API gets as it came: of a tool that the upstream runs, or of an unknown kind.
    Kept {
        block: Json,
        /// Pieces of its input.
        input: String,
    },
    /// The same for a client of another API.
    Ignored,
}

/// The item of a kept block, with the input that followed it.
pub(super) fn kept_item(block: &Json, input: &str) -> Json {
    let block = with_input(block, input);
    Json::object(|writer| {
        writer.key("type").string(MESSAGES_BLOCK);
        writer.key("status").string("completed");
        writer.key(ANTHROPIC).object(|writer| writer.key("block").raw(block.raw()));
    })
}

/// The fields of a message that a stop sequence has ended.
pub(super) fn stop_fields(sequence: &str) -> Json {
    Json::object(|writer| {
        writer.key(ANTHROPIC).object(|writer| writer.key("stop_sequence").string(sequence));
    })
}

fn with_input(block: &Json, input: &str) -> Json {
    let Ok(input) = Raw::parse(input.as_bytes()) else { return block.clone() };
    Json::object(|writer| {
        for (key, value) in block.raw().fields() {
            let value = if key.is("input") { input } else { value };
            writer.key_text(&key.decode()).raw(value);
        }
    })
}

/// The input of a tool: one value at the start, or pieces.
pub(super) struct Arguments {
    /// The value at the start, used if no pieces follow.
    given: String,
    /// The input so far, if the consumer needs the complete value.
    collected: Option<String>,
    arrived: bool,
}

impl Arguments {
    pub(super) fn new(block: Raw<'_>, whole: bool) -> Self {
        let given = block.get("input").filter(|input| !input.is_null()).map_or("{}", Raw::text);
        Self { given: given.to_owned(), collected: whole.then(String::new), arrived: false }
    }

    /// The piece to pass on now, if any.
    pub(super) fn take(&mut self, piece: Literal) -> Option<Literal> {
        self.arrived = true;
        match &mut self.collected {
            Some(collected) => {
                collected.push_str(&piece.decode());
                None
            }
            None => Some(piece),
        }
    }

    /// The remaining value at the end: the complete value if it was held back, or the value at the start if no pieces
    /// followed.
    pub(super) fn rest(self) -> Option<String> {
        match (self.arrived, self.collected) {
            (true, collected) => collected,
            (false, _) => Some(self.given),
        }
    }
}
