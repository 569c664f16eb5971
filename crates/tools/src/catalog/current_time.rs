//! `current_time`: the current time, which a model cannot know.
//!
//! Time zones come from the system's database, or from the embedded one if the system has none.

use std::sync::Arc;

use amalgam_core::{Clock, ToolError};
use jiff::{Timestamp, Zoned, fmt::temporal::DateTimeParser, tz::TimeZone};
use serde_json::{Value, json};

use crate::{arguments, builtin::Builtin};

/// Longer than any name of a time zone.
const NAME_CHARACTERS: usize = 64;

arguments! {
    /// The time zone.
    struct Place {
        time_zone: Option<String> = "The IANA name of the time zone of the local time, such as `Asia/Jakarta`. UTC when left out.",
            maxLength: NAME_CHARACTERS;
        utc_offset: Option<String> = "Instead of a time zone, the offset of the local time from UTC, such as `+02:00`.",
            pattern: "^[+-](0[0-9]|1[0-4]):[0-5][0-9]$";
    }
}

pub(super) fn builtin(clock: Arc<dyn Clock>) -> Builtin {
    Builtin::new(
        "current_time",
        "Tells the current date, time and day of the week.",
        "Use it whenever an answer depends on today's date or on the time, such as for deadlines, ages or opening hours.",
        move |place: Place, _call| {
            let result = local_time(clock.now_ms(), &place);
            Box::pin(async move { result })
        },
    )
}

fn local_time(now_ms: u64, place: &Place) -> Result<Value, ToolError> {
    let refused = |reason: String| ToolError::Refused(reason);
    let zone = match (&place.time_zone, &place.utc_offset) {
        (Some(_), Some(_)) => return Err(refused("give `time_zone` or `utc_offset`, not both".to_owned())),
        (Some(name), None) => named_zone(name).ok_or_else(|| {
            refused("`time_zone` has to be the IANA name of a time zone, such as `Asia/Jakarta`".to_owned())
        })?,
        (None, Some(offset)) => {
            fixed_zone(offset).ok_or_else(|| refused("`utc_offset` has to look like `+02:00`".to_owned()))?
        }
        (None, None) => TimeZone::UTC,
    };
    let now = i64::try_from(now_ms).ok().and_then(|now_ms| Timestamp::from_millisecond(now_ms).ok());
    let now = now.ok_or_else(|| refused("the server's clock shows a time that no calendar has".to_owned()))?;
    let local = Zoned::new(now, zone);
    let mut result = json!({
        "time": local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "weekday": local.strftime("%A").to_string(),
        "unix_seconds": now.as_second(),
    });
    if let (Some(_), Some(name)) = (&place.time_zone, local.time_zone().iana_name()) {
        result["time_zone"] = name.into();
    }
    Ok(result)
}

fn named_zone(name: &str) -> Option<TimeZone> {
    (name.len() <= NAME_CHARACTERS).then(|| jiff::tz::db().get(name).ok()).flatten()
}

/// Offsets have hours and minutes, and no time zone is farther from UTC than 14 hours.
fn fixed_zone(offset: &str) -> Option<TimeZone> {
    let is_written_out = offset.len() == "+02:00".len() && offset.starts_with(['+', '-']);
    let zone = is_written_out.then(|| DateTimeParser::new().parse_time_zone(offset).ok()).flatten()?;
    let seconds = zone.to_fixed_offset().ok()?.seconds();
    (seconds.abs() < 15 * 3600).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_zone(name: &str) -> Place {
        Place { time_zone: Some(name.to_owned()), utc_offset: None }
    }

    fn at_offset(offset: &str) -> Place {
        Place { time_zone: None, utc_offset: Some(offset.to_owned()) }
    }

    const UTC: Place = Place { time_zone: None, utc_offset: None };

    fn shown(now_ms: u64, place: &Place) -> (String, String) {
        let result = local_time(now_ms, place).unwrap();
        (result["time"].as_str().unwrap().to_owned(), result["weekday"].as_str().unwrap().to_owned())
    }

    #[test]
    fn the_time_is_given_at_the_offset_that_was_asked_for() {
        // `date -u -d @1709251199` and its neighbours: around the end of a February with 29 days.
        let now = 1_709_251_199_999;
        assert_eq!(shown(now, &UTC), ("2024-02-29T23:59:59+00:00".into(), "Thursday".into()));
        assert_eq!(shown(now, &at_offset("+05:30")), ("2024-03-01T05:29:59+05:30".into(), "Friday".into()));
        assert_eq!(shown(now, &at_offset("-11:00")), ("2024-02-29T12:59:59-11:00".into(), "Thursday".into()));
        assert_eq!(shown(0, &at_offset("-00:01")), ("1969-12-31T23:59:00-00:01".into(), "Wednesday".into()));
        assert_eq!(shown(4_102_444_800_000, &UTC), ("2100-01-01T00:00:00+00:00".into(), "Friday".into()));
        assert_eq!(shown(4_107_542_400_000, &UTC), ("2100-03-01T00:00:00+00:00".into(), "Monday".into()));
    }

    #[test]
    fn the_time_is_given_in_the_time_zone_that_was_asked_for_with_its_summer_time() {
        let (winter, summer) = (1_736_942_400_000, 1_752_580_800_000);
        assert_eq!(shown(winter, &in_zone("Asia/Jakarta")), ("2025-01-15T19:00:00+07:00".into(), "Wednesday".into()));
        assert_eq!(shown(winter, &in_zone("Europe/Berlin")), ("2025-01-15T13:00:00+01:00".into(), "Wednesday".into()));
        assert_eq!(shown(summer, &in_zone("Europe/Berlin")), ("2025-07-15T14:00:00+02:00".into(), "Tuesday".into()));
        assert_eq!(shown(winter, &in_zone("America/St_Johns")).0, "2025-01-15T08:30:00-03:30");
        assert_eq!(local_time(winter, &in_zone("asia/jakarta")).unwrap()["time_zone"], "Asia/Jakarta");
        assert_eq!(local_time(winter, &UTC).unwrap().get("time_zone"), None);
    }

    #[test]
    fn this_program_knows_time_zones_without_the_systems_database() {
        let bundled = jiff::tz::TimeZoneDatabase::bundled();
        assert!(["Asia/Jakarta", "Europe/Berlin", "America/New_York"].iter().all(|name| bundled.get(name).is_ok()));
    }

    #[test]
    fn an_offset_or_a_time_zone_that_is_none_is_refused() {
        for offset in ["", "02:00", "+2:00", "+15:00", "+01:60", "+é1:00", "Europe/Berlin", "+02:00:00", "+02000"] {
            assert!(matches!(local_time(0, &at_offset(offset)), Err(ToolError::Refused(_))), "{offset}");
        }
        let long = "A/".repeat(5000);
        for name in ["", "Jakarta", "Asia/Nowhere", "../../etc/passwd", "/etc/localtime", "+07:00", "é", long.as_str()]
        {
            assert!(matches!(local_time(0, &in_zone(name)), Err(ToolError::Refused(_))), "{name}");
        }
        let both = Place { time_zone: Some("Asia/Jakarta".to_owned()), utc_offset: Some("+07:00".to_owned()) };
        assert!(matches!(local_time(0, &both), Err(ToolError::Refused(reason)) if reason.contains("not both")));
        assert!(matches!(local_time(u64::MAX, &UTC), Err(ToolError::Refused(_))));
    }
}
