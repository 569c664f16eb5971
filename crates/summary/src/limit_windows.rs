//! Windows of time in UTC: minutes, days and months, each with a number that grows.

use crate::limit_rules::BudgetPeriod;

const MS_PER_MINUTE: u64 = 60_000;
const MS_PER_DAY: u64 = 86_400_000;

/// The number of the minute that a time is in.
pub fn minute(now_ms: u64) -> u64 {
    now_ms / MS_PER_MINUTE
}

/// When a minute ends, in milliseconds since 1970.
pub fn minute_end(minute: u64) -> u64 {
    minute.saturating_add(1).saturating_mul(MS_PER_MINUTE)
}

impl BudgetPeriod {
    /// The number of the period that a time is in: days or months since 1970.
    pub fn number(self, now_ms: u64) -> u64 {
        match self {
            Self::Day => now_ms / MS_PER_DAY,
            Self::Month => month(now_ms / MS_PER_DAY),
            Self::Total => 0,
        }
    }

    /// When a period ends, in milliseconds since 1970; never for a total.
    pub fn end(self, number: u64) -> Option<u64> {
        match self {
            Self::Day => Some(number.saturating_add(1).saturating_mul(MS_PER_DAY)),
            Self::Month => Some(first_day(number.saturating_add(1)).saturating_mul(MS_PER_DAY)),
            Self::Total => None,
        }
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// The first day of a year, in days since 1970. Years before count as 1970.
fn first_day_of_year(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let before = year.max(1970) - 1;
    (before - 1969) * 365 + leap_days(before) - leap_days(1969)
}

fn days_of_months(year: u64) -> [u64; 12] {
    [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// The first day of a month, in days since 1970. The last representable year bounds the arithmetic.
fn first_day(month: u64) -> u64 {
    let (year, month) = (1970 + (month / 12).min(1_000_000), month % 12);
    first_day_of_year(year) + days_of_months(year).iter().zip(0..month).map(|(days, _)| days).sum::<u64>()
}

/// The number of the month that a day is in.
fn month(day: u64) -> u64 {
    let day = day.min(365 * 1_000_000);
    // At most one year too late, since no year is longer than 366 days.
    let mut year = 1970 + day / 365;
    while first_day_of_year(year) > day {
        year -= 1;
    }
    let (mut rest, mut months) = (day - first_day_of_year(year), (year - 1970) * 12);
    for days in days_of_months(year) {
        if rest < days {
            break;
        }
        rest -= days;
        months += 1;
    }
    months
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn periods_begin_and_end_at_midnight_in_utc() {
        // 2024-02-29T23:59:59.999Z and the millisecond after it.
        let (last, first) = (1_709_251_199_999, 1_709_251_200_000);
        assert_eq!(BudgetPeriod::Month.number(last), 54 * 12 + 1);
        assert_eq!(BudgetPeriod::Month.number(first), 54 * 12 + 2);
        assert_eq!(BudgetPeriod::Month.end(54 * 12 + 1), Some(first));
        assert_eq!(BudgetPeriod::Day.end(BudgetPeriod::Day.number(last)), Some(first));
        // 2026-12-31 to 2027-01-01.
        assert_eq!(BudgetPeriod::Month.end(BudgetPeriod::Month.number(1_798_761_599_999)), Some(1_798_761_600_000));
        assert_eq!((BudgetPeriod::Total.number(last), BudgetPeriod::Total.end(0)), (0, None));
        assert_eq!((minute(119_999), minute_end(1)), (1, 120_000));
    }

    proptest! {
        #[test]
        fn every_time_is_in_the_period_that_it_has(now_ms in 0u64..4_102_444_800_000) {
            for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
                let number = period.number(now_ms);
                let end = period.end(number).unwrap();
                prop_assert!(now_ms < end);
                prop_assert_eq!(period.number(end), number + 1);
                prop_assert_eq!(period.number(end - 1), number);
            }
        }
    }
}
