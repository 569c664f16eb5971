//! Verifies signed tokens.
//!
//! A token is accepted if a configured key verifies its signature and its times, issuer and audience are right. The key
//! determines its algorithm; a token that names another one is refused, and so is one without a signature.

use std::time::Duration;

use amalgam_core::StoreError;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

pub use super::jwks::JwksLocation;
use super::jwks::{Jwks, SignedMessage};

/// The maximum length of a token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// How far the issuer's clock may be ahead of this one.
const CLOCK_SKEW_MS: u64 = 60_000;

/// Which tokens are accepted.
#[derive(Debug)]
pub struct JwtSettings {
    /// The secret of tokens signed with HS256.
    pub secret: Option<SecretString>,
    /// The location of the issuer's public keys, for RS256, ES256 and EdDSA.
    pub jwks: Option<JwksLocation>,
    /// The claim that holds the tenant's id.
    pub tenant_claim: String,
    /// The required `iss`.
    pub issuer: Option<String>,
    /// The required `aud`, or one of its values.
    pub audience: Option<String>,
    /// The maximum lifetime of a token.
    pub max_lifetime: Duration,
}

/// Verifies tokens.
pub(super) struct Jwt {
    secret: Option<hmac::Key>,
    jwks: Option<Jwks>,
    tenant_claim: String,
    issuer: Option<String>,
    audience: Option<String>,
    max_lifetime_ms: u64,
}

/// The claims of a valid token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) tenant_id: i64,
    pub(super) expires_at_ms: u64,
}

/// Whether a credential has the format of a token; no key has a dot.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= MAX_TOKEN_BYTES && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Jwt {
    pub(super) fn new(settings: JwtSettings) -> Self {
        let JwtSettings { secret, jwks, tenant_claim, issuer, audience, max_lifetime } = settings;
        let max_lifetime_ms = u64::try_from(max_lifetime.as_millis()).unwrap_or(u64::MAX);
        let secret = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.expose_secret().as_bytes()));
        Self { secret, jwks: jwks.map(Jwks::new), tenant_claim, issuer, audience, max_lifetime_ms }
    }

    /// The claims of the token if it is valid; an error only if the issuer's keys are unavailable.
    pub(super) async fn check(&self, token: &str, now_ms: u64) -> Result<Option<Claims>, StoreError> {
        let Some(parts) = Parts::of(token) else { return Ok(None) };
        let verified = match (parts.algorithm.as_str(), &self.secret, &self.jwks) {
            ("HS256", Some(secret), _) => hmac::verify(secret, parts.signed.as_bytes(), &parts.signature).is_ok(),
            (algorithm, _, Some(jwks)) => {
                let signed = SignedMessage {
                    algorithm,
                    key_id: parts.key_id.as_deref(),
                    message: parts.signed.as_bytes(),
                    signature: &parts.signature,
                };
                jwks.verify(signed).await?
            }
            _ => false,
        };
        Ok(if verified { self.claims(&parts.claims, now_ms) } else { None })
    }

    fn claims(&self, claims: &Map<String, Value>, now_ms: u64) -> Option<Claims> {
        let expires_at_ms = time(claims.get("exp")?)?;
        let begins_at_ms = claims.get("nbf").map_or(Some(0), time)?;
        let soon_ms = now_ms.saturating_add(CLOCK_SKEW_MS);
        if expires_at_ms <= now_ms || begins_at_ms > soon_ms {
            return None;
        }
        // The whole lifetime if the token says when it was issued, otherwise the rest of it.
        let issued_at_ms = claims.get("iat").map_or(Some(now_ms), time)?;
        let begins_at_ms = issued_at_ms.min(soon_ms);
        if issued_at_ms > soon_ms
            || expires_at_ms - begins_at_ms.min(expires_at_ms) > self.max_lifetime_ms.saturating_add(CLOCK_SKEW_MS)
        {
            return None;
        }
        if let Some(issuer) = &self.issuer
            && claims.get("iss").and_then(Value::as_str) != Some(issuer)
        {
            return None;
        }
        if let Some(audience) = &self.audience {
            let meant = match claims.get("aud")? {
                Value::String(one) => one == audience,
                Value::Array(several) => several.iter().any(|one| one.as_str() == Some(audience)),
                _ => false,
            };
            if !meant {
                return None;
            }
        }
        let tenant_id = match claims.get(&self.tenant_claim)? {
            Value::Number(number) => number.as_i64()?,
            Value::String(text) => text.parse().ok()?,
            _ => return None,
        };
        Some(Claims { subject: claims.get("sub")?.as_str()?.to_owned(), tenant_id, expires_at_ms })
    }
}

/// Converts seconds since 1970, possibly with a fraction, to milliseconds; none for a time out of range.
fn time(value: &Value) -> Option<u64> {
    match value.as_u64() {
        Some(seconds) => seconds.checked_mul(1000),
        None => {
            let milliseconds = value.as_f64()? * 1000.0;
            (0.0..LATEST_MS).contains(&milliseconds).then_some(milliseconds as u64)
        }
    }
}

/// The year 10000.
const LATEST_MS: f64 = 253_402_300_800_000.0;

/// A parsed token, not verified yet.
struct Parts<'a> {
    algorithm: String,
    key_id: Option<String>,
    claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
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
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
