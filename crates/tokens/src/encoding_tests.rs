use proptest::prelude::*;

use super::*;

/// The definition of the encoding: merge the pair of the lowest rank, the leftmost of several, until there is none.
fn merged_one_by_one(piece: &[u8]) -> u64 {
    let rank = |bytes: &[u8]| {
        Token::longest_at_start_of(bytes).filter(|token| token.len() == bytes.len()).map_or(u32::MAX, Token::rank)
    };
    let mut ends: Vec<usize> = (0..=piece.len()).collect();
    loop {
        let pairs = (1..ends.len() - 1).map(|at| (rank(&piece[ends[at - 1]..ends[at + 1]]), at));
        match pairs.min() {
            Some((rank, at)) if rank < u32::MAX => ends.remove(at),
            _ => return ends.len() as u64 - 1,
        };
    }
}

fn steps(piece: &[u8]) -> u64 {
    let mut encoder = Encoder::default();
    encoder.count(piece);
    encoder.steps
}

#[test]
fn twice_the_text_takes_twice_the_steps_whatever_is_repeated() {
    // What goes back often takes the most steps for each byte; it is repeated less, for the sake of debug builds.
    let cases = [("a", 1_000_000), (" ", 1_000_000), ("的", 200_000), ("hello", 100_000), ("zqx", 100_000)]
        .into_iter()
        .chain(["-", "=", "*", "#", "0", "\u{301}", "あ", "ab", "aab", "abcdefghi"].map(|unit| (unit, 10_000)));
    for (unit, length) in cases {
        let one = steps(&unit.as_bytes().repeat(length / unit.len()));
        let two = steps(&unit.as_bytes().repeat(2 * length / unit.len()));
        assert!(two * 10 <= one * 23, "{unit:?}: {one} steps, then {two}");
        assert!(one <= 150 * length as u64, "{unit:?}: {one} steps for {length} bytes");
    }
}

#[test]
fn an_encoder_that_was_used_counts_like_a_new_one() {
    let mut encoder = Encoder::default();
    let pieces: [&[u8]; 5] = [&b"xyzzy".repeat(99), b"", b"qqqqqqq", &[0xff; 70], b"word"];
    let again: Vec<u64> = pieces.iter().map(|piece| encoder.count(piece)).collect();
    let anew: Vec<u64> = pieces.iter().map(|piece| Encoder::default().count(piece)).collect();
    assert_eq!(again, anew);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_search_finds_what_merging_one_by_one_gives(piece in prop_oneof![
        "[ab ]{1,60}",
        "[a-e]{1,60}",
        "[a-zA-Z]{1,60}",
        "[ \n\t=/-]{1,60}",
        "\\PC{1,30}",
    ].prop_map(String::into_bytes).boxed().prop_union(prop::collection::vec(any::<u8>(), 1..60).boxed())) {
        prop_assert_eq!(Encoder::default().count(&piece), merged_one_by_one(&piece));
    }
}
