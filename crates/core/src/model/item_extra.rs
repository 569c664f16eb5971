//! Fields and parts of an upstream's item that have no event of their own; passed on unchanged.

use amalgam_protocol::Json;

/// Unknown fields and parts of an item.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemExtra {
    /// Fields of the open message or reasoning item, as an object. The last one counts.
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
    /// Fields of a part that has begun, as an object.
    Part {
        /// A part of what.
        of: PartOwner,
        /// Its place among the parts.
        index: usize,
        /// The fields.
        fields: Json,
    },
    /// A complete part of an unknown kind; what follows is another part.
    Whole {
        /// A part of what.
        of: PartOwner,
        /// The part.
        part: Json,
    },
}

/// The item that a part belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOwner {
    /// A message.
    Message,
    /// A reasoning item.
    Reasoning,
}
