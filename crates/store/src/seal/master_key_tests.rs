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
fn a_key_has_a_name_that_stays_the_same_and_is_not_part_of_it() {
    let key = MasterKey::from_env_value(HEX).unwrap();
    let name = key.id().to_string();
    assert_eq!((name.len(), KeyId::parse(&name)), (8, Some(key.id())));
    assert!(!HEX.to_lowercase().contains(&name));
    for wrong in ["", "1234567", "123456789", "ABCDEF01", "+1234567", "1234567g"] {
        assert_eq!(KeyId::parse(wrong), None, "{wrong}");
    }
}
