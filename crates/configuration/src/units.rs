//! Sizes with units: `2MiB`, `500KB`.
//!
//! Parses and writes them; the schema has the limits of each key.

use amalgam_core::leading_number;
pub(crate) use amalgam_core::{duration_from_text, duration_to_text};

const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// Parses `2MiB`, `500KB`, `64 KiB` or a plain number of bytes; units in any case.
///
/// `2M` is refused: its two meanings differ by five per cent.
pub(crate) fn size_from_text(text: &str) -> Option<u64> {
    let (amount, unit) = leading_number(text.trim())?;
    let unit = unit.trim_start();
    let scale = if unit.is_empty() { 1 } else { SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1 };
    amount.checked_mul(scale)
}

/// Writes a size in the unit that needs the fewest digits without rounding.
pub(crate) fn size_to_text(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    let (unit, scale) =
        SIZES.iter().rev().find(|(_, scale)| bytes.is_multiple_of(*scale)).expect("a byte divides all of them");
    format!("{}{unit}", bytes / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let cases = [
            ("2MiB", Some(2 << 20)),
            ("500KB", Some(500_000)),
            ("64 KiB", Some(64 << 10)),
            ("1gib", Some(1 << 30)),
            ("12B", Some(12)),
            ("4096", Some(4096)),
            ("", None),
            ("MiB", None),
            ("2M", None),
            ("2 Mi B", None),
            ("-1KB", None),
            ("1.5MiB", None),
            ("18446744073709551615KiB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(size_from_text(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_size_reads_back_as_it_was_written(bytes: u64) {
            prop_assert_eq!(size_from_text(&size_to_text(bytes)), Some(bytes));
        }

        #[test]
        fn no_text_makes_a_unit_reader_panic(text in "\\PC*") {
            let _ = size_from_text(&text);
        }
    }
}
