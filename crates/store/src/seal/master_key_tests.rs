use std::fs::{self, Permissions};

use super::*;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF";

#[test]
fn a_key_is_read_from_hexadecimal_and_every_kind_of_base64() {
    let key = MasterKey::from_env_value(HEX).unwrap();
    assert_eq!((key.0[1], key.0[10], key.0[31]), (1, 10, 255));
    let forms = [
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8=",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8",
        " AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHv8\n",
    ];
    for form in forms {
        assert_eq!(MasterKey::from_env_value(form).unwrap().0, key.0, "{form}");
    }
    let standard = MasterKey::from_env_value("+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8=").unwrap();
    let url_safe = MasterKey::from_env_value("-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_8").unwrap();
    assert_eq!(standard.0, url_safe.0);
}

#[test]
fn anything_else_is_refused_without_repeating_it() {
    let not_hexadecimal = HEX.replace('0', "g");
    let too_short = HEX.replacen("00", "", 1);
    for value in ["", "secret", "deadbeef", &too_short, &not_hexadecimal, "AAECAwQFBgcICQoLDA0ODw==", "ключ"] {
        let error = MasterKey::from_env_value(value).unwrap_err();
        assert!(matches!(error, KeyError::Malformed), "{value}");
        assert!(value.is_empty() || !format!("{error} {error:?}").contains(value));
    }
}

#[test]
fn a_placeholder_is_not_a_key() {
    let error = MasterKey::from_env_value(&"0".repeat(64)).unwrap_err();
    assert!(matches!(error, KeyError::Placeholder));
}

// P12
#[test]
fn a_key_is_never_printed() {
    assert_eq!(format!("{:?}", MasterKey::from_env_value(HEX).unwrap()), "MasterKey([redacted])");
}

#[test]
fn keys_for_different_purposes_differ() {
    let key = MasterKey::from_env_value(HEX).unwrap();
    assert_ne!(key.derive("one"), key.derive("two"));
    assert_eq!(key.derive("one"), key.derive("one"));
}

#[test]
fn the_first_start_makes_a_key_that_only_the_owner_may_read_and_the_next_start_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/master.key");
    let made = MasterKey::load_or_create(&path).unwrap();
    assert_eq!(MasterKey::load_or_create(&path).unwrap().0, made.0);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    // Nothing but the key is left in the folder.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn two_installations_have_different_keys() {
    let folder = tempfile::tempdir().unwrap();
    let one = MasterKey::load_or_create(&folder.path().join("one")).unwrap();
    let two = MasterKey::load_or_create(&folder.path().join("two")).unwrap();
    assert_ne!(one.0, two.0);
}

#[test]
fn processes_that_start_at_once_agree_on_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    let keys: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| MasterKey::load_or_create(&path).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| key.0 == keys[0].0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    MasterKey::load_or_create(&path).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = MasterKey::load_or_create(&path).unwrap_err();
        assert!(matches!(error, KeyError::Exposed { mode: seen, .. } if seen == mode), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    MasterKey::load_or_create(&path).unwrap();
}

#[test]
fn a_file_that_holds_something_else_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("master.key");
    for content in [&b""[..], b"abc", &[0xff; 64], &[b'a'; 5000]] {
        write_durably(&path, content).unwrap();
        let error = MasterKey::load_or_create(&path).unwrap_err();
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
    let error = MasterKey::load_or_create(&path).unwrap_err();
    assert!(error.to_string().contains("file/master.key"), "{error}");
}
