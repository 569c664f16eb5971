//! Tokens that are believed, and many more that are not.

use std::{fmt::Write as _, path::PathBuf};

use amalgam_oidc::SignedMessage;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use super::*;

const SECRET: &str = "a secret of at least thirty-two bytes";
const NOW_MS: u64 = 1_700_000_000_000;
const NOW: u64 = NOW_MS / 1000;

fn claims() -> Value {
    json!({"sub": "ada", "tenant": 7, "exp": NOW + 60, "iss": "https://issuer", "aud": ["amalgam", "other"]})
}

fn settings() -> JwtSettings {
    JwtSettings {
        secret: Some(SECRET.into()),
        jwks: None,
        tenant_claim: "tenant".to_owned(),
        issuer: Some("https://issuer".to_owned()),
        audience: Some("amalgam".to_owned()),
        max_lifetime: Duration::from_secs(24 * 60 * 60),
    }
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let mut token = format!("{}.{}", encoded(header), encoded(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(token.as_bytes()));
    write!(token, ".{signature}").unwrap();
    token
}

fn hs256(key: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

fn signed(claims: &Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), claims, hs256(SECRET.as_bytes()))
}

async fn check(token: &str) -> Option<Claims> {
    Jwt::new(settings()).check(token, NOW_MS).await.unwrap()
}

#[tokio::test]
async fn a_token_that_is_signed_and_in_its_time_is_believed() {
    let expected = Claims { subject: "ada".to_owned(), tenant_id: 7, expires_at_ms: NOW_MS + 60_000 };
    assert_eq!(check(&signed(&claims())).await, Some(expected));
    for (name, value) in [
        ("tenant", json!("7")),
        ("aud", json!("amalgam")),
        ("nbf", json!(NOW)),
        ("nbf", json!(NOW + 30)),
        ("exp", json!(NOW as f64 + 0.5)),
        ("more", json!({"a": 1})),
    ] {
        let mut claims = claims();
        claims[name] = value.clone();
        assert!(check(&signed(&claims)).await.is_some(), "{name} {value}");
    }
}

// right E5
#[tokio::test]
async fn a_token_that_lives_too_long_or_for_ever_is_not_believed() {
    const DAY: u64 = 24 * 60 * 60;
    let with = |changes: &[(&str, Value)]| {
        let mut claims = claims();
        for (name, value) in changes {
            claims[*name] = value.clone();
        }
        signed(&claims)
    };
    for good in
        [with(&[("exp", json!(NOW + DAY))]), with(&[("iat", json!(NOW - DAY + 100)), ("exp", json!(NOW + 100))])]
    {
        assert!(check(&good).await.is_some());
    }
    for changes in [
        &[("exp", json!(NOW + DAY + 3600))][..],
        &[("exp", json!(NOW + 600)), ("iat", json!(NOW - DAY))],
        &[("exp", json!(1e300))],
        &[("exp", json!(u64::MAX))],
        &[("exp", json!(u64::MAX / 1000))],
        &[("iat", json!(NOW + 3600))],
        &[("iat", json!("yesterday"))],
        &[("iat", json!(1e300))],
    ] {
        assert_eq!(check(&with(changes)).await, None, "{changes:?}");
    }
}

#[tokio::test]
async fn a_token_with_a_wrong_or_missing_claim_is_not() {
    for (name, value) in [
        ("exp", json!(NOW)),
        ("exp", json!(NOW - 1)),
        ("exp", json!("soon")),
        ("exp", json!(-1)),
        ("exp", Value::Null),
        ("nbf", json!(NOW + 120)),
        ("nbf", json!("later")),
        ("iss", json!("https://other")),
        ("iss", Value::Null),
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("tenant", json!("seven")),
        ("tenant", json!(7.5)),
        ("tenant", json!([7])),
        ("tenant", Value::Null),
        ("sub", json!(5)),
        ("sub", Value::Null),
    ] {
        let mut claims = claims();
        match value.is_null() {
            true => claims.as_object_mut().unwrap().remove(name),
            false => claims.as_object_mut().unwrap().insert(name.to_owned(), value.clone()),
        };
        assert_eq!(check(&signed(&claims)).await, None, "{name} {value}");
    }
}

#[tokio::test]
async fn no_other_algorithm_and_no_other_signature_is_believed() {
    let (claims, good) = (claims(), signed(&claims()));
    let (head, signature) = good.rsplit_once('.').unwrap();
    let secret = SECRET.as_bytes();
    for wrong in [
        token(&json!({"alg": "none"}), &claims, |_| Vec::new()),
        token(&json!({"alg": "None"}), &claims, hs256(secret)),
        token(&json!({"alg": "HS512"}), &claims, hs256(secret)),
        token(&json!({"alg": "hs256"}), &claims, hs256(secret)),
        token(&json!({"alg": "RS256"}), &claims, hs256(secret)),
        token(&json!({"typ": "JWT"}), &claims, hs256(secret)),
        token(&json!({"alg": "HS256", "crit": ["exp"]}), &claims, hs256(secret)),
        token(&json!({"alg": "HS256", "kid": 1}), &claims, hs256(secret)),
        token(&json!({"alg": "HS256"}), &claims, hs256(b"another secret of thirty-two bytes and more")),
        token(&json!({"alg": "HS256"}), &claims, hs256(b"")),
        token(&json!([]), &claims, hs256(secret)),
        token(&json!({"alg": "HS256"}), &json!("claims"), hs256(secret)),
        format!("{head}."),
        format!("{head}.{signature}="),
        format!("{head}.{}", signature.get(1..).unwrap()),
        format!("{good}.{signature}"),
        head.to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        String::new(),
    ] {
        assert_eq!(check(&wrong).await, None, "{wrong}");
    }
    let mut forged = claims.clone();
    forged["tenant"] = json!(8);
    assert_eq!(check(&format!("{}.{}.{signature}", encoded(&json!({"alg": "HS256"})), encoded(&forged))).await, None);
}

