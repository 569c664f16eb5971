//! Callers with a browser token: they act for the key that issued the token, within its terms.

use std::sync::Arc;

use amalgam_administration::keys::KEY_PREFIX;
use amalgam_app::assistant::{CLIENT_SECRET_PREFIX, open_client_secret};
use amalgam_assistant::client_secret::ClientSecret;
use amalgam_core::{Fault, FaultKind, Seal};
use http::{HeaderMap, HeaderValue, Request, header};

use super::{Auth, CallerLookup, Credential, RequiredRight, cache::Hash};
use crate::{origins::Page, wires};

/// The token of a request; none if it has another credential, or if this installation has not sealed the token.
pub(crate) fn presented(seal: &dyn Seal, headers: &HeaderMap) -> Option<Arc<ClientSecret>> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_token = scheme.eq_ignore_ascii_case("bearer") && token.starts_with(CLIENT_SECRET_PREFIX);
    is_token.then(|| open_client_secret(seal, token))?.map(Arc::new)
}

/// The page of a request with a token: only pages of its origin may use it, and programs may not.
pub(crate) fn page_of(secret: &ClientSecret, headers: &HeaderMap) -> Result<Page, Fault> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_of = |origin: &HeaderValue| origin.to_str().is_ok_and(|text| text.eq_ignore_ascii_case(&secret.origin));
    match (origins.next(), origins.next()) {
        (Some(origin), None) if is_of(origin) => Ok(Page::Allowed(origin.clone())),
        _ => {
            Err(Fault::new(FaultKind::Forbidden, "This token is for pages of another origin.")
                .code("origin_not_allowed"))
        }
    }
}

impl Auth {
    /// The scope of a caller with a token. Its page was checked.
    pub(crate) fn admit_client<B>(&self, request: &Request<B>, secret: &Arc<ClientSecret>) -> CallerLookup {
        if secret.expires_at_ms <= self.0.clock.now_ms() {
            let fault = Fault::new(FaultKind::Unauthenticated, "The token has expired.").code("token_expired");
            return CallerLookup::Done(Err(fault));
        }
        if !wires::takes_client_secrets(request.method(), request.uri().path()) {
            let fault = Fault::new(FaultKind::Forbidden, "This token does not reach this route.");
            return CallerLookup::Done(Err(fault.code("route_not_allowed")));
        }
        let credential = Credential::ClientSecret(secret);
        self.identify(request, RequiredRight::Issue, secret.key_hash, &credential)
    }

    /// The hash of the key of this request, which may issue tokens: signed tokens and browser sessions may not.
    pub(crate) fn issuing_key(&self, headers: &HeaderMap) -> Result<Hash, Fault> {
        let refused = || Fault::new(FaultKind::Forbidden, "Only an API key issues tokens for browsers.");
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (_, key) = value.and_then(|value| value.split_once(' ')).ok_or_else(refused)?;
        let (key, hash) = (key.trim(), self.0.pepper.hash(key.trim()));
        let is_key = key.starts_with(KEY_PREFIX) || self.0.configured.load().keys.contains_key(&hash);
        if is_key { Ok(hash) } else { Err(refused()) }
    }
}
