//! The headers `x-ratelimit-…`, in OpenAI's form, for callers whose requests or tokens are limited per minute.

use amalgam_core::{RateLimits, RateWindow};
use http::{HeaderMap, HeaderName, HeaderValue};

const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Adds what was left at a time, in milliseconds since 1970.
pub(crate) fn mark(headers: &mut HeaderMap, rate_limits: RateLimits, at_ms: u64) {
    for (names, window) in [(REQUESTS, rate_limits.requests), (TOKENS, rate_limits.tokens)] {
        let Some(RateWindow { limit, remaining, resets_at_ms }) = window else { continue };
        let [limit_name, remaining_name, reset_name] = names;
        headers.insert(limit_name, HeaderValue::from(limit));
        headers.insert(remaining_name, HeaderValue::from(remaining));
        if let Ok(reset) = HeaderValue::try_from(duration(resets_at_ms.saturating_sub(at_ms))) {
            headers.insert(reset_name, reset);
        }
    }
}

/// Seconds with at most three decimals, or milliseconds below one: `59.5s`, `20ms`.
fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{}.{:03}s", ms / 1000, ms % 1000).replace("0s", "s").replace("0s", "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_what_is_left_and_when_it_is_reset() {
        let mut headers = HeaderMap::new();
        let window = RateWindow { limit: 60, remaining: 59, resets_at_ms: 120_000 };
        mark(&mut headers, RateLimits { requests: Some(window), tokens: None }, 60_500);
        let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(value("x-ratelimit-limit-requests"), Some("60"));
        assert_eq!(value("x-ratelimit-remaining-requests"), Some("59"));
        assert_eq!(value("x-ratelimit-reset-requests"), Some("59.5s"));
        assert_eq!(value("x-ratelimit-limit-tokens"), None);
        assert_eq!([20, 1000, 30_000, 1_050, 1_005].map(duration), ["20ms", "1s", "30s", "1.05s", "1.005s"]);
    }
}
