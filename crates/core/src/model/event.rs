//! What an upstream's answer means, before the emitter assigns ids, order and numbers.

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
        /// What the model needs back in the next request, sealed.
        encrypted_content: Option<String>,
    },
    /// A call begins.
    CallStart {
        /// Tells the calls of one answer apart.
        key: u64,
        /// What is called.
        call: CallHead,
    },
    /// More of a call's arguments, or of a custom tool's input.
    CallDelta {
        /// Which call.
        key: u64,
        /// The piece.
        delta: Literal,
    },
    /// A call is complete.
    CallEnd {
        /// Which call.
        key: u64,
    },
    /// An item of an unknown kind begins; it is passed on unchanged.
    ItemStart {
        /// Tells such items apart.
        key: u64,
        /// The item so far.
        item: Json,
    },
    /// Progress of such an item: an event as the upstream wrote it. Indices and sequence numbers are assigned anew.
    ItemProgress {
        /// Which item; none for an event that belongs to no item.
        key: Option<u64>,
        /// The event.
        event: Json,
    },
    /// An item of an unknown kind, complete. Begins the item too if it has not begun.
    ItemEnd {
        /// Which item.
        key: u64,
        /// The item.
        item: Json,
    },
    /// Fields or parts of an item that no other event carries.
    Extra(ItemExtra),
    /// Something that was requested and is missing in the answer. Reported beside the answer, not in it.
    Loss(Loss),
    /// Token usage; the last event counts.
    Usage(Usage),
    /// The answer is complete. Nothing follows.
    Finish(Finish),
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHead {
    /// Function, custom tool, or a tool with its own item type.
    pub kind: CallKind,
    /// The upstream's id for the call; one of ours where it has none.
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
