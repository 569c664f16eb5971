//! What is left of the current minute: the headers `x-ratelimit-…`.

/// The tightest limits that apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// Requests per minute.
    pub requests: Option<RateWindow>,
    /// Tokens per minute.
    pub tokens: Option<RateWindow>,
}

/// A limit of the current minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateWindow {
    /// The limit.
    pub limit: u64,
    /// What is left of it.
    pub remaining: u64,
    /// When the window ends, in milliseconds since 1970.
    pub resets_at_ms: u64,
}

impl RateLimits {
    /// Of each kind the limit with the least left.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        let tighter = |one: Option<RateWindow>, other: Option<RateWindow>| match (one, other) {
            (Some(one), Some(other)) if other.remaining < one.remaining => Some(other),
            (one, other) => one.or(other),
        };
        Self { requests: tighter(self.requests, other.requests), tokens: tighter(self.tokens, other.tokens) }
    }

    /// Replaces what the other has, and leaves the rest.
    #[must_use]
    pub fn updated(self, other: Self) -> Self {
        Self { requests: other.requests.or(self.requests), tokens: other.tokens.or(self.tokens) }
    }
}
