//! A sign-in between its start and the provider's answer.
//!
//! Nothing is stored: the browser keeps a random token, the time and the page that was asked for in a cookie. `state`, `nonce` and
//! the PKCE verifier are hashes of all three with a secret of the installation, so that any process can complete the sign-in, a
//! changed cookie fits no `state`, and the cookie alone reveals no verifier.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use crate::refusal::{SignInRefusal, SignInRefusalReason};

/// How long the user may take at the provider.
pub const SIGN_IN_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// A hash with a secret of the installation.
pub type KeyedHash<'a> = &'a (dyn Fn(&str) -> [u8; 32] + Sync);

/// Where a sign-in leads if the page that was asked for is none of the console.
const HOME: &str = "/console/";

/// The maximum length of the page that was asked for.
const MAX_RETURN_PATH: usize = 1024;

/// A sign-in that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSignIn {
    /// The cookie's value.
    pub cookie: String,
    /// The page that was asked for.
    pub return_to: String,
    /// `state` of the authorisation request.
    pub state: String,
    /// `nonce` of the authorisation request.
    pub nonce: String,
    /// The PKCE verifier, whose hash the authorisation request has.
    pub verifier: String,
}

impl PendingSignIn {
    /// Begins a sign-in that leads to a page; see [`return_path`].
    pub fn begin(return_to: &str, now_ms: u64, hash: KeyedHash<'_>) -> Result<Self, SignInRefusal> {
        let mut token = [0; 32];
        SystemRandom::new()
            .fill(&mut token)
            .map_err(|_| SignInRefusal::new(SignInRefusalReason::Unavailable, "the system gives no random bytes"))?;
        Ok(Self::derive(&URL_SAFE_NO_PAD.encode(token), return_to, now_ms, hash))
    }

    /// The sign-in that this cookie began, if the provider's answer belongs to it.
    pub fn resume(cookie: Option<&str>, state: &str, now_ms: u64, hash: KeyedHash<'_>) -> Result<Self, SignInRefusal> {
        let refused = |reason, detail| Err(SignInRefusal::new(reason, detail));
        let Some(cookie) = cookie else {
            return refused(SignInRefusalReason::UnknownSignIn, "the browser has no cookie of a sign-in");
        };
        let Some((token, began_at_ms, return_to)) = read(cookie) else {
            return refused(SignInRefusalReason::UnknownSignIn, "the cookie of the sign-in is damaged");
        };
        let pending = Self::derive(token, &return_to, began_at_ms, hash);
        // Both are hashes of secrets, so that the time of a comparison reveals nothing about them.
        if Sha256::digest(&pending.state) != Sha256::digest(state) {
            return refused(SignInRefusalReason::UnknownSignIn, "the state is not that of this browser's sign-in");
        }
        let lifetime_ms = u64::try_from(SIGN_IN_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        match began_at_ms.saturating_add(lifetime_ms) <= now_ms {
            true => refused(SignInRefusalReason::Expired, "the sign-in began too long ago"),
            false => Ok(pending),
        }
    }

    /// The PKCE challenge (S256).
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }

    fn derive(token: &str, return_to: &str, began_at_ms: u64, hash: KeyedHash<'_>) -> Self {
        let return_to = return_path(return_to);
        let cookie = format!("{token}.{began_at_ms}.{}", URL_SAFE_NO_PAD.encode(return_to));
        let derived = |purpose: &str| URL_SAFE_NO_PAD.encode(hash(&format!("console sign-in {purpose}\n{cookie}")));
        Self {
            return_to: return_to.to_owned(),
            state: derived("state"),
            nonce: derived("nonce"),
            verifier: derived("verifier"),
            cookie,
        }
    }
}

/// Token, start and page of a cookie.
fn read(cookie: &str) -> Option<(&str, u64, String)> {
    let mut parts = cookie.split('.');
    let (token, began_at, page) = (parts.next()?, parts.next()?, parts.next()?);
    let page = String::from_utf8(URL_SAFE_NO_PAD.decode(page).ok()?).ok()?;
    parts.next().is_none().then_some((token, began_at.parse().ok()?, page))
}

/// The page of the console that a sign-in may lead to: the asked one if it is a plain path below `/console/`, else the first page.
/// A path has no host, and without dot segments it stays below `/console/`.
pub fn return_path(asked: &str) -> &str {
    let path = asked.split(['?', '#']).next().unwrap_or_default();
    let decoded = path.to_ascii_lowercase().replace("%2e", ".");
    let is_plain = asked.len() <= MAX_RETURN_PATH
        && asked.starts_with(HOME)
        && asked.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && decoded.split('/').all(|segment| segment != "." && segment != "..");
    if is_plain { asked } else { HOME }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn hash(text: &str) -> [u8; 32] {
        Sha256::digest(["secret", text].concat()).into()
    }

    #[test]
    fn only_pages_of_the_console_are_returned_to() {
        for page in ["/console/", "/console/turns?status=failed&q=a%2Fb#x", "/console/turns/resp_1", "/console/a..b"] {
            assert_eq!(return_path(page), page);
        }
        let long = format!("/console/{}", "x".repeat(2000));
        for elsewhere in [
            "",
            "/",
            "/console",
            "//evil.example/console/",
            "https://evil.example/console/",
            "/\\evil.example",
            "/console/\\..\\..",
            "/console/../admin/console/oidc/start",
            "/console/%2E%2e/admin",
            "/console/./x",
            "/consolex/",
            "/console/a b",
            "/console/\r\nset-cookie: a=b",
            "javascript:alert(1)",
            &long,
        ] {
            assert_eq!(return_path(elsewhere), "/console/", "{elsewhere}");
        }
    }

    #[test]
    fn an_answer_belongs_to_the_browser_that_began_and_only_in_time() {
        let begun = PendingSignIn::begin("/console/turns", NOW, &hash).unwrap();
        let resume = |cookie: &str, state: &str, at| PendingSignIn::resume(Some(cookie), state, at, &hash);
        assert_eq!(resume(&begun.cookie, &begun.state, NOW + 599_999).as_ref(), Ok(&begun));
        let reason = |result: Result<PendingSignIn, SignInRefusal>| result.unwrap_err().reason;
        assert_eq!(reason(resume(&begun.cookie, &begun.state, NOW + 600_000)), SignInRefusalReason::Expired);
        let other = PendingSignIn::begin("/console/turns", NOW, &hash).unwrap();
        for (cookie, state) in [
            (begun.cookie.as_str(), other.state.as_str()),
            (begun.cookie.as_str(), ""),
            (other.cookie.as_str(), begun.state.as_str()),
            (&begun.cookie.replace(&NOW.to_string(), &(NOW + 1).to_string()), begun.state.as_str()),
            (&format!("{}.x", begun.cookie), begun.state.as_str()),
            ("..", begun.state.as_str()),
            ("", begun.state.as_str()),
        ] {
            assert_eq!(reason(resume(cookie, state, NOW)), SignInRefusalReason::UnknownSignIn, "{cookie}");
        }
        assert_eq!(reason(PendingSignIn::resume(None, &begun.state, NOW, &hash)), SignInRefusalReason::UnknownSignIn);
        assert!(begun.verifier.len() >= 43, "RFC 7636 requires 43 characters");
        assert_ne!(begun.state, begun.nonce);
    }
}
