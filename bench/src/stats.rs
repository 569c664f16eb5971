//! The two statistics of the report: medians, which one bad round does not move, and percentiles of latencies.

/// The middle value, or the mean of the two middle ones. `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted.get(middle).copied()
    } else {
        let below = sorted.get(middle.checked_sub(1)?)?;
        Some((below + sorted.get(middle)?) / 2.0)
    }
}

/// The smallest value that at least `percent` of all values do not exceed (nearest rank). `None` for no values.
pub(crate) fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The smallest and the largest value. `None` for no values.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let smallest = values.iter().copied().min_by(f64::total_cmp)?;
    let largest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((smallest, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_and_one_outlier_does_not_move_it() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 100.0]), Some(9.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn percentile_takes_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();

        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&hundred, 0.0), Some(1.0));
        assert_eq!(percentile(&hundred, 50.0), Some(50.0));
        assert_eq!(percentile(&hundred, 99.0), Some(99.0));
        assert_eq!(percentile(&hundred, 99.1), Some(100.0));
        assert_eq!(percentile(&hundred, 100.0), Some(100.0));
    }

    #[test]
    fn range_spans_all_values() {
        assert_eq!(range(&[]), None);
        assert_eq!(range(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
    }
}
