//! What an item of an upstream has beyond what the events of a model say: kept as it was written.

use amalgam_protocol::Json;

/// Fields and parts that nobody here knows.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemExtra {
    /// Fields of the message or of the thoughts that are being said, as an object. The last one counts.
    Item {
        /// Which of the two.
        of: PartOwner,
        /// The fields.
        fields: Json,
    },
    /// Fields of a call, as an object. The last one counts.
    Call {
        /// Which call.
        key: u64,
        /// The fields.
        fields: Json,
    },
    /// Fields of a part that was begun, as an object.
    Part {
        /// A part of what.
        of: PartOwner,
        /// Its place among the parts.
        index: usize,
        /// The fields.
        fields: Json,
    },
    /// A part of a kind that passes along as it is; what follows is another part.
    Whole {
        /// A part of what.
        of: PartOwner,
        /// The part.
        part: Json,
    },
}

/// What has parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOwner {
    /// A message.
    Message,
    /// Thoughts.
    Reasoning,
}
