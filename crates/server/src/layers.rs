//! What happens to every request before its handler: an id, and a caller.
//!
//! A service around the router rather than a layer in it: a layer would put every request into two more boxes.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use amalgam_core::{BoxFuture, Fault, IdKind, Ids, Scope};
use axum::{Router, body::Body, extract::Request, response::Response, routing::future::RouteFuture};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use http_body::Body as _;
use tower::Service;

use crate::{
    app::App,
    auth::{Admission, Door},
    body,
    origins::Page,
    wires,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a caller.
const LONGEST_ID: usize = 128;

/// All wires behind their entrance. Cheap to clone.
#[derive(Clone)]
pub struct Entrance {
    app: Arc<App>,
    router: Router,
    behind: Behind,
}

/// Which wires are behind an entrance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// All of them.
    Everything,
    /// All but the administration.
    Doors,
    /// The administration alone.
    Administration,
}

impl Entrance {
    pub(crate) fn new(app: Arc<App>, router: Router, behind: Behind) -> Self {
        Self { app, router, behind }
    }

    fn door(&self, path: &str) -> Door {
        match self.behind != Behind::Doors && wires::is_administration(path) {
            true => Door::Admin,
            false => Door::Use,
        }
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.router.fmt(formatter)
    }
}

impl Service<Request<Body>> for Entrance {
    type Response = Response;
    type Error = Infallible;
    type Future = Entered;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Gives the request an id and its caller a scope, or refuses it. Everything is refused that is not public, and
    /// before that everything that a page of another site sends.
    fn call(&mut self, request: Request<Body>) -> Entered {
        let id = request_id(request.headers());
        let path = request.uri().path();
        let is_public = wires::is_public(path);
        let page = match expect_host(&request).and_then(|()| self.app.origins.check(&request, is_public)) {
            Ok(page) => page,
            Err(fault) => return Entered { id: Some(id), page: Page::Own, step: self.refuse(&request, fault) },
        };
        let step = match (page.preflight(&request), is_public) {
            (Some(response), _) => Step::Refused(Some(response)),
            (None, true) => Step::Routed(self.router.call(request)),
            (None, false) => match self.app.auth.admit(&request, self.door(path)) {
                Admission::Now(admitted) => self.enter(request, admitted),
                Admission::Later(asking) => {
                    Step::Asking(Box::new(Asking { asking, request: Some(request), entrance: self.clone() }))
                }
            },
        };
        Entered { id: Some(id), page, step }
    }
}

/// An answer on its way, with the request's id.
pub struct Entered {
    id: Option<HeaderValue>,
    page: Page,
    step: Step,
}

enum Step {
    /// The store says who the caller is. In a box: most callers are known, and their step stays small.
    Asking(Box<Asking>),
    /// Answered without a handler.
    Refused(Option<Response>),
    Routed(RouteFuture<Infallible>),
}

struct Asking {
    asking: BoxFuture<'static, Result<Scope, Fault>>,
    request: Option<Request>,
    entrance: Entrance,
}

impl Entrance {
    /// Hands a request on to its route, or answers it when its caller may not come in.
    fn enter(&mut self, mut request: Request, admitted: Result<Scope, Fault>) -> Step {
        let admitted = admitted.and_then(|scope| {
            let form = wires::is_upload(&request);
            body::expect_type(&request, form).map(|()| scope)
        });
        match admitted {
            Ok(scope) => {
                request.extensions_mut().insert(scope);
                Step::Routed(self.router.call(request))
            }
            Err(fault) => self.refuse(&request, fault),
        }
    }

    fn refuse(&self, request: &Request, fault: Fault) -> Step {
        let refusal = wires::refusal(&self.app, request.uri().path(), fault);
        Step::Refused(Some(unread(request, refusal)))
    }
}

impl Future for Entered {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Step::Asking(asking) = &mut self.step {
            let admitted = ready!(asking.asking.as_mut().poll(context));
            let request = asking.request.take().unwrap_or_default();
            self.step = asking.entrance.enter(request, admitted);
        }
        let mut response = match &mut self.step {
            // It became one of the others above.
            Step::Asking(_) => return Poll::Pending,
            Step::Refused(response) => response.take().unwrap_or_default(),
            Step::Routed(future) => match ready!(Pin::new(future).poll(context)) {
                Ok(response) => response,
                Err(never) => match never {},
            },
        };
        if let Some(id) = self.id.take() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        std::mem::replace(&mut self.page, Page::Own).mark(response.headers_mut());
        Poll::Ready(Ok(response))
    }
}

/// Refuses a request that names no host, or several: RFC 9112, section 3.2. Older clients than HTTP/1.1 may name none.
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

/// An answer to a request whose body was not read: the connection cannot be used again, and the answer says so.
pub(crate) fn unread(request: &Request, mut response: Response) -> Response {
    if !request.body().is_end_stream() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The caller's id where it is short and plain, else one of ours.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(REQUEST_ID) {
        Some(id) if !id.is_empty() && id.len() <= LONGEST_ID && id.to_str().is_ok() => id.clone(),
        _ => HeaderValue::try_from(Ids::Unguessable.make(IdKind::Request)).expect("our ids are plain ASCII"),
    }
}
