//! `raw`: the cheapest HTTP proxy that hyper and hyper-util allow, the yardstick of every ratio.
//!
//! The path stays, the body bytes pass in both directions frame by frame, and nothing is looked at.

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::args::Args;
use crate::serve::Listen;

pub(crate) type PassedBody = Either<Incoming, Full<Bytes>>;

pub(crate) async fn run(mut args: Args) -> anyhow::Result<()> {
    let listen = Listen::from_args(&mut args)?;
    let upstream: Authority = args.value("--upstream")?.ok_or_else(|| anyhow!("raw needs --upstream HOST:PORT"))?;
    args.finish()?;
    let client = client();
    listen.serve("raw", move |request| pass_on(client.clone(), upstream.clone(), request)).await
}

pub(crate) fn client() -> Client<HttpConnector, Incoming> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

pub(crate) async fn pass_on(
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Response<PassedBody> {
    *request.uri_mut() = match moved_to(upstream, request.uri()) {
        Ok(uri) => uri,
        Err(error) => return bad_gateway(&format!("{error:#}")),
    };
    // The client writes the header that fits the new address.
    request.headers_mut().remove(HOST);
    match client.request(request).await {
        Ok(response) => response.map(Either::Left),
        Err(error) => bad_gateway(&error.to_string()),
    }
}

fn moved_to(upstream: Authority, uri: &Uri) -> anyhow::Result<Uri> {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::builder().scheme(Scheme::HTTP).authority(upstream).path_and_query(path).build().context("building the address")
}

fn bad_gateway(reason: &str) -> Response<PassedBody> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::copy_from_slice(reason.as_bytes()))));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_and_query_stay_when_the_address_changes() {
        let uri = "http://127.0.0.1:1/v1/responses?stream=true".parse().unwrap();

        let moved = moved_to(Authority::from_static("127.0.0.1:9"), &uri).unwrap();

        assert_eq!(moved, "http://127.0.0.1:9/v1/responses?stream=true");
    }
}
