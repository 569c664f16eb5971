//! The meaning of an upstream's answer, before the emitter assigns ids, order and numbers.

use amalgam_protocol::{Json, Literal, Usage};

use super::ItemExtra;
use crate::{fault::Fault, loss::Loss, toolset::CallKind};

/// One event of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// The upstream has accepted the request.
    Begun {
        /// Its own id for the answer.
        id: Option<String>,
        /// The model that answers, by the upstream's account.
        model: Option<String>,
    },
    /// A message begins. Optional: text opens one by itself.
    MessageStart {
        /// `commentary` or `final_answer`.
        phase: Option<String>,
    },
    /// Text of a message.
    Text {
        /// The piece.
        delta: Literal,
        /// Its log probabilities, as the Responses wire writes them: an array.
        logprobs: Option<Json>,
    },
    /// An annotation of the text so far, as the Responses wire writes it.
    Annotation(Json),
    /// Text of a refusal.
    Refusal(Literal),
    /// The content part ends; more text begins another one.
    PartEnd,
    /// The message ends; more text begins another one.
    MessageEnd,
    /// Text of a reasoning summary.
    ReasoningSummary(Literal),
    /// A summary part ends; more summary begins another one.
    ReasoningSummaryEnd,
    /// Reasoning text, where the upstream returns it separately from a summary.
    ReasoningText(Literal),
    /// The reasoning item ends.
    ReasoningEnd {
        /// The sealed reasoning that the model needs back in the next request.
        encrypted_content: Option<String>,
    },
    /// A call begins.
    CallStart {
        /// Tells the calls of one answer apart.
        key: u64,
        /// The kind and the name of the call.
        call: CallHead,
    },
    /// More of a call's arguments, or of a custom tool's input.
    CallDelta {
        /// The call.
        key: u64,
        /// The piece.
        delta: Literal,
    },
    /// A call is complete.
    CallEnd {
        /// The call.
        key: u64,
    },
    /// An item of an unknown kind begins; it is passed on unchanged.
    ItemStart {
        /// Tells such items apart.
        key: u64,
        /// The item so far.
        item: Json,
    },
    /// Progress of such an item: an event as the upstream wrote it. Its indices and sequence numbers are replaced.
    ItemProgress {
        /// The item; `None` for an event that belongs to no item.
        key: Option<u64>,
        /// The event.
        event: Json,
    },
    /// An item of an unknown kind, complete. Begins the item too if it has not begun.
    ItemEnd {
        /// The item.
        key: u64,
        /// The item.
        item: Json,
    },
    /// Fields or parts of an item that no other event carries.
    Extra(ItemExtra),
    /// A requested part that is missing in the answer. Reported beside the answer, not in it.
    Loss(Loss),
    /// Token usage; the last event counts.
    Usage(Usage),
    /// The answer is complete. Nothing follows.
    Finish(Finish),
}

/// The kind, the id and the name of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHead {
    /// Function, custom tool, or a tool with its own item type.
    pub kind: CallKind,
    /// The upstream's id for the call; `None` if it has none, and then the emitter makes one.
    pub call_id: Option<String>,
    /// The client's name for the tool.
    pub name: String,
    /// The client's namespace of the tool.
    pub namespace: Option<String>,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model finished, with or without calls.
    Stop,
    /// The token limit was reached.
    Length,
    /// A content filter stopped it.
    ContentFilter,
    /// Another reason, as `incomplete_details.reason` names it.
    Incomplete(String),
    /// The upstream reported a failure.
    Failed(Fault),
}
