//! Sign-in to the console by the OpenID Connect provider: the redirect to it, and its answer.
//!
//! Both routes are opened by browsers, not by programs: every outcome is a redirect, a refusal to the sign-in page, which explains
//! it. The log has the reason of each refusal.

use std::{net::IpAddr, sync::Arc};

use amalgam_administration::{
    Administration,
    console::{Browser, SESSION_LIFETIME, SINGLE_SIGN_ON_START, SessionOpener},
    keys::is_user,
};
use amalgam_core::{
    Actor, Fault, FaultKind, RequestContext,
    store::{ConsoleOwner, ConsoleUser, SignIn},
};
use amalgam_oidc::{
    OidcProvider, PendingSignIn, ProviderUser, SIGN_IN_LIFETIME, SignInRefusal, SignInRefusalReason, return_path,
};
use amalgam_pages::{set_sign_in_cookie, sign_in_cookie};
use axum::{
    extract::{Extension, Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

use super::{
    call::Answer,
    console::{browser_name, is_secure, with_cookie},
};
use crate::{app::App, wires::query::Query};

/// Where a browser begins.
pub(in crate::wires) const START: &str = SINGLE_SIGN_ON_START;

/// Where the provider sends the browser.
pub(in crate::wires) const CALLBACK: &str = "/admin/console/oidc/callback";

/// The longest code that is sent on to the provider.
const MAX_CODE: usize = 4096;

/// The longest error code of a provider in the log.
const MAX_ERROR: usize = 60;

/// A browser on its way to or from the provider.
struct Visit {
    app: Arc<App>,
    provider: Arc<OidcProvider>,
    context: Arc<RequestContext>,
    browser: Browser,
    address: Option<IpAddr>,
    /// The cookie of the sign-in.
    cookie: Option<String>,
    /// The page that was asked for; the first page until the request has proved what it says.
    return_to: String,
}

/// Sends the browser to the provider.
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Extension(context): Extension<Arc<RequestContext>>,
    query: Query,
    request: Request,
) -> Answer {
    let mut visit = Visit::new(app, context, &request)?;
    visit.return_to = return_path(query.get("return_to").unwrap_or_default()).to_owned();
    Ok(match visit.begin().await {
        Ok((url, cookie)) => {
            let mut response = redirect(&url);
            visit.set_sign_in_cookie(&mut response, &cookie, SIGN_IN_LIFETIME.as_secs());
            response
        }
        Err(refusal) => visit.refuse(&refusal),
    })
}

/// Opens a session for the user that the provider names.
pub(super) async fn callback(
    State(app): State<Arc<App>>,
    Extension(context): Extension<Arc<RequestContext>>,
    query: Query,
    request: Request,
) -> Answer {
    let mut visit = Visit::new(app, context, &request)?;
    let mut response = match visit.finish(&query).await {
        Ok(token) => {
            let mut response = redirect(&visit.return_to);
            with_cookie(&mut response, &visit.app, token.expose_secret(), SESSION_LIFETIME.as_secs());
            response
        }
        Err(refusal) => {
            // Failures count like wrong keys, so that an address cannot try codes without end.
            let _ = visit.app.auth.failed_attempt(visit.address);
            visit.refuse(&refusal)
        }
    };
    visit.set_sign_in_cookie(&mut response, "", 0);
    Ok(response)
}

impl Visit {
    fn new(app: Arc<App>, context: Arc<RequestContext>, request: &Request) -> Result<Self, Fault> {
        let Some(provider) = app.oidc.clone() else {
            let message = "No OpenID Connect provider is configured ([console.oidc]).";
            return Err(Fault::new(FaultKind::NotFound, message).code("no_provider"));
        };
        let address = app.auth.client_address(request.extensions(), request.headers());
        let browser =
            Browser { name: browser_name(request.headers()), address: address.map(|address| address.to_string()) };
        let cookie = sign_in_cookie(request.headers()).map(str::to_owned);
        Ok(Self { app, provider, context, browser, address, cookie, return_to: return_path("").to_owned() })
    }

    /// The provider's address, and the cookie of the sign-in.
    async fn begin(&self) -> Result<(String, String), SignInRefusal> {
        self.expect_few_attempts()?;
        let pepper = self.app.auth.pepper();
        pepper.expect_shared().map_err(|error| unavailable(&error))?;
        let pending = PendingSignIn::begin(&self.return_to, self.app.clock.now_ms(), &|text| pepper.hash(text))?;
        let url = self.provider.authorization_url(&pending).await?;
        Ok((url, pending.cookie))
    }

    /// Checks the provider's answer, and returns the token of the new session.
    async fn finish(&mut self, query: &Query) -> Result<SecretString, SignInRefusal> {
        self.expect_few_attempts()?;
        let (auth, now_ms) = (&self.app.auth, self.app.clock.now_ms());
        auth.pepper().expect_shared().map_err(|error| unavailable(&error))?;
        let (cookie, state) = (self.cookie.as_deref(), query.get("state").unwrap_or_default());
        let pending = PendingSignIn::resume(cookie, state, now_ms, &|text| auth.pepper().hash(text))?;
        self.return_to.clone_from(&pending.return_to);
        if let Some(error) = query.get("error") {
            return Err(refusal_of_provider(error));
        }
        self.provider.expect_issuer(query.get("iss")).await?;
        let code = query.get("code").filter(|code| code.len() <= MAX_CODE);
        let code = code.ok_or_else(|| {
            SignInRefusal::new(SignInRefusalReason::ProviderError, "the answer has no code, or one that is too long")
        })?;
        let user = self.provider.user(&pending, code, now_ms).await?;
        self.open(user).await
    }

    async fn open(&self, user: ProviderUser) -> Result<SecretString, SignInRefusal> {
        let ProviderUser { tenant_id, user, name, rights } = user;
        if !is_user(&user) {
            let detail = "the claim with the user's name has spaces, or more than 256 characters";
            return Err(SignInRefusal::new(SignInRefusalReason::NoUser, detail));
        }
        let actor = Actor::of_user(&user, self.browser.address.clone());
        let opener = SessionOpener {
            owner: ConsoleOwner { tenant_id, rights, key_id: None, key_hash: None },
            user: Some(ConsoleUser { id: user.clone(), name }),
            sign_in: SignIn::Oidc,
            browser: self.browser.clone(),
        };
        let opened = Administration::new(&self.app, actor)
            .open_console_session(self.app.auth.pepper(), opener)
            .await
            .map_err(|fault| {
            let (reason, problem) = match fault.kind {
                FaultKind::Forbidden => (SignInRefusalReason::NoRole, "has no role that opens the console".to_owned()),
                FaultKind::NotFound => {
                    (SignInRefusalReason::NoTenant, format!("is of tenant {tenant_id}, which does not exist"))
                }
                _ => (SignInRefusalReason::Unavailable, fault.into_detail()),
            };
            SignInRefusal::new(reason, format!("the user `{user}` {problem}"))
        })?;
        let (session, address) = (&opened.session.id, self.browser.address.as_deref().unwrap_or_default());
        info!(tenant.id = tenant_id, user, client = address, "session {session}: {user} signed in by the provider");
        Ok(opened.token)
    }

    fn expect_few_attempts(&self) -> Result<(), SignInRefusal> {
        let few = self.app.auth.expect_few_attempts(self.address);
        few.map_err(|fault| SignInRefusal::new(SignInRefusalReason::TooManyAttempts, fault.into_detail()))
    }

    /// Sends the browser to the sign-in page with the reason. The fragment leaves the asked page's own query as it is.
    fn refuse(&self, refusal: &SignInRefusal) -> Response {
        let (reason, request) = (refusal.reason, self.context.id());
        let address = self.browser.address.as_deref().unwrap_or_default();
        warn!(reason = reason.code(), request.id = %request, client = address, "refused a sign-in by the provider: {refusal}");
        let page = self.return_to.split('#').next().unwrap_or_default();
        redirect(&format!("{page}#sign-in-error={reason}&request={request}"))
    }

    fn set_sign_in_cookie(&self, response: &mut Response, value: &str, seconds: u64) {
        let cookie = set_sign_in_cookie(value, seconds, is_secure(&self.app));
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// The provider's own refusal. Its description may be anything, so that the log has only the code.
fn refusal_of_provider(error: &str) -> SignInRefusal {
    let reason = match error {
        "access_denied" => SignInRefusalReason::Denied,
        "temporarily_unavailable" | "server_error" => SignInRefusalReason::ProviderUnavailable,
        _ => SignInRefusalReason::ProviderError,
    };
    let code: String = error.chars().filter(|one| one.is_ascii_graphic()).take(MAX_ERROR).collect();
    SignInRefusal::new(reason, format!("the provider answered with the error `{code}`"))
}

fn unavailable(error: &dyn std::error::Error) -> SignInRefusal {
    SignInRefusal::new(SignInRefusalReason::Unavailable, error.to_string())
}

/// A redirect that no cache keeps and that names no referrer.
fn redirect(to: &str) -> Response {
    let location = HeaderValue::try_from(to).expect("an encoded URL, or a path that was checked, is visible ASCII");
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}
