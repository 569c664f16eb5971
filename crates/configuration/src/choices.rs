//! Settings with a fixed set of values.

use amalgam_core::TenantState;
use amalgam_execute::{envelope::Casing, request::UnknownFields};
use amalgam_models::{Dialect, ReplayReasoning, StructuredOutput, SystemRole, ToolCalls};

use super::value::{FromValue, Value};

/// A setting with a fixed set of names.
pub trait NamedChoice: Sized {
    /// The names in the file, in order.
    const NAMES: &'static [&'static str];

    /// The choice with a name, if there is one.
    fn named(word: &str) -> Option<Self>;

    /// The name in the file.
    fn name(self) -> &'static str;
}

/// An enum with the names of its variants in the file; the first one is the placeholder for a refused value. With a
/// body of comments the enum is defined here, otherwise it is a type of another crate.
macro_rules! choice {
    ($(#[$note:meta])+ $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$note])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(
                #[doc = concat!("`", $word, "`")]
                $variant,
            )+
        }

        choice! { $name { $($variant = $word,)+ } }
    };
    ($name:ident { $($variant:ident = $word:literal,)+ }) => {
        impl NamedChoice for $name {
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
    /// The API of an upstream.
    Kind {
        Responses = "responses",
        Chat = "chat",
        Anthropic = "anthropic",
        Demo = "demo",
    }
}

choice! {
    TenantState {
        Stored = "stored",
        Stateless = "stateless",
    }
}

choice! {
    Dialect {
        Standard = "standard",
        Agn003 = "agn003",
    }
}

choice! {
    ToolCalls {
        Native = "native",
        Constrained = "constrained",
    }
}

choice! {
    SystemRole {
        System = "system",
        Developer = "developer",
        User = "user",
    }
}

choice! {
    ReplayReasoning {
        Auto = "auto",
        Always = "always",
        Never = "never",
    }
}

choice! {
    StructuredOutput {
        Auto = "auto",
        Native = "native",
        Tool = "tool",
    }
}

choice! {
    /// How image URLs are sent to an upstream.
    ImageUrls {
        Pass = "pass",
        Fetch = "fetch",
    }
}

choice! {
    /// The input types of a model.
    Modality {
        Text = "text",
        Image = "image",
        File = "file",
        Audio = "audio",
    }
}

choice! {
    /// The turns whose model calls are stored.
    KeepTranscripts {
        Stored = "stored",
        None = "none",
    }
}

choice! {
    Casing {
        Pascal = "pascal",
        Camel = "camel",
    }
}

choice! {
    UnknownFields {
        Refused = "refuse",
        Ignored = "ignore",
    }
}

choice! {
    /// The format of log lines.
    LogFormat {
        Text = "text",
        Json = "json",
    }
}
