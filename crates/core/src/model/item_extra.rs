//! Fields and parts of an upstream's item that have no event of their own; passed on unchanged.

use amalgam_protocol::Json;

/// Unknown fields and parts of an item.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemExtra {
    /// Fields of the open message or reasoning item, as an object. The last one counts.
    Item {
        /// The item.
        of: PartOwner,
        /// The fields.
        fields: Json,
    },
    /// Fields of a call, as an object. The last one counts.
    Call {
        /// The key of the call.
        key: u64,
        /// The fields.
        fields: Json,
    },
    /// Fields of a part that has begun, as an object.
    Part {
        /// The item of the part.
        of: PartOwner,
        /// Its index among the parts.
        index: usize,
        /// The fields.
        fields: Json,
    },
    /// A complete part of an unknown kind; what follows is another part.
    Whole {
        /// The item of the part.
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