/// A set of keys in a file, with what signs for them.
struct Issuer {
    _folder: tempfile::TempDir,
    path: PathBuf,
    ed25519: Ed25519KeyPair,
    p256: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let random = SystemRandom::new();
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let issuer = Self {
            path: folder.path().join("jwks.json"),
            _folder: folder,
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap(),
            p256: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, p256.as_ref(), &random).unwrap(),
        };
        issuer.publish("one");
        issuer
    }

    fn publish(&self, kid: &str) {
        let point = self.p256.public_key().as_ref();
        let set = json!({"keys": [
            {"kty": "oct", "kid": "shared", "k": URL_SAFE_NO_PAD.encode(SECRET)},
            {"kty": "EC", "crv": "P-384", "kid": "larger", "x": "AA", "y": "AA"},
            {"kty": "EC", "crv": "P-256", "kid": format!("{kid}-ec"), "use": "sig",
             "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])},
            {"kty": "OKP", "crv": "Ed25519", "kid": format!("{kid}-ed"), "alg": "EdDSA",
             "x": URL_SAFE_NO_PAD.encode(self.ed25519.public_key().as_ref())},
        ]});
        std::fs::write(&self.path, set.to_string()).unwrap();
    }

    fn jwt(&self) -> Jwt {
        Jwt::new(JwtSettings { secret: None, jwks: Some(JwksLocation::File(self.path.clone())), ..settings() })
    }

    fn ed25519(&self, header: &Value) -> String {
        token(header, &claims(), |message| self.ed25519.sign(message).as_ref().to_vec())
    }

    fn es256(&self, header: &Value) -> String {
        token(header, &claims(), |message| self.p256.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec())
    }
}

#[tokio::test]
async fn keys_of_an_issuer_check_tokens_of_their_own_algorithm_only() {
    let issuer = Issuer::new();
    let jwt = issuer.jwt();
    for good in [
        issuer.ed25519(&json!({"alg": "EdDSA", "kid": "one-ed"})),
        issuer.ed25519(&json!({"alg": "EdDSA"})),
        issuer.es256(&json!({"alg": "ES256", "kid": "one-ec"})),
    ] {
        assert!(jwt.check(&good, NOW_MS).await.unwrap().is_some(), "{good}");
    }
    let public = issuer.ed25519.public_key().as_ref();
    for wrong in [
        issuer.ed25519(&json!({"alg": "EdDSA", "kid": "one-ec"})),
        issuer.ed25519(&json!({"alg": "ES256", "kid": "one-ed"})),
        issuer.es256(&json!({"alg": "RS256", "kid": "one-ec"})),
        // The public key as a shared secret is the classic confusion.
        token(&json!({"alg": "HS256", "kid": "one-ed"}), &claims(), hs256(public)),
        token(&json!({"alg": "HS256", "kid": "shared"}), &claims(), hs256(SECRET.as_bytes())),
        signed(&claims()),
    ] {
        assert_eq!(jwt.check(&wrong, NOW_MS).await.unwrap(), None, "{wrong}");
    }
}

#[tokio::test]
async fn an_rsa_key_checks_what_it_signed() {
    // The example of RFC 7515, appendix A.2.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let modulus = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let set = json!({"keys": [{"kty": "RSA", "kid": "r", "n": modulus, "e": "AQAB"}]});
    std::fs::write(&path, set.to_string()).unwrap();
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let jwks = Jwks::new(JwksLocation::File(path));
    let parsed = SignedToken::parse(token).unwrap();
    let mut signature = parsed.signed().signature.to_vec();
    let verified = async |signature: &[u8]| {
        let signed = SignedMessage { algorithm: "RS256", key_id: None, signature, ..parsed.signed() };
        jwks.verify(signed).await.unwrap()
    };
    assert!(verified(&signature).await);
    signature[7] ^= 1;
    assert!(!verified(&signature).await);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_of_the_issuer_is_found_without_a_restart_and_not_looked_for_all_the_time() {
    let issuer = Issuer::new();
    let jwt = issuer.jwt();
    assert!(jwt.check(&issuer.ed25519(&json!({"alg": "EdDSA", "kid": "one-ed"})), NOW_MS).await.unwrap().is_some());
    issuer.publish("two");
    let new = issuer.ed25519(&json!({"alg": "EdDSA", "kid": "two-ed"}));
    assert_eq!(jwt.check(&new, NOW_MS).await.unwrap(), None, "not within a minute of the last look");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(jwt.check(&new, NOW_MS).await.unwrap().is_some());
    // If the file cannot be read any more, the last loaded set stays.
    std::fs::write(&issuer.path, "{}").unwrap();
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(jwt.check(&new, NOW_MS).await.unwrap().is_some());
}

#[tokio::test]
async fn without_any_keys_of_the_issuer_a_token_is_not_called_wrong() {
    let jwt = Jwt::new(JwtSettings { jwks: Some(JwksLocation::File("/nowhere/jwks.json".into())), ..settings() });
    let error = jwt.check(&token(&json!({"alg": "ES256"}), &claims(), |_| vec![0; 64]), NOW_MS).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}
