//! `current_time`: what a model cannot know by itself.

use std::sync::Arc;

use amalgam_core::{Clock, ToolError};
use serde_json::{Value, json};

use crate::{arguments, builtin::Builtin};

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

arguments! {
    /// Whose clock is meant.
    struct Place {
        utc_offset: Option<String> = "The offset of the local time from UTC, such as `+02:00`. UTC when left out.",
            pattern: "^[+-](0[0-9]|1[0-4]):[0-5][0-9]$";
    }
}

pub(super) fn builtin(clock: Arc<dyn Clock>) -> Builtin {
    Builtin::new(
        "current_time",
        "Tells the current date, time and day of the week.",
        "Use it whenever an answer depends on today's date or on the time, such as for deadlines, ages or opening hours.",
        move |place: Place, _call| {
            let told = tell(clock.now_ms(), place.utc_offset.as_deref());
            Box::pin(async move { told })
        },
    )
}

fn tell(now_ms: u64, utc_offset: Option<&str>) -> Result<Value, ToolError> {
    let offset = utc_offset.unwrap_or("+00:00");
    let minutes = offset_minutes(offset)
        .ok_or_else(|| ToolError::Refused("`utc_offset` has to look like `+02:00`".to_owned()))?;
    let unix_seconds = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX / 2);
    let local = unix_seconds.saturating_add(minutes * 60);
    let (days, seconds) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    // 1970 began on a Thursday.
    let weekday = WEEKDAYS[(days + 3).rem_euclid(7) as usize];
    Ok(json!({
        "time": format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{offset}"),
        "weekday": weekday,
        "unix_seconds": unix_seconds,
    }))
}

fn offset_minutes(text: &str) -> Option<i64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two = |digits: &str| {
        (digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit())).then(|| digits.parse::<i64>().ok())?
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

/// Year, month and day, `days` after the first day of 1970. Years are counted from March, so that the day that not
/// every year has is the last one, and in eras of 400, which all have the same length.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(now_ms: u64, offset: Option<&str>) -> (String, String) {
        let told = tell(now_ms, offset).unwrap();
        (told["time"].as_str().unwrap().to_owned(), told["weekday"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_time_is_told_in_the_offset_that_was_asked_for() {
        // `date -u -d @1709251199` and its neighbours: around the end of a February with 29 days.
        let now = 1_709_251_199_999;
        assert_eq!(told(now, None), ("2024-02-29T23:59:59+00:00".into(), "Thursday".into()));
        assert_eq!(told(now, Some("+05:30")), ("2024-03-01T05:29:59+05:30".into(), "Friday".into()));
        assert_eq!(told(now, Some("-11:00")), ("2024-02-29T12:59:59-11:00".into(), "Thursday".into()));
        assert_eq!(told(0, Some("-00:01")), ("1969-12-31T23:59:00-00:01".into(), "Wednesday".into()));
        assert_eq!(told(4_102_444_800_000, None), ("2100-01-01T00:00:00+00:00".into(), "Friday".into()));
        assert_eq!(told(4_107_542_400_000, None), ("2100-03-01T00:00:00+00:00".into(), "Monday".into()));
    }

    #[test]
    fn an_offset_that_is_none_is_refused_in_words() {
        for offset in ["", "02:00", "+2:00", "+15:00", "+01:60", "+é1:00", "Europe/Berlin", "+02:00:00"] {
            assert!(matches!(tell(0, Some(offset)), Err(ToolError::Refused(_))), "{offset}");
        }
    }
}
