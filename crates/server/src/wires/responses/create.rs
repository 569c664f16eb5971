//! `POST /v1/responses`

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use amalgam_core::{Delivery, Fault, FaultKind, Loss, Scope, normalise};
use amalgam_engine::{Ask, Frames, Run};
use amalgam_protocol::{CreateResponse, Effective, Ends, Raw, Settings};
use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    response::Response,
};
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{bounds, convert, error};
use crate::{
    app::App,
    body::{BodyLimits, expect_json, read},
    wires::WireError,
};

const LOSSES: HeaderName = HeaderName::from_static("amalgam-losses");
const STRICT: HeaderName = HeaderName::from_static("amalgam-strict");

/// The most bytes of losses that a header tells; the log has them all.
const LOSSES_BYTES: usize = 4096;

/// Makes a response: reads, means, asks, delivers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = request.into_parts();
    expect_json(&head.headers)?;
    let limits = &app.limits;
    let most = BodyLimits { bytes: limits.body_bytes + limits.media_bytes, pause: limits.body_pause };
    let body = read(body, most).await?;
    let run = start(&app, &scope, &head.headers, &body).await?;
    drop(body);
    deliver(run).await
}

async fn start(app: &App, scope: &Scope, headers: &HeaderMap, body: &Bytes) -> Result<Started, Fault> {
    let mut ends = Ends::default();
    let raw = Raw::parse_large(body, app.limits.json_depth, &mut ends).map_err(|fault| error::syntax(&fault))?;
    let request = CreateResponse::read(raw).map_err(error::shape)?;
    let meaning = convert::meaning(&request, raw, scope)?;
    bounds::check(&request, raw, body.len(), &app.limits)?;
    let model = request.model.as_deref().unwrap_or_default();
    let route = app.catalog.resolve(scope, model).await?.ok_or_else(|| no_such_model(model))?;
    let history = normalise(request.instructions.as_ref(), request.input.as_ref());
    let settings = Settings::new(&request, Effective { model, stored: false, background: false });
    let seal_context = scope.seal_context();
    let ask = Ask {
        candidates: &route.candidates,
        request: &request,
        history: &history,
        settings,
        delivery: meaning.delivery,
        seal_context: &seal_context,
        strict: headers.get(STRICT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true")),
        losses: meaning.losses,
    };
    let run = app.engine.start(ask).await?;
    Ok(Started { run, delivery: meaning.delivery })
}

struct Started {
    run: Run,
    delivery: Delivery,
}

async fn deliver(Started { run, delivery }: Started) -> Result<Response, WireError> {
    let losses = losses_header(run.losses());
    let mut response = match delivery {
        Delivery::Whole => {
            let mut response = Response::new(Body::from(run.finish().await?));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Delivery::Stream => {
            let frames = run.into_frames(error::object_in_stream);
            let mut response = Response::new(Body::new(FramesBody(frames)));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // Proxies that gather a body before they pass it on would hold the events back.
            headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
            response
        }
    };
    if let Some(losses) = losses {
        response.headers_mut().insert(LOSSES, losses);
    }
    Ok(response)
}

pub(super) fn no_such_model(model: &str) -> Fault {
    let shown: String = model.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("The model '{shown}' does not exist or you do not have access to it."))
        .param("model")
        .code("model_not_found")
}

fn losses_header(losses: &[Loss]) -> Option<HeaderValue> {
    if losses.is_empty() {
        return None;
    }
    let told = losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let plain: String =
        told.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).take(LOSSES_BYTES).collect();
    HeaderValue::try_from(plain).ok()
}

/// Frames as a response body.
struct FramesBody(Frames);

impl http_body::Body for FramesBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0).poll_next(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
