//! Token usage: as upstreams report it, as it is stored, and as responses show it.

use crate::json::{Raw, Writer};

/// Token usage of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Of those, read from a cache.
    pub cached_tokens: u64,
    /// Of those, written to a cache.
    pub cache_write_tokens: u64,
    /// Tokens of the answer, including reasoning.
    pub output_tokens: u64,
    /// Of those, reasoning tokens.
    pub reasoning_tokens: u64,
    /// The upstream's total, if it reported one.
    pub total_tokens: Option<u64>,
    /// Estimated, at least in part, because the upstream reported no usage.
    pub estimated: bool,
    /// If only some of several calls were estimated, the usage that upstreams reported for the others.
    pub reported: Option<ReportedUsage>,
}

/// The part of a turn's usage that upstreams reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedUsage {
    /// Tokens of the prompts.
    pub input_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Both, by the upstream's total if it reported one.
    pub total_tokens: u64,
}

impl ReportedUsage {
    fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            total_tokens: self.total_tokens.saturating_add(other.total_tokens),
        }
    }

    fn read(raw: Raw<'_>) -> Self {
        Self {
            input_tokens: count(raw, "input_tokens"),
            output_tokens: count(raw, "output_tokens"),
            total_tokens: count(raw, "total_tokens"),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.object(|writer| {
            writer.key("input_tokens").number(self.input_tokens);
            writer.key("output_tokens").number(self.output_tokens);
            writer.key("total_tokens").number(self.total_tokens);
        });
    }
}

impl Usage {
    /// The sum. If only one of them has a total, it is computed for the other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let total_tokens = match (self.total_tokens, other.total_tokens) {
            (None, None) => None,
            _ => Some(self.total().saturating_add(other.total())),
        };
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            total_tokens,
            estimated: self.estimated || other.estimated,
            reported: match (self.known(), other.known()) {
                _ if !(self.estimated || other.estimated) => None,
                (Some(one), Some(more)) => Some(one.plus(more)),
                (one, more) => one.or(more),
            },
        }
    }

    /// The reported part, if there is any.
    fn known(&self) -> Option<ReportedUsage> {
        match self.estimated {
            true => self.reported,
            false => Some(ReportedUsage {
                input_tokens: self.input_tokens,
                output_tokens: self.output_tokens,
                total_tokens: self.total(),
            }),
        }
    }

    /// Reads what [`Usage::write`] wrote. Unlike an upstream's usage, it says which part is estimated.
    pub fn read_stored(raw: Raw<'_>) -> Self {
        let estimated = raw.get("estimated").and_then(Raw::as_bool) == Some(true);
        Self { estimated, reported: raw.get("reported").map(ReportedUsage::read), ..Self::read(raw) }
    }

    /// Reads usage of either API: `input_tokens` or `prompt_tokens`, `output_tokens` or `completion_tokens`.
    pub fn read(raw: Raw<'_>) -> Self {
        let mut usage = Self::default();
        for (key, value) in raw.fields() {
            match key.escaped() {
                "input_tokens" | "prompt_tokens" => usage.input_tokens = value.as_u64().unwrap_or_default(),
                "output_tokens" | "completion_tokens" => usage.output_tokens = value.as_u64().unwrap_or_default(),
                "total_tokens" => usage.total_tokens = value.as_u64(),
                "input_tokens_details" | "prompt_tokens_details" => {
                    usage.cached_tokens = count(value, "cached_tokens");
                    usage.cache_write_tokens = count(value, "cache_write_tokens");
                }
                "output_tokens_details" | "completion_tokens_details" => {
                    usage.reasoning_tokens = count(value, "reasoning_tokens");
                }
                _ => {}
            }
        }
        usage
    }

    /// The upstream's total, or the sum.
    pub fn total(&self) -> u64 {
        self.total_tokens.unwrap_or(self.input_tokens.saturating_add(self.output_tokens))
    }

    /// Writes the object with every field, because clients fail on missing ones.
    pub fn write(&self, writer: &mut Writer) {
        writer.object(|writer| {
            writer.key("input_tokens").number(self.input_tokens);
            writer.key("input_tokens_details").object(|writer| {
                writer.key("cached_tokens").number(self.cached_tokens);
                writer.key("cache_write_tokens").number(self.cache_write_tokens);
            });
            writer.key("output_tokens").number(self.output_tokens);
            writer.key("output_tokens_details").object(|writer| {
                writer.key("reasoning_tokens").number(self.reasoning_tokens);
            });
            writer.key("total_tokens").number(self.total());
            if self.estimated {
                writer.key("estimated").bool(true);
            }
            if let Some(reported) = &self.reported {
                reported.write(writer.key("reported"));
            }
        });
    }
}

fn count(details: Raw<'_>, name: &str) -> u64 {
    details.get(name).and_then(Raw::as_u64).unwrap_or_default()
}
