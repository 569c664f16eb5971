//! Handles every request before its handler: request id, origin and authentication.
//!
//! A service around the router rather than a layer in it: a layer would box every request twice more.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use amalgam_assistant::client_secret::ClientSecret;
use amalgam_core::{BoxFuture, Fault, IdKind, Ids, RequestContext, Scope, TraceContext};
use axum::{Router, body::Body, extract::Request, response::Response, routing::future::RouteFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use http_body::Body as _;
use tower::Service;

use crate::{
    app::{App, CurrentApp},
    auth::{CallerLookup, RequiredRight, browser::is_safe, client_secrets},
    body,
    origins::Page,
    rate_limits,
    request_log::OpenRequest,
    wires,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The maximum length of a caller's request id.
const MAX_ID_BYTES: usize = 128;

/// The router behind authentication. Cheap to clone.
#[derive(Clone)]
pub struct AuthenticatedRouter {
    app: CurrentApp,
    router: Router,
    wires: WireSet,
}

/// The wires that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireSet {
    /// All wires.
    All,
    /// All wires except the administration.
    WithoutAdministration,
    /// Only metrics, without a key.
    Metrics,
}

impl AuthenticatedRouter {
    pub(crate) fn new(app: CurrentApp, router: Router, wires: WireSet) -> Self {
        Self { app, router, wires }
    }

    /// Whether a request needs no credential.
    fn is_public(&self, app: &App, request: &Request) -> bool {
        let path = request.uri().path();
        let is_metrics = path == wires::METRICS;
        wires::is_public(path)
            || is_metrics && (self.wires == WireSet::Metrics || app.auth.comes_from_this_machine(request))
    }

    /// The caller's scope, from its browser token or another credential.
    fn admit(&self, app: &App, request: &Request, client: Option<&Arc<ClientSecret>>, page: &Page) -> CallerLookup {
        match client {
            Some(secret) => app.auth.admit_client(request, secret),
            None => app.auth.admit(request, self.required_right(request.uri().path(), request.method()), page),
        }
    }

    fn required_right(&self, path: &str, method: &Method) -> RequiredRight {
        if path == wires::METRICS {
            return RequiredRight::Metrics;
        }
        match self.wires != WireSet::WithoutAdministration && wires::is_administration(path) {
            true if is_safe(method) || wires::is_own_session(path) => RequiredRight::View,
            true => RequiredRight::Admin,
            false if wires::issues_client_secrets(path) => RequiredRight::Issue,
            false => RequiredRight::Use,
        }
    }
}

impl fmt::Debug for AuthenticatedRouter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.router.fmt(formatter)
    }
}

impl Service<Request<Body>> for AuthenticatedRouter {
    type Response = Response;
    type Error = Infallible;
    type Future = PendingResponse;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Gives the request an id and its caller a scope, or refuses it: first all requests of pages of other sites, then
    /// every request without a scope to a route that is not public.
    fn call(&mut self, request: Request<Body>) -> PendingResponse {
        let app = self.app.load();
        let id = request_id(request.headers(), app.clock.now_ms());
        let (parent, state) = trace(request.headers());
        let context = RequestContext::new(shared(&id), app.log.begin_trace(parent)).with_trace_state(state);
        let mut open = OpenRequest::new(&app.log, &request, Arc::new(context));
        let path = request.uri().path();
        let is_public = self.is_public(&app, &request);
        let client = client_secrets::presented(&*app.seal, request.headers());
        let page = || match &client {
            _ if wires::is_embeddable(path) => Ok(Page::Own),
            Some(secret) => client_secrets::page_of(secret, request.headers()),
            // A preflight request carries no token; the request itself is checked by its token.
            None => app.origins.check(&request, is_public).or_else(|fault| Page::asking(&request).ok_or(fault)),
        };
        let page = match expect_host(&request).and_then(|()| page()) {
            Ok(page) => page,
            Err(fault) => {
                let step = self.refuse(&request, &open, fault);
                return PendingResponse { id: Some(id), open: Some(open), page: Page::Own, step };
            }
        };
        let step = match (page.preflight(&request), is_public) {
            (Some(response), _) => Step::Refused(Some(response)),
            (None, true) => {
                let mut request = request;
                request.extensions_mut().insert(Arc::clone(open.context()));
                Step::Routed(self.router.call(request))
            }
            (None, false) => match self.admit(&app, &request, client.as_ref(), &page) {
                CallerLookup::Done(scope) => self.route(request, &mut open, scope),
                CallerLookup::Pending(lookup) => Step::Authenticating(Box::new(PendingAuthentication {
                    lookup,
                    request: Some(request),
                    router: self.clone(),
                })),
            },
        };
        PendingResponse { id: Some(id), open: Some(open), page, step }
    }
}

/// A pending response, with the request's id.
pub struct PendingResponse {
    id: Option<HeaderValue>,
    /// The request; dropped before its response, it is logged as a disconnection.
    open: Option<Box<OpenRequest>>,
    page: Page,
    step: Step,
}

