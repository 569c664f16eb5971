//! The group of routes that a request belongs to, in metrics and logs.

use crate::turn_summary::Wire;

/// A group of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// `/v1/responses`
    Responses,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/messages`
    Messages,
    /// `/v1/conversations`
    Conversations,
    /// `/v1/files`
    Files,
    /// `/v1/models`
    Models,
    /// `/api/v2`
    Assistant,
    /// `/api/agent`
    Execute,
    /// `/admin`
    Admin,
    /// Health, readiness, metrics and the OpenAPI document.
    Operations,
    /// Every other path.
    Other,
}

impl Door {
    /// All doors, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Responses,
        Self::ChatCompletions,
        Self::Embeddings,
        Self::Messages,
        Self::Conversations,
        Self::Files,
        Self::Models,
        Self::Assistant,
        Self::Execute,
        Self::Admin,
        Self::Operations,
        Self::Other,
    ];

    /// The names of all doors.
    pub const NAMES: [&'static str; 12] = [
        "responses",
        "chat_completions",
        "embeddings",
        "messages",
        "conversations",
        "files",
        "models",
        "assistant",
        "execute",
        "admin",
        "operations",
        "other",
    ];

    /// The name in metrics, logs and the configuration.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The door with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.name() == name)
    }
}

impl From<Wire> for Door {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::Responses => Self::Responses,
            Wire::ChatCompletions => Self::ChatCompletions,
            Wire::Embeddings => Self::Embeddings,
            Wire::Assistant => Self::Assistant,
            Wire::Execute => Self::Execute,
            Wire::Messages => Self::Messages,
        }
    }
}
