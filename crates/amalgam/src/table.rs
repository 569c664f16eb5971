//! Text tables with aligned columns and readable times.

use jiff::Timestamp;

/// Rows below their headings, with two spaces between columns.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    [line(headings)].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// The same for tables whose columns are known only when they are printed.
pub(crate) fn columns(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| cell(row, column).chars().count());
        cells.chain([headings.get(column).map_or(0, |heading| heading.len())]).max().unwrap_or_default()
    };
    let line = |cells: Vec<String>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| format!("{cell:width$}", width = width(column)));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line((0..headings.len()).map(|column| cell(row, column)).collect()));
    let headings = line(headings.iter().map(|&heading| heading.to_owned()).collect());
    [headings].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// A time as `2026-01-31 12:00` in UTC; a dash for none or for one out of range.
pub(crate) fn moment(at_ms: Option<u64>) -> String {
    let Some(at_ms) = at_ms else { return "-".to_owned() };
    let at = i64::try_from(at_ms).ok().and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows =
            [["1".to_owned(), "ünï".to_owned(), "x".to_owned()], ["10".to_owned(), "a".to_owned(), String::new()]];
        assert_eq!(table(["id", "name", "more"], &rows), "id  name  more\n1   ünï   x\n10  a");
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_800, "2000-03-01 00:00"),
            (1_704_067_199, "2023-12-31 23:59"),
            (1_709_164_800, "2024-02-29 00:00"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(moment(Some(seconds * 1000)), shown);
        }
        assert_eq!(moment(None), "-");
    }
}
