//! Signed tokens at the door: believed for their tenant and user, and for nothing else.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::time::{SystemTime, UNIX_EPOCH};

use amalgam_testkit::{Amalgam, Certificates, Client, Front, Reply, Setup, Upstream};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use crate::support::{BINARY, stores};

const SECRET: &str = "a-secret-of-more-than-thirty-two-characters";

#[expect(clippy::disallowed_methods, reason = "the server under test has the machine's clock")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let message = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn shared(claims: &Value, secret: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    token(&json!({"alg": "HS256"}), claims, |message| hmac::sign(&key, message).as_ref().to_vec())
}

#[tokio::test]
async fn a_token_acts_for_its_user_in_its_tenant_and_may_use_but_not_administer() {
    for store in stores() {
        let setup = Setup::new()
            .env("AMALGAM_AUTH_JWT_SECRET", SECRET)
            .extra("[auth]\njwt_issuer = \"us\"\njwt_audience = \"amalgam\"\njwt_tenant_claim = \"company\"\n");
        let amalgam = Amalgam::start(BINARY, store.setup(setup)).await;
        let claims = json!({"sub": "ada", "company": 1, "iss": "us", "aud": "amalgam", "exp": now() + 600});
        let client = |claims: &Value, secret: &str| Client::new(amalgam.url()).with_key(&shared(claims, secret));
        let ada = client(&claims, SECRET);
        assert_eq!(ada.get("/v1/models").await.status, 200, "{}", store.name);
        assert_eq!(ada.get("/admin/keys").await.status, 403);
        let conversation = ada.post_json("/v1/conversations", &json!({})).await.json();
        let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
        assert_eq!(ada.get(&path).await.status, 200);
        assert_eq!(ada.clone().with_header("x-amalgam-user", "bob").get(&path).await.status, 403);
        let with = |name: &str, value: Value| {
            let mut claims = claims.clone();
            claims[name] = value;
            claims
        };
        assert_eq!(client(&with("sub", json!("bob")), SECRET).get(&path).await.status, 404);
        for (wrong, secret) in [
            (claims.clone(), "another-secret-of-more-than-thirty-two"),
            (with("company", json!(99)), SECRET),
            (with("exp", json!(now() - 1)), SECRET),
            // right E5
            (with("exp", json!(now() + 30 * 24 * 3600)), SECRET),
            (with("exp", json!(1e300)), SECRET),
            (with("iat", json!(now() - 25 * 3600)), SECRET),
            (with("iss", json!("them")), SECRET),
            (with("aud", json!("else")), SECRET),
            (with("sub", json!("key:config")), SECRET),
        ] {
            assert_eq!(client(&wrong, secret).get("/v1/models").await.status, 401, "{wrong}");
        }
        let none = token(&json!({"alg": "none"}), &claims, |_| Vec::new());
        assert_eq!(Client::new(amalgam.url()).with_key(&none).get("/v1/models").await.status, 401);
        assert_eq!(
            Client::new(amalgam.url()).get("/v1/models").await.status,
            401,
            "with tokens configured, requests without one are refused"
        );
    }
}

/// An issuer that signs tokens and names its keys.
struct Issuer {
    pair: Ed25519KeyPair,
    /// The set of its one key, whose name is `k1`.
    set: Value,
    claims: Value,
}

impl Issuer {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x}]});
        let claims = json!({"sub": "ada", "tenant": "1", "iss": "us", "aud": ["amalgam"], "exp": now() + 600});
        Self { pair, set, claims }
    }

    /// A server that believes the keys at this place.
    fn believed_at(place: &str) -> Setup {
        Setup::new()
            .extra(&format!("[auth]\njwks = {}\njwt_issuer = \"us\"\njwt_audience = \"amalgam\"\n", json!(place)))
    }

    /// What a token with this header gets.
    async fn ask(&self, amalgam: &Amalgam, header: Value) -> u16 {
        let token = token(&header, &self.claims, |message| self.pair.sign(message).as_ref().to_vec());
        Client::new(amalgam.url()).with_key(&token).get("/v1/models").await.status.as_u16()
    }
}

#[tokio::test]
async fn a_set_of_keys_in_a_file_lets_its_issuers_tokens_in() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer::new();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, issuer.set.to_string()).unwrap();
    let amalgam = Amalgam::start(BINARY, Issuer::believed_at(path.to_str().unwrap())).await;
    assert_eq!(issuer.ask(&amalgam, json!({"alg": "EdDSA", "kid": "k1"})).await, 200);
    assert_eq!(issuer.ask(&amalgam, json!({"alg": "EdDSA", "kid": "k2"})).await, 401);
    assert_eq!(issuer.ask(&amalgam, json!({"alg": "RS256", "kid": "k1"})).await, 401);
    // The public key as a shared secret is the classic confusion.
    let confused = shared(&issuer.claims, &issuer.set.to_string());
    assert_eq!(Client::new(amalgam.url()).with_key(&confused).get("/v1/models").await.status, 401);
}

#[tokio::test]
async fn a_set_of_keys_is_fetched_from_an_issuer_that_proves_who_it_is() {
    let issuer = Issuer::new();
    let site = Upstream::start();
    site.always_for("/keys", Reply::json(issuer.set.clone()));
    let certificates = Certificates::for_names("IP:127.0.0.1");
    let front = Front::before(site.address(), &certificates);
    let setup = || Issuer::believed_at(&format!("{}/keys", front.base_url()));
    let good = json!({"alg": "EdDSA", "kid": "k1"});

    let authority = certificates.authority().display().to_string();
    let amalgam = Amalgam::start(BINARY, setup().env("SSL_CERT_FILE", &authority)).await;
    for _ in 0..5 {
        assert_eq!(issuer.ask(&amalgam, good.clone()).await, 200);
    }
    assert_eq!(Issuer::new().ask(&amalgam, good.clone()).await, 401);
    // Unknown key names do not make it ask again and again.
    for number in 2..9 {
        assert_eq!(issuer.ask(&amalgam, json!({"alg": "EdDSA", "kid": format!("k{number}")})).await, 401);
    }
    assert_eq!(site.requests().len(), 1);

    let amalgam = Amalgam::start(BINARY, setup()).await;
    assert_eq!(issuer.ask(&amalgam, good).await, 503, "without keys a token is neither accepted nor refused");
    amalgam.wait_for_stderr("certificate").await;
    assert_eq!(site.requests().len(), 1);
}
