use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::*;

const FIRST: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const SECOND: &str = "101112131415161718191a1b1c1d1e1f000102030405060708090a0b0c0d0e0f";

fn names(ring: &KeyRing) -> Vec<String> {
    ring.ids().map(|id| id.to_string()).collect()
}

#[test]
fn several_keys_are_read_newest_first_from_commas_or_lines() {
    let single = |text: &str| names(&KeyRing::from_text(text).unwrap()).remove(0);
    let expected = [single(SECOND), single(FIRST)];
    for text in [format!("{SECOND},{FIRST}"), format!(" {SECOND} , {FIRST}\n"), format!("{SECOND}\n{FIRST}\n")] {
        assert_eq!(names(&KeyRing::from_text(&text).unwrap()), expected, "{text}");
    }
}

#[test]
fn an_empty_place_a_repeated_key_and_too_many_are_refused() {
    assert!(matches!(KeyRing::from_text(""), Err(KeyError::Malformed)));
    assert!(matches!(KeyRing::from_text(&format!("{FIRST},")), Err(KeyError::Malformed)));
    assert!(matches!(KeyRing::from_text(&format!("{FIRST},{FIRST}")), Err(KeyError::Repeated)));
    let many: Vec<String> = (0..17).map(|index| FIRST.replacen("00", &format!("{:02x}", index + 0x40), 1)).collect();
    assert!(matches!(KeyRing::from_text(&many.join(",")), Err(KeyError::Count(17))));
}

#[test]
fn rotation_puts_a_new_key_in_front_and_keeps_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    fs::write(&path, format!("{FIRST}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let before = names(&KeyRing::load(&path).unwrap());

    let rotated = names(&KeyRing::rotate(&path).unwrap());

    assert_eq!((rotated.len(), &rotated[1..]), (2, &before[..]));
    assert_eq!(names(&KeyRing::load(&path).unwrap()), rotated);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn rotations_at_once_lose_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    let made: Vec<String> = std::thread::scope(|scope| {
        let rotations: Vec<_> =
            (0..8).map(|_| scope.spawn(|| names(&KeyRing::rotate(&path).unwrap()).remove(0))).collect();
        rotations.into_iter().map(|rotation| rotation.join().unwrap()).collect()
    });
    let kept = names(&KeyRing::load(&path).unwrap());
    assert_eq!(kept.len(), 9);
    assert!(made.iter().all(|name| kept.contains(name)));
}

#[test]
fn a_ring_that_is_full_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.key");
    for _ in 1..MOST_KEYS {
        KeyRing::rotate(&path).unwrap();
    }
    let full = fs::read(&path).unwrap();
    assert!(matches!(KeyRing::rotate(&path), Err(KeyError::Count(17))));
    assert_eq!(fs::read(&path).unwrap(), full);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

// P12
#[test]
fn a_ring_is_never_printed() {
    assert_eq!(format!("{:?}", KeyRing::from_text(FIRST).unwrap()), "KeyRing(1 x [redacted])");
}

#[test]
fn the_first_start_makes_a_key_that_only_the_owner_may_read_and_the_next_start_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/master.key");
    let made = KeyRing::load_or_create(&path).unwrap();
    assert_eq!(names(&KeyRing::load_or_create(&path).unwrap()), names(&made));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    // Nothing but the key is left in the folder.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn two_installations_have_different_keys() {
    let folder = tempfile::tempdir().unwrap();
    let one = KeyRing::load_or_create(&folder.path().join("one")).unwrap();
    let two = KeyRing::load_or_create(&folder.path().join("two")).unwrap();
    assert_ne!(names(&one), names(&two));
}

#[test]
fn processes_that_start_at_once_agree_on_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    let keys: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| KeyRing::load_or_create(&path).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|ring| names(ring) == names(&keys[0])));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    KeyRing::load_or_create(&path).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = KeyRing::load_or_create(&path).unwrap_err();
        assert!(matches!(error, KeyError::Exposed { mode: seen, .. } if seen == mode), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    KeyRing::load_or_create(&path).unwrap();
}

#[test]
fn a_file_that_holds_something_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    for content in [&b""[..], b"abc", &[0xff; 64], &[b'a'; 5000]] {
        write_durably(&path, content).unwrap();
        let error = KeyRing::load_or_create(&path).unwrap_err();
        assert!(matches!(error, KeyError::NotAKeyFile { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file/master.key");
    fs::write(folder.path().join("file"), "").unwrap();
    let error = KeyRing::load_or_create(&path).unwrap_err();
    assert!(error.to_string().contains("file/master.key"), "{error}");
}
