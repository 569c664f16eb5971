//! `/admin/console`: browser sessions. A key, a one-time link or the OpenID Connect provider opens one, and its cookie is the
//! credential of the console.

use std::sync::Arc;

use amalgam_administration::{
    Administration, SMALL_BODY,
    console::{
        Browser, ConsoleStatus, CurrentConsoleSession, NewConsoleSession, SESSION_LIFETIME, SessionOpener, csrf_token,
        session_hash,
    },
};
use amalgam_core::{Actor, Fault, FaultKind, Operator, Scope, store::SignIn};
use amalgam_pages::{session_cookie, set_session_cookie};
use axum::{
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode, header};
use secrecy::ExposeSecret as _;

use super::call::{Answer, Call, secret, shown};
use crate::{
    app::App,
    auth::{CallerLookup, RequiredRight},
    body::{self, BodyLimits, read_json},
};

/// The sessions of a tenant; a key opens one.
pub(in crate::wires) const SESSIONS: &str = "/admin/console/sessions";

/// The session of the calling browser.
pub(in crate::wires) const OWN_SESSION: &str = "/admin/console/session";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the calling browser is signed in. Public: the answer to a browser that is not is no error.
pub(super) async fn status(State(app): State<Arc<App>>, request: Request) -> Answer {
    let page = app.origins.check(&request, true)?;
    let scope = match app.auth.admit(&request, RequiredRight::View, &page) {
        CallerLookup::Done(scope) => scope,
        CallerLookup::Pending(lookup) => lookup.await,
    };
    let session = match scope {
        Ok(scope) => current(&app, request.headers(), &scope).await?,
        Err(fault) if [FaultKind::Unauthenticated, FaultKind::Forbidden].contains(&fault.kind) => None,
        Err(fault) => return Err(fault.into()),
    };
    let provider = app.oidc.as_ref().map(|provider| provider.name());
    secret(&ConsoleStatus::new(VERSION, session, provider))
}

/// The session that the cookie names.
async fn current(app: &App, headers: &HeaderMap, scope: &Scope) -> Result<Option<CurrentConsoleSession>, Fault> {
    let Some(token) = session_cookie(headers) else { return Ok(None) };
    let hash = session_hash(app.auth.pepper(), token);
    let found = app.store.console_session(Operator::of_this_process(), hash).await?;
    let csrf = csrf_token(app.auth.pepper(), token);
    Ok(found.map(|(session, tenant)| CurrentConsoleSession::new(session, tenant.name, scope, csrf)))
}

/// Opens a session for the key of the request.
pub(super) async fn open(call: Call, request: Request) -> Answer {
    let Some(owner) = call.app.auth.owner_of_session(request.headers(), &call.scope) else {
        let message = "A key opens a session. Send it as `Authorization: Bearer YOUR_KEY`.";
        return Err(Fault::new(FaultKind::Unauthenticated, message).into());
    };
    let actor = call.actor();
    let browser = Browser { name: browser_name(request.headers()), address: actor.origin.clone() };
    let opener = SessionOpener { owner, user: None, sign_in: SignIn::Key, browser };
    opened(&call.app, actor, opener).await
}

/// Uses a one-time link and opens a session.
pub(super) async fn redeem_link(State(app): State<Arc<App>>, request: Request) -> Answer {
    body::expect_type(&request, false)?;
    let address = app.auth.client_address(request.extensions(), request.headers());
    app.auth.expect_few_attempts(address)?;
    let limits = BodyLimits { bytes: SMALL_BODY, ..app.text_body() };
    let browser =
        Browser { name: browser_name(request.headers()), address: address.map(|address| address.to_string()) };
    let body = read_json(request, limits, &app.memory).await?.1;
    // Any holder of the link can use it, so the audit records only the address.
    let actor = Actor { origin: browser.address.clone(), ..Actor::server(None) };
    let owner = Administration::new(&app, actor.clone()).redeem_console_link(app.auth.pepper(), &body).await?;
    let Some(owner) = owner else { return Err(app.auth.failed_attempt(address).into()) };
    let opener = SessionOpener { owner, user: None, sign_in: SignIn::Link, browser };
    opened(&app, actor, opener).await
}

/// The new session, with its cookie.
async fn opened(app: &App, actor: Actor, opener: SessionOpener) -> Answer {
    let pepper = app.auth.pepper();
    let opened = Administration::new(app, actor).open_console_session(pepper, opener).await?;
    let token = opened.token.expose_secret();
    let view = NewConsoleSession::new(opened.session, csrf_token(pepper, token));
    let mut response = (StatusCode::CREATED, secret(&view)?).into_response();
    with_cookie(&mut response, app, token, SESSION_LIFETIME.as_secs());
    Ok(response)
}

pub(super) fn browser_name(headers: &HeaderMap) -> Option<String> {
    headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok()).map(str::to_owned)
}

pub(super) async fn list(call: Call) -> Answer {
    shown(&call.administration().console_sessions(&call.scope, call.tenant_id()?, &call.page()?).await?)
}

/// Ends a session, at once in this process and within seconds in others.
pub(super) async fn end(call: Call) -> Answer {
    let ended = call.administration().end_console_session(&call.scope, call.tenant_id()?, call.id()).await?;
    call.app.auth.forget_session(&ended.id);
    shown(&ended)
}

/// Ends the session of the calling browser and removes its cookie.
pub(super) async fn sign_out(call: Call, request: Request) -> Answer {
    let current = current(&call.app, request.headers(), &call.scope).await?;
    let Some(current) = current else {
        return Err(Fault::new(FaultKind::NotFound, "The request has no console session.").into());
    };
    let tenant_id = Some(call.scope.tenant_id());
    let mut ended = call.administration().end_console_session(&call.scope, tenant_id, current.id()).await?;
    call.app.auth.forget_session(&ended.id);
    if let (true, Some(provider)) = (current.is_of_provider(), &call.app.oidc) {
        ended.end_session_url = provider.end_session_url().await;
    }
    let mut response = shown(&ended)?;
    with_cookie(&mut response, &call.app, "", 0);
    Ok(response)
}

/// Adds the cookie of a session.
pub(super) fn with_cookie(response: &mut Response, app: &App, token: &str, seconds: u64) {
    response.headers_mut().append(header::SET_COOKIE, set_session_cookie(token, seconds, is_secure(app)));
}

/// Whether browsers reach the server by HTTPS.
pub(super) fn is_secure(app: &App) -> bool {
    app.assistant.public_url.starts_with("https://")
}
