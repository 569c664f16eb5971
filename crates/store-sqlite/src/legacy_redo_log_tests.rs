use proptest::{collection::vec, prelude::*};

use super::*;

const IDENTITY: i64 = 7;

/// A batch as older servers wrote it, in whole blocks. Its one statement inserts `text`.
fn batch(number: i64, text: &str) -> Vec<u8> {
    let sql = b"INSERT INTO notes VALUES (?1)";
    let mut bytes = vec![0; HEAD_BYTES];
    bytes.push(0);
    bytes.extend_from_slice(&(sql.len() as u32).to_le_bytes());
    bytes.extend_from_slice(sql);
    bytes.push(1);
    bytes.extend_from_slice(&0u16.to_le_bytes());
    bytes.extend_from_slice(&1i64.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes());
    bytes.push(3);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[8..HEAD_BYTES].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32([&IDENTITY.to_le_bytes()[..], &bytes[..4], &bytes[8..]]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// Batches of two blocks each.
fn batches(numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| batch(number, &"x".repeat(5000))).collect()
}

/// A file with these two segments.
fn log(mut first: Vec<u8>, second: &[u8]) -> Vec<u8> {
    first.resize(SEGMENT_BYTES, 0);
    [&first, second].concat()
}

/// The numbers of the batches that a database lacks, or why they are not known.
fn numbers(log: &[u8], applied: i64) -> Result<Vec<i64>, String> {
    match needed(log, IDENTITY, applied) {
        Ok(batches) => Ok(batches.iter().map(|batch| batch.number).collect()),
        Err(RedoLogError::Damaged { number }) => Err(format!("{number} is damaged")),
        Err(RedoLogError::Gap { applied, found }) => Err(format!("{applied} is followed by {found}")),
        Err(RedoLogError::Foreign) => Err("foreign".to_owned()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_checksum_is_the_usual_crc_32() {
    assert_eq!(crc32([b"123456789"]), 0xCBF4_3926);
    assert_eq!(crc32([&b"1234"[..], b"", b"56789"]), 0xCBF4_3926);
}

#[test]
fn batches_that_the_database_lacks_are_found_in_both_segments() {
    assert_eq!(numbers(&batches(1..=4), 0), Ok(vec![1, 2, 3, 4]));
    assert_eq!(numbers(&batches(1..=4), 2), Ok(vec![3, 4]));
    assert_eq!(numbers(&batches(1..=4), 4), Ok(vec![]));
    // The first segment was filled again after the second one.
    assert_eq!(numbers(&log(batches(9..=10), &batches(5..=8)), 6), Ok(vec![7, 8, 9, 10]));
    assert_eq!(numbers(&log(batches(5..=8), &batches(9..=10)), 7), Ok(vec![8, 9, 10]));
}

#[test]
fn older_batches_behind_the_last_one_are_not_taken_for_damage() {
    assert_eq!(numbers(&batches([9, 10, 3, 4]), 8), Ok(vec![9, 10]));
    // A new batch may end in the middle of an old one.
    let mut overwritten = batches([1, 2, 3]);
    overwritten[..BLOCK_BYTES].copy_from_slice(&batch(4, "short"));
    assert_eq!(numbers(&overwritten, 3), Ok(vec![4]));
}

#[test]
fn the_last_batch_may_be_incomplete() {
    let whole = batches(1..=3);
    let blocks = whole.len() / BLOCK_BYTES;
    let cut = &whole[..(blocks - 1) * BLOCK_BYTES];
    assert_eq!(numbers(cut, 0), Ok(vec![1, 2]), "the file ends in it");
    let mut blank = whole.clone();
    blank[(blocks - 1) * BLOCK_BYTES..].fill(0);
    assert_eq!(numbers(&blank, 0), Ok(vec![1, 2]), "its end was never written");
    let mut headless = whole.clone();
    headless[(blocks - 2) * BLOCK_BYTES..(blocks - 1) * BLOCK_BYTES].fill(0);
    assert_eq!(numbers(&headless, 0), Ok(vec![1, 2]), "its beginning was never written");
    // Its end was written over the first older batch, and its beginning was not.
    let mut older = batches(1..=3);
    older[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&batches([4])[BLOCK_BYTES..]);
    older[BLOCK_BYTES] ^= 1;
    assert_eq!(numbers(&older, 3), Ok(vec![]));
    // Also where it is the only one, and where it is the first of a segment.
    assert_eq!(numbers(&batches([1])[..BLOCK_BYTES], 0), Ok(vec![]));
    assert_eq!(numbers(&log(batches([1, 2]), &batches([3])[..BLOCK_BYTES]), 0), Ok(vec![1, 2]));
}

#[test]
fn a_missing_batch_before_the_last_is_damage() {
    let mut first = batches(1..=4);
    first[700] ^= 1;
    assert_eq!(numbers(&first, 0), Err("1 is damaged".into()));
    let mut damaged = batches(1..=4);
    let batch_bytes = damaged.len() / 4;
    damaged[2 * batch_bytes..3 * batch_bytes].fill(0);
    assert_eq!(numbers(&damaged, 0), Err("3 is damaged".into()));
    assert_eq!(numbers(&damaged, 2), Err("3 is damaged".into()));
    // What the database has is not needed.
    damaged[..2 * batch_bytes].fill(0);
    assert_eq!(numbers(&damaged, 4), Ok(vec![]));
    assert_eq!(numbers(&log(vec![0; 4 * BLOCK_BYTES], &batches(3..=4)), 0), Err("0 is followed by 3".into()));
}

#[test]
fn a_log_that_does_not_continue_the_database_is_refused() {
    assert_eq!(numbers(&batches(5..=6), 3), Err("3 is followed by 5".into()));
    assert!(matches!(needed(&batches(1..=2), IDENTITY + 1, 0), Err(RedoLogError::Foreign)));
    assert!(matches!(needed(&batches(1..=2), IDENTITY + 1, 40), Err(RedoLogError::Foreign)));
    assert_eq!(numbers(&vec![7; 3 * BLOCK_BYTES], 0), Err("foreign".into()));
    assert_eq!(numbers(&[], 3), Ok(vec![]));
    assert_eq!(numbers(&vec![0; BLOCK_BYTES], 3), Ok(vec![]));
}

proptest! {
    #[test]
    fn a_bit_that_changed_in_a_needed_batch_is_found(at in 4..usize::MAX, bit in 0..8u32, which in 0..4usize) {
        // Not in a length: one that is too large looks like a batch that was not written in full.
        let mut damaged = batches(1..=4);
        let (whole, batch_bytes) = (Batch::read(IDENTITY, &damaged).unwrap().bytes.len(), damaged.len() / 4);
        damaged[which * batch_bytes + 4 + at % (whole - 4)] ^= 1 << bit;
        prop_assert!(numbers(&damaged, 0).is_err());
    }

    #[test]
    fn any_file_is_read_without_harm(bytes in vec(any::<u8>(), 0..300), valid in any::<bool>()) {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
        let mut log = if valid { batches(1..=2) } else { Vec::new() };
        log.extend_from_slice(&bytes);
        let _ = numbers(&log, 0);
        let body = [&[0; HEAD_BYTES][..], &bytes].concat();
        let _ = Batch { number: 1, bytes: &body }.run(&connection);
    }
}

#[test]
fn statements_are_run_with_their_values_and_have_to_change_as_many_rows_as_before() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let bytes = batch(1, "hello");
    Batch::read(IDENTITY, &bytes).unwrap().run(&connection).unwrap();
    let text: String = connection.query_row("SELECT text FROM notes", [], |row| row.get(0)).unwrap();
    assert_eq!(text, "hello");
    connection.execute_batch("CREATE TRIGGER t BEFORE INSERT ON notes BEGIN SELECT RAISE(IGNORE); END").unwrap();
    let again = Batch::read(IDENTITY, &bytes).unwrap().run(&connection);
    assert!(matches!(again, Err(RedoLogError::DoesNotFit { number: 1, source: None })), "{again:?}");
    connection.execute_batch("DROP TABLE notes").unwrap();
    let again = Batch::read(IDENTITY, &bytes).unwrap().run(&connection);
    assert!(matches!(again, Err(RedoLogError::DoesNotFit { number: 1, source: Some(_) })), "{again:?}");
}
