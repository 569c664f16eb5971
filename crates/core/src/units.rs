//! Durations with units: `10s`, `250ms`, `30d`.
//!
//! Parses and writes them; the caller checks limits.

use std::time::Duration;

/// In ascending order; a written duration is in descending order (`1m30s`).
const TIMES: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses `10s`, `250ms` or several parts in descending order such as `1m30s`.
///
/// A plain number is refused: it could mean seconds or milliseconds. Only zero needs no unit.
pub fn duration_from_text(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_ms = 0u64;
    let mut ceiling = u64::MAX;
    if rest.is_empty() {
        return None;
    }
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    while !rest.is_empty() {
        let (amount, tail) = leading_number(rest)?;
        let unit_end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let scale = TIMES.iter().find(|(name, _)| *name == unit)?.1;
        if scale >= ceiling {
            return None;
        }
        ceiling = scale;
        total_ms = total_ms.checked_add(amount.checked_mul(scale)?)?;
        rest = tail;
    }
    Some(Duration::from_millis(total_ms))
}

/// Writes a duration in the largest unit that holds it exactly.
pub fn duration_to_text(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    let (unit, scale) =
        TIMES.iter().rev().find(|(_, scale)| ms.is_multiple_of(*scale)).expect("a millisecond divides all of them");
    format!("{}{unit}", ms / scale)
}

/// The number at the start of a text, and the rest.
pub fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        let cases = [
            ("10s", Some(10_000)),
            ("250ms", Some(250)),
            ("10m", Some(600_000)),
            ("2h", Some(7_200_000)),
            ("30d", Some(2_592_000_000)),
            ("1d12h", Some(129_600_000)),
            ("0", Some(0)),
            ("1m30s", Some(90_000)),
            (" 5s ", Some(5_000)),
            ("0s", Some(0)),
            ("", None),
            ("10", None),
            ("s", None),
            ("10 s", None),
            ("10S", None),
            ("-5s", None),
            ("1.5s", None),
            ("30s1m", None),
            ("1s1s", None),
            ("10sé", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration_from_text(text), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_duration_reads_back_as_it_was_written(ms in 0u64..=u64::MAX / 2) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(duration_from_text(&duration_to_text(duration)), Some(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = duration_from_text(&text);
        }
    }
}
