//! Signed tokens (JWT): how they are taken apart, and the claims that every reader of them checks.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use crate::jwks::SignedMessage;

/// The maximum length of a token.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// How far the issuer's clock may be ahead of this one.
pub const CLOCK_SKEW_MS: u64 = 60_000;

/// The year 10000.
const LATEST_MS: f64 = 253_402_300_800_000.0;

/// A parsed token, not verified yet.
pub struct SignedToken<'a> {
    algorithm: String,
    key_id: Option<String>,
    claims: Map<String, Value>,
    message: &'a str,
    signature: Vec<u8>,
}

impl<'a> SignedToken<'a> {
    /// Takes a token apart; none if it has another form, or an extension that changes its meaning.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let object = |text: &str| match serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()? {
            Value::Object(object) => Some(object),
            _ => None,
        };
        let header = object(header)?;
        // A critical extension changes the meaning of the token, and none is supported.
        if header.contains_key("crit") {
            return None;
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str()?.to_owned()),
        };
        Some(Self {
            algorithm: header.get("alg")?.as_str()?.to_owned(),
            key_id,
            claims: object(claims)?,
            message,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// What a key has to verify.
    pub fn signed(&self) -> SignedMessage<'_> {
        SignedMessage {
            algorithm: &self.algorithm,
            key_id: self.key_id.as_deref(),
            message: self.message.as_bytes(),
            signature: &self.signature,
        }
    }

    /// The claims, which count only after the signature was verified.
    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }
}

/// Converts seconds since 1970, possibly with a fraction, to milliseconds; none for a time out of range.
pub fn claim_time(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => seconds.checked_mul(1000),
        None => {
            let milliseconds = value.as_f64()? * 1000.0;
            (0.0..LATEST_MS).contains(&milliseconds).then_some(milliseconds as u64)
        }
    }
}

/// Whether `aud` is this audience, or a list with it.
pub fn names_audience(claims: &Map<String, Value>, audience: &str) -> bool {
    match claims.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(audience)),
        _ => false,
    }
}

/// The number of a tenant in a claim, as a number or a text.
pub fn tenant_number(claim: &Value) -> Option<i64> {
    match claim {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
