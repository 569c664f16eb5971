//! A scripted OpenID Connect provider: real HTTP, real signatures, codes that work once, and faults on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use amalgam_testkit::{Client, Reply, Request, Upstream};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Map, Value, json};

pub(super) const CLIENT_ID: &str = "amalgam-console";
pub(super) const CLIENT_SECRET: &str = "a+secret/of:the-client%";

/// The provider. Dropping it closes its port.
pub(super) struct Provider {
    upstream: Upstream,
    script: Arc<Mutex<Script>>,
}

/// What the provider does.
struct Script {
    /// Claims that replace or, with `null`, remove the usual ones.
    claims: Map<String, Value>,
    signer: Signer,
    codes: BTreeMap<String, Issued>,
    issued: usize,
}

/// The request that a code belongs to.
struct Issued {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

enum Signer {
    Ed25519(&'static str, Box<Ed25519KeyPair>),
    P256(&'static str, Box<EcdsaKeyPair>),
}

impl Provider {
    pub(super) fn start() -> Self {
        let upstream = Upstream::start();
        let script = Script { claims: Map::new(), signer: ed25519("one"), codes: BTreeMap::new(), issued: 0 };
        let provider = Self { script: Arc::new(Mutex::new(script)), upstream };
        let url = provider.url();
        provider.answer("/.well-known/openid-configuration", {
            let url = url.clone();
            move |_, _| {
                Reply::json(json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize?realm=a"),
                    "token_endpoint": format!("{url}/token"),
                    "jwks_uri": format!("{url}/keys"),
                    "end_session_endpoint": format!("{url}/logout"),
                }))
            }
        });
        provider.answer("/keys", |script, _| Reply::json(json!({"keys": [script.signer.public()]})));
        provider.answer("/authorize", |script, request| script.authorize(request));
        provider.answer("/token", move |script, request| script.token(request, &url));
        provider
    }

    fn answer(&self, path: &str, answer: impl Fn(&mut Script, &Request) -> Reply + Send + 'static) {
        let script = Arc::clone(&self.script);
        self.upstream.answer_for(path, move |request| answer(&mut script.lock().unwrap(), request));
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// The issuer.
    pub(super) fn url(&self) -> String {
        self.upstream.url()
    }

    /// How often a path was requested.
    pub(super) fn count(&self, path: &str) -> usize {
        self.upstream.requests().iter().filter(|request| request.path.split('?').next() == Some(path)).count()
    }

    /// The claims of the next tokens; `null` removes one.
    pub(super) fn set_claims(&self, claims: Value) {
        self.script().claims = claims.as_object().unwrap().clone();
    }

    /// Signs with a new key from now on; `published` says whether the set of keys has it.
    pub(super) fn rotate(&self) {
        self.script().signer = p256("two");
    }

    /// Signs with a key under the name of the published one.
    pub(super) fn forge(&self) {
        let published = Reply::json(json!({"keys": [self.script().signer.public()]}));
        self.upstream.always_for("/keys", published);
        self.script().signer = ed25519("one");
    }

    /// Answers every request to this path with an error.
    pub(super) fn fail(&self, path: &str, status: u16) {
        self.upstream.always_for(path, Reply::status(status));
    }

    /// The user agrees: the address to which the provider sends the browser.
    pub(super) async fn agree(&self, location: &str) -> String {
        let path = location.strip_prefix(&self.url()).expect("the browser is sent to the provider");
        let answer = Client::new(&self.url()).get(path).await;
        assert_eq!(answer.status, 302, "{}", answer.text());
        answer.header("location").unwrap().to_owned()
    }
}

impl Script {
    fn authorize(&mut self, request: &Request) -> Reply {
        let query = pairs(request.path.split_once('?').map_or("", |(_, query)| query));
        let right =
            [("realm", "a"), ("response_type", "code"), ("client_id", CLIENT_ID), ("code_challenge_method", "S256")];
        if right.iter().any(|(name, value)| query.get(*name).map(String::as_str) != Some(*value))
            || !query["scope"].split(' ').any(|scope| scope == "openid")
        {
            return Reply::status(400);
        }
        self.issued += 1;
        let code = format!("code-{}", self.issued);
        let issued = Issued {
            nonce: query["nonce"].clone(),
            challenge: query["code_challenge"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
        };
        let location = format!("{}?code={code}&state={}", issued.redirect_uri, query["state"]);
        self.codes.insert(code, issued);
        Reply::status(302).header("location", location)
    }

    fn token(&mut self, request: &Request, issuer: &str) -> Reply {
        let refused = |error: &str| Reply::status(400).with_json(json!({"error": error}));
        let form = pairs(std::str::from_utf8(&request.body).unwrap());
        let expected = format!("Basic {}", STANDARD.encode("amalgam-console:a%2Bsecret%2Fof%3Athe-client%25"));
        if request.headers.get("authorization").and_then(|value| value.to_str().ok()) != Some(expected.as_str()) {
            return Reply::status(401).with_json(json!({"error": "invalid_client"}));
        }
        let Some(issued) = self.codes.remove(&form["code"]) else { return refused("invalid_grant") };
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, form["code_verifier"].as_bytes()));
        if challenge != issued.challenge
            || form["redirect_uri"] != issued.redirect_uri
            || form["grant_type"] != "authorization_code"
        {
            return refused("invalid_grant");
        }
        let mut claims = json!({
            "iss": issuer, "aud": CLIENT_ID, "sub": "user-1", "iat": now(), "exp": now() + 300, "nonce": issued.nonce,
            "email": "ada@example.com", "email_verified": true, "tenant": 2, "groups": ["engineers"],
        });
        for (name, value) in &self.claims {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let id_token = self.signer.token(&claims);
        Reply::json(json!({"access_token": "unused", "token_type": "Bearer", "id_token": id_token}))
    }
}

impl Signer {
    fn public(&self) -> Value {
        match self {
            Self::Ed25519(kid, pair) => json!({"kty": "OKP", "crv": "Ed25519", "kid": kid,
                "x": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref())}),
            Self::P256(kid, pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig",
                    "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])})
            }
        }
    }

    fn token(&self, claims: &Value) -> String {
        let (algorithm, kid) = match self {
            Self::Ed25519(kid, _) => ("EdDSA", kid),
            Self::P256(kid, _) => ("ES256", kid),
        };
        let head = json!({"alg": algorithm, "kid": kid, "typ": "JWT"});
        let parts = [&head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = parts.join(".");
        let signature = match self {
            Self::Ed25519(_, pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Self::P256(_, pair) => pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn ed25519(kid: &'static str) -> Signer {
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Signer::Ed25519(kid, Box::new(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap()))
}

fn p256(kid: &'static str) -> Signer {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).unwrap();
    Signer::P256(kid, Box::new(pair))
}

/// The decoded pairs of a query or a form.
pub(super) fn pairs(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "the server under test has the machine's clock")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
