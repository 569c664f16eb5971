//! Verifies signed tokens.
//!
//! A token is accepted if a configured key verifies its signature and its times, issuer and audience are right. The key
//! determines its algorithm; a token that names another one is refused, and so is one without a signature.

use std::time::Duration;

use amalgam_core::StoreError;
use amalgam_oidc::{
    CLOCK_SKEW_MS, Jwks, JwksLocation, MAX_TOKEN_BYTES, SignedToken, claim_time, names_audience, tenant_number,
};
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

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
        let Some(token) = SignedToken::parse(token) else { return Ok(None) };
        let signed = token.signed();
        let verified = match (signed.algorithm, &self.secret, &self.jwks) {
            ("HS256", Some(secret), _) => hmac::verify(secret, signed.message, signed.signature).is_ok(),
            (_, _, Some(jwks)) => jwks.verify(signed).await?,
            _ => false,
        };
        Ok(if verified { self.claims(token.claims(), now_ms) } else { None })
    }

    fn claims(&self, claims: &Map<String, Value>, now_ms: u64) -> Option<Claims> {
        let expires_at_ms = claim_time(claims.get("exp")?)?;
        let begins_at_ms = claims.get("nbf").map_or(Some(0), claim_time)?;
        let soon_ms = now_ms.saturating_add(CLOCK_SKEW_MS);
        if expires_at_ms <= now_ms || begins_at_ms > soon_ms {
            return None;
        }
        // The whole lifetime if the token says when it was issued, otherwise the rest of it.
        let issued_at_ms = claims.get("iat").map_or(Some(now_ms), claim_time)?;
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
        if let Some(audience) = &self.audience
            && !names_audience(claims, audience)
        {
            return None;
        }
        let tenant_id = tenant_number(claims.get(&self.tenant_claim)?)?;
        Some(Claims { subject: claims.get("sub")?.as_str()?.to_owned(), tenant_id, expires_at_ms })
    }
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
