//! The rules for the claims of an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

use serde_json::{Map, Value};

use crate::signed_token::{CLOCK_SKEW_MS, claim_time, names_audience};

/// What an ID token has to say.
pub(crate) struct ExpectedClaims<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) nonce: &'a str,
    pub(crate) now_ms: u64,
}

impl ExpectedClaims<'_> {
    /// What is wrong with the claims of a token whose signature was verified.
    pub(crate) fn check(&self, claims: &Map<String, Value>) -> Result<(), &'static str> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(self.issuer) {
            return Err("it is of another issuer");
        }
        if !names_audience(claims, self.client_id) {
            return Err("it is for another client (aud)");
        }
        let has_several = matches!(claims.get("aud"), Some(Value::Array(several)) if several.len() > 1);
        match claims.get("azp") {
            None if has_several => return Err("it is for several clients and names none of them in azp"),
            Some(party) if party.as_str() != Some(self.client_id) => {
                return Err("it was issued to another client (azp)");
            }
            _ => {}
        }
        let soon_ms = self.now_ms.saturating_add(CLOCK_SKEW_MS);
        let Some(expires_at_ms) = claims.get("exp").and_then(claim_time) else { return Err("it has no expiry (exp)") };
        if expires_at_ms.saturating_add(CLOCK_SKEW_MS) <= self.now_ms {
            return Err("it has expired");
        }
        let Some(issued_at_ms) = claims.get("iat").and_then(claim_time) else {
            return Err("it has no time of issue (iat)");
        };
        if issued_at_ms > soon_ms || claims.get("nbf").map_or(Some(0), claim_time).is_none_or(|at| at > soon_ms) {
            return Err("it is not valid yet; compare the clocks of both machines");
        }
        if text("nonce") != Some(self.nonce) {
            return Err("its nonce is not that of this sign-in");
        }
        if text("sub").is_none_or(|subject| subject.is_empty() || subject.len() > 255) {
            return Err("it names no subject (sub)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn claims() -> Value {
        json!({"iss": "https://id.example", "aud": "console", "sub": "u", "exp": NOW + 60, "iat": NOW, "nonce": "n"})
    }

    fn check(claims: &Value) -> Result<(), &'static str> {
        let expected =
            ExpectedClaims { issuer: "https://id.example", client_id: "console", nonce: "n", now_ms: NOW * 1000 };
        expected.check(claims.as_object().unwrap())
    }

    #[test]
    fn a_token_for_this_sign_in_is_accepted() {
        assert_eq!(check(&claims()), Ok(()));
        for (name, value) in [
            ("aud", json!(["console"])),
            ("azp", json!("console")),
            ("nbf", json!(NOW + 30)),
            ("iat", json!(NOW + 30)),
            ("exp", json!(NOW - 30)),
        ] {
            let mut claims = claims();
            claims[name] = value;
            assert_eq!(check(&claims), Ok(()), "{name}");
        }
        let mut several = claims();
        several["aud"] = json!(["other", "console"]);
        several["azp"] = json!("console");
        assert_eq!(check(&several), Ok(()));
    }

    #[test]
    fn a_wrong_or_missing_claim_refuses_the_token() {
        for (name, value) in [
            ("iss", json!("https://id.example/")),
            ("iss", json!(null)),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("aud", json!(null)),
            ("aud", json!(["console", "other"])),
            ("azp", json!("other")),
            ("azp", json!(null)),
            ("exp", json!(NOW - 61)),
            ("exp", json!("soon")),
            ("exp", json!(null)),
            ("iat", json!(NOW + 61)),
            ("iat", json!(null)),
            ("nbf", json!(NOW + 61)),
            ("nbf", json!("later")),
            ("nonce", json!("m")),
            ("nonce", json!(null)),
            ("sub", json!("")),
            ("sub", json!("x".repeat(256))),
            ("sub", json!(7)),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            assert!(check(&claims).is_err(), "{name} {value}");
        }
    }
}
