//! What a translation could not carry over. Never silent: header, trace and strict mode read this list.

use std::{borrow::Cow, fmt};

/// One thing that the upstream will not see as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The field, such as `tools[2]` or `top_logprobs`.
    pub field: Cow<'static, str>,
    /// What happened to it, in a few words.
    pub reason: Cow<'static, str>,
}

impl Loss {
    /// Says that `field` was not carried over, and why.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.reason)
    }
}
