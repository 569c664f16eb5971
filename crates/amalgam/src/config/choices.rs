//! Settings with a fixed set of values.

use super::value::{FromValue, Value};

/// One of a few words.
pub(crate) trait Choice: Sized {
    /// The words of the file, in order.
    const NAMES: &'static [&'static str];

    fn named(word: &str) -> Option<Self>;

    /// The word of the file.
    fn name(self) -> &'static str;
}

/// An enum whose variants have the words that the file uses; the first stands in where a value was refused.
macro_rules! choice {
    ($(#[$note:meta])* $name:ident { $($(#[$variant_note:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$note])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_note])* $variant,)+ }

        impl Choice for $name {
            const NAMES: &'static [&'static str] = &[$($word,)+];

            fn named(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl FromValue for $name {
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::Text(word) => Self::named(&word),
                    _ => None,
                }
            }

            fn placeholder() -> Self {
                [$(Self::$variant,)+][0]
            }
        }
    };
}

choice! {
    /// What an upstream speaks.
    Kind {
        Responses = "responses",
        Chat = "chat",
        Anthropic = "anthropic",
        Demo = "demo",
    }
}

choice! {
    /// Whether a tenant's responses are kept.
    State {
        Stored = "stored",
        Stateless = "stateless",
    }
}

choice! {
    /// The request shapes that a `responses` upstream wants.
    Dialect {
        Standard = "standard",
        Agn003 = "agn003",
    }
}

choice! {
    /// How a `chat` upstream is asked for tool calls.
    ToolCalls {
        Native = "native",
        Constrained = "constrained",
    }
}

choice! {
    /// The role that carries instructions to a `chat` upstream.
    SystemRole {
        System = "system",
        Developer = "developer",
        User = "user",
    }
}

choice! {
    /// Which reasoning of its model a `chat` upstream is sent again.
    ReplayReasoning {
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

choice! {
    /// How an `anthropic` upstream is asked for an answer by a schema.
    StructuredOutput {
        Auto = "auto",
        Native = "native",
        Tool = "tool",
    }
}

choice! {
    /// What happens to the address of an image.
    ImageUrls {
        Pass = "pass",
        Fetch = "fetch",
    }
}

choice! {
    /// What a model reads.
    Modality {
        Text = "text",
        Image = "image",
        File = "file",
        Audio = "audio",
    }
}

choice! {
    /// Of which turns the model calls are kept.
    KeepTranscripts {
        Stored = "stored",
        None = "none",
    }
}

choice! {
    /// How names are written in answers of the strict contract.
    Casing {
        Pascal = "pascal",
        Camel = "camel",
    }
}

choice! {
    /// What happens to unknown fields of the strict contract.
    UnknownFields {
        Refuse = "refuse",
        Ignore = "ignore",
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        Text = "text",
        Json = "json",
    }
}
