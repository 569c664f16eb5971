//! What is sealed, what opens, and what does not.

use std::fs;

use proptest::prelude::*;

use super::*;

fn key(byte: u8) -> String {
    (0..32).map(|index| format!("{:02x}", byte.wrapping_add(index))).collect()
}

fn ring(bytes: &[u8]) -> KeyRing {
    KeyRing::from_text(&bytes.iter().map(|byte| key(*byte)).collect::<Vec<_>>().join(",")).unwrap()
}

fn sealer(byte: u8) -> Sealer {
    Sealer::new(&ring(&[byte]))
}

#[test]
fn the_newest_key_seals_and_every_key_opens() {
    let (old, new) = (sealer(1), sealer(2));
    let both = Sealer::new(&ring(&[2, 1]));
    assert_eq!(both.open("a", &old.seal("a", b"old")).as_deref(), Some(&b"old"[..]));
    let text = both.seal("a", b"new");
    assert_eq!(new.open("a", &text).as_deref(), Some(&b"new"[..]));
    assert_eq!(old.open("a", &text), None);
    assert!(text.starts_with(&format!("ams2.{}.", ring(&[2]).ids().next().unwrap())), "{text}");
}

#[test]
fn a_key_that_is_added_to_the_file_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    let sealer = Sealer::following(&path).unwrap();
    let before = sealer.seal("a", b"before");
    // The look at the start is long ago.
    let long_ago = || sealer.file.as_ref().unwrap().seen.lock().unwrap().at -= LOOK;
    long_ago();

    let rotated = KeyRing::rotate(&path).unwrap();
    let newest = rotated.ids().next().unwrap().to_string();

    let elsewhere = Sealer::following(&path).unwrap().seal("a", b"elsewhere");
    assert!(elsewhere.contains(&newest));
    assert_eq!(sealer.open("a", &elsewhere).as_deref(), Some(&b"elsewhere"[..]));
    assert!(sealer.seal("a", b"").contains(&newest));
    assert_eq!(sealer.open("a", &before).as_deref(), Some(&b"before"[..]));

    // If the file is deleted or broken, the sealer keeps its keys.
    fs::remove_file(&path).unwrap();
    long_ago();
    assert_eq!(sealer.open("a", &elsewhere).as_deref(), Some(&b"elsewhere"[..]));
    fs::write(&path, "nonsense").unwrap();
    long_ago();
    assert_eq!(sealer.open("a", &elsewhere).as_deref(), Some(&b"elsewhere"[..]));
}

#[test]
fn the_same_data_sealed_twice_gives_two_texts_that_both_open() {
    let sealer = sealer(1);
    let (first, second) = (sealer.seal("tenant 1", b"signature"), sealer.seal("tenant 1", b"signature"));
    assert_ne!(first, second);
    for text in [first, second] {
        assert_eq!(sealer.open("tenant 1", &text).as_deref(), Some(&b"signature"[..]));
    }
}

// P10
#[test]
fn a_text_of_one_tenant_does_not_open_for_another() {
    let sealer = sealer(1);
    let text = sealer.seal("tenant 1", b"signature");
    assert_eq!(sealer.open("tenant 2", &text), None);
    assert_eq!(sealer.open("", &text), None);
}

#[test]
fn a_text_does_not_open_with_another_master_key() {
    assert_eq!(sealer(2).open("tenant 1", &sealer(1).seal("tenant 1", b"signature")), None);
}

#[test]
fn a_text_opens_after_a_restart_with_the_same_master_key() {
    assert_eq!(sealer(1).open("a", &sealer(1).seal("a", b"kept")).as_deref(), Some(&b"kept"[..]));
}

/// Clients hold such texts, so a test must notice a change of the format or of key derivation. This text was made by an
/// independent implementation of the published ciphers.
#[test]
fn a_text_sealed_by_the_first_version_still_opens() {
    let text = "ams1.ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7Zib7ufEU9zrH-PSPvPTsBx4Cm_6PtWvtjcQ0IRE";
    assert_eq!(sealer(1).open("tenant 1", text).as_deref(), Some(&b"from long ago"[..]));
}

#[test]
fn what_is_not_ours_does_not_open() {
    let sealer = sealer(1);
    let text = sealer.seal("a", b"");
    assert_eq!(sealer.open("a", &text).as_deref(), Some(&b""[..]));
    let other_version = text.replacen("ams2.", "ams1.", 1);
    let without_name = text.replacen(&text.split('.').nth(1).unwrap().to_owned(), "", 1);
    let padded = format!("{text}=");
    for foreign in [
        "",
        "ams1",
        "ams1.",
        "ams2.",
        "ams2..",
        "ams1.AAAA",
        "gAAAAABo",
        "ams1.ä",
        "ams2.ä.ä",
        &other_version,
        &without_name,
        &padded,
    ] {
        assert_eq!(sealer.open("a", foreign), None, "{foreign}");
    }
}

proptest! {
    #[test]
    fn whatever_is_sealed_opens_to_the_same_bytes(context in ".*", plain in prop::collection::vec(any::<u8>(), 0..500)) {
        let sealer = sealer(1);
        let text = sealer.seal(&context, &plain);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        prop_assert_eq!(sealer.open(&context, &text), Some(plain));
    }

    #[test]
    fn no_changed_or_shortened_text_opens(plain in prop::collection::vec(any::<u8>(), 0..50), place in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
        let sealer = sealer(1);
        let text = sealer.seal("a", &plain);
        let place = place.index(text.len());
        let (before, after) = text.split_at(place);
        prop_assert_eq!(sealer.open("a", before), None);
        let mut rest = after.chars();
        if rest.next() != replacement.chars().next() {
            let changed = format!("{before}{replacement}{}", rest.as_str());
            prop_assert_eq!(sealer.open("a", &changed), None);
        }
    }

    #[test]
    fn no_text_at_all_makes_opening_fail_harder_than_none(text in ".*") {
        prop_assert_eq!(sealer(1).open("a", &text), None);
        for prefix in ["ams1.", "ams2.", "ams2.00000000."] {
            let prefixed = format!("{prefix}{text}");
            prop_assert_eq!(sealer(1).open("a", &prefixed), None);
        }
    }
}
