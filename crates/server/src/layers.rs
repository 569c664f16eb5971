//! What happens to every request before its handler: an id, and a caller.

use std::sync::Arc;

use amalgam_core::{IdKind, Ids};
use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body as _;

use crate::{app::App, wires};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a caller.
const LONGEST_ID: usize = 128;

/// Gives the request an id and its caller a scope, or refuses it. Everything is refused that is not public.
pub(crate) async fn enter(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let mut response = match wires::is_public(request.uri().path()) {
        true => next.run(request).await,
        false => match app.auth.admit(request.headers()) {
            Ok(scope) => {
                request.extensions_mut().insert(scope);
                next.run(request).await
            }
            Err(fault) => unread(&request, wires::refusal(request.uri().path(), fault).into_response()),
        },
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// An answer to a request whose body nobody has read: the connection cannot be used again, and the answer says so.
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
