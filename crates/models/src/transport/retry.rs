//! Retries: when, and after which delay. Full jitter; `Retry-After` takes precedence; bounded by a budget.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use amalgam_core::ModelError;

/// The longest `Retry-After` that is obeyed; a longer one is left to the caller.
const MAX_WAIT: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The cost of a retry. Each request deposits 1, so retries stay at a fifth of the requests.
const COST: u32 = 5;
/// The maximum balance: ten retries when there is little traffic.
const MOST: u32 = 50;

/// The delay before retry number `tries`; `None` if a retry makes no sense.
pub(super) fn wait(error: &ModelError, tries: u32) -> Option<Duration> {
    if !error.is_transient() {
        return None;
    }
    match error.retry_after() {
        Some(wait) if wait > MAX_WAIT => None,
        Some(wait) => Some(wait),
        // Full jitter, so that requests that failed together do not return together.
        None => Some(rand::random_range(Duration::ZERO..=FIRST_WAIT * 2_u32.saturating_pow(tries))),
    }
}

/// The retry budget of one upstream.
#[derive(Debug)]
pub(super) struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(MOST))
    }
}

impl Budget {
    /// Deposits for a request.
    pub(super) fn deposit(&self) {
        // An error only means that the budget is full.
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |saved| (saved < MOST).then(|| saved + 1));
    }

    /// Withdraws the cost of one retry, if the balance allows it.
    pub(super) fn withdraw(&self) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(COST)).is_ok()
    }
}

/// Reads when the server wants a retry: milliseconds, seconds, or a date.
pub(super) fn retry_after<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let text = |name: &str| field(name).map(str::trim);
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
    if let Some(wait) =
        text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()).and_then(|ms| seconds(ms / 1e3))
    {
        return Some(wait);
    }
    let value = text("retry-after")?;
    if let Ok(number) = value.parse::<f64>() {
        return seconds(number);
    }
    let at = httpdate::parse_http_date(value).ok()?;
    // Relative to the server's clock if it sends a `date`, because ours may differ.
    let now = match text("date").and_then(|date| httpdate::parse_http_date(date).ok()) {
        Some(now) => now,
        None => wall_clock(),
    };
    Some(at.duration_since(now).unwrap_or_default())
}

#[expect(clippy::disallowed_methods, reason = "a date in a header has no other meaning than by the wall clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_every_form() {
        let second = Duration::from_secs(1);
        let date = "Wed, 21 Oct 2015 07:28:07 GMT";
        for (pairs, expected) in [
            (&[("retry-after", "7")][..], Some(second * 7)),
            (&[("retry-after", "0.5")], Some(second / 2)),
            (&[("retry-after-ms", "1500"), ("retry-after", "7")], Some(second * 3 / 2)),
            (&[("retry-after", date), ("date", "Wed, 21 Oct 2015 07:28:00 GMT")], Some(second * 7)),
            (&[("retry-after", date)], Some(Duration::ZERO)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "soon")], None),
            (&[], None),
        ] {
            let field = |name: &str| pairs.iter().find(|(one, _)| *one == name).map(|(_, value)| *value);
            assert_eq!(retry_after(field), expected, "{pairs:?}");
        }
    }

    #[test]
    fn the_servers_word_wins_and_a_long_wait_is_left_to_the_caller() {
        let refused = |retry_after| ModelError::Refused {
            status: 429,
            retry_after,
            message: None,
            code: None,
            param: None,
            body: String::new(),
        };
        assert_eq!(wait(&refused(Some(Duration::from_secs(3))), 0), Some(Duration::from_secs(3)));
        assert_eq!(wait(&refused(Some(Duration::from_secs(11))), 0), None);
        assert!((0..100).all(|_| wait(&refused(None), 1).unwrap() <= FIRST_WAIT * 2));
        assert_eq!(wait(&ModelError::CutShort, 0), None);
    }

    #[test]
    fn further_tries_stay_at_a_fifth_of_the_requests() {
        // S9
        let budget = Budget::default();
        let tries = (0..1000).filter(|_| {
            budget.deposit();
            budget.withdraw()
        });
        let reserve = usize::try_from(MOST / COST).unwrap();
        let tries = tries.count();
        assert!((200..=200 + reserve).contains(&tries), "{tries}");
    }
}