enum Step {
    /// The store authenticates the caller. Boxed to keep the enum small: most callers are cached.
    Authenticating(Box<PendingAuthentication>),
    /// Refused without a handler.
    Refused(Option<Response>),
    Routed(RouteFuture<Infallible>),
}

struct PendingAuthentication {
    lookup: BoxFuture<'static, Result<Scope, Fault>>,
    request: Option<Request>,
    router: AuthenticatedRouter,
}

impl AuthenticatedRouter {
    /// Passes an admitted request to its route, or refuses it.
    fn route(&mut self, mut request: Request, open: &mut OpenRequest, scope: Result<Scope, Fault>) -> Step {
        let scope = scope.and_then(|scope| {
            let form = wires::is_upload(&request);
            body::expect_type(&request, form).map(|()| scope)
        });
        match scope {
            Ok(scope) => {
                open.set_caller(&scope);
                request.extensions_mut().insert(scope.with_request(Arc::clone(open.context())));
                Step::Routed(self.router.call(request))
            }
            Err(fault) => self.refuse(&request, open, fault),
        }
    }

    fn refuse(&self, request: &Request, open: &OpenRequest, fault: Fault) -> Step {
        let refusal = wires::refusal(&self.app.load(), request, Some(open.context().id()), fault);
        Step::Refused(Some(unread(request, refusal)))
    }
}

impl Future for PendingResponse {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { open, step, .. } = &mut *self;
        let span = open.as_ref().map_or_else(tracing::Span::none, |open| open.span().clone());
        let _inside = span.enter();
        if let (Step::Authenticating(pending), Some(open)) = (&mut *step, open) {
            let scope = ready!(pending.lookup.as_mut().poll(context));
            let request = pending.request.take().unwrap_or_default();
            *step = pending.router.route(request, open, scope);
        }
        let mut response = match &mut self.step {
            // Not reached: the block above has replaced this step.
            Step::Authenticating(_) => return Poll::Pending,
            Step::Refused(response) => response.take().unwrap_or_default(),
            Step::Routed(future) => match ready!(Pin::new(future).poll(context)) {
                Ok(response) => response,
                Err(never) => match never {},
            },
        };
        if let Some(id) = self.id.take() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        if let Some((rate_limits, at_ms)) = self.open.as_ref().and_then(|open| open.context().rate_limits()) {
            rate_limits::mark(response.headers_mut(), rate_limits, at_ms);
        }
        std::mem::replace(&mut self.page, Page::Own).mark(response.headers_mut());
        Poll::Ready(Ok(match self.open.take() {
            Some(open) => open.answered(response),
            None => response,
        }))
    }
}

/// Refuses a request that names no host, or several: RFC 9112, section 3.2. HTTP/1.0 clients may name none.
fn expect_host(request: &Request) -> Result<(), Fault> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let message = match (hosts.next(), hosts.next()) {
        (Some(_), None) => return Ok(()),
        (None, _) if request.version() < Version::HTTP_11 => return Ok(()),
        (None, _) => "The request has no Host header.",
        (Some(_), Some(_)) => "The request has more than one Host header.",
    };
    Err(Fault::invalid("Host", message).code("malformed_request"))
}

/// The response to a request whose body was not read: it closes the connection, and its header says so.
pub(crate) fn unread(request: &Request, mut response: Response) -> Response {
    if !request.body().is_end_stream() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The caller's place in a trace, and its `tracestate`, which means nothing without one.
fn trace(headers: &HeaderMap) -> (Option<TraceContext>, Option<Arc<str>>) {
    let parent = headers.get(TraceContext::HEADER).and_then(|value| TraceContext::parse(value.to_str().ok()?));
    // Several headers are one list.
    let state = || {
        let values = headers.get_all(TraceContext::STATE_HEADER).iter().map(HeaderValue::to_str);
        let state = values.collect::<Result<Vec<_>, _>>().ok()?.join(",");
        (1..=TraceContext::MAX_STATE_BYTES).contains(&state.len()).then(|| state.into())
    };
    (parent, parent.and_then(|_| state()))
}

/// A request id as text.
fn shared(id: &HeaderValue) -> Arc<str> {
    id.to_str().unwrap_or_default().into()
}

/// The caller's request id if it is short and printable, otherwise a new one. New ones sort by time, so that the
/// store's index of turns by request grows at its end.
fn request_id(headers: &HeaderMap, now_ms: u64) -> HeaderValue {
    match headers.get(REQUEST_ID) {
        Some(id) if !id.is_empty() && id.len() <= MAX_ID_BYTES && id.to_str().is_ok() => id.clone(),
        _ => HeaderValue::try_from(Ids::Unguessable.dated(IdKind::Request, now_ms)).expect("our ids are plain ASCII"),
    }
}
