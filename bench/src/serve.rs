//! The accept loop that `mock` and `raw` share: HTTP/1.1 with TCP_NODELAY, one task per connection.
//!
//! It announces itself with the same line as the real server, so that `report` starts all three the same way.

use std::convert::Infallible;
use std::error::Error;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::args::Args;

/// How a helper process listens: its port (0 takes a free one) and whether it dies with the one that started it.
pub(crate) struct Listen {
    port: u16,
    with_parent: bool,
}

impl Listen {
    pub(crate) fn from_args(args: &mut Args) -> anyhow::Result<Self> {
        Ok(Self { port: args.value("--port")?.unwrap_or(0), with_parent: args.flag("--with-parent") })
    }

    /// Binds loopback, announces the address on stdout and serves until the parent is gone (or for ever).
    pub(crate) async fn serve<H, F, B>(self, name: &str, handler: H) -> anyhow::Result<()>
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
            .await
            .with_context(|| format!("binding port {}", self.port))?;
        println!("{name} listening on http://{}", listener.local_addr().context("reading the bound address")?);
        if self.with_parent {
            tokio::select! {
                result = accept(listener, handler) => result,
                () = parent_gone() => Ok(()),
            }
        } else {
            accept(listener, handler).await
        }
    }
}

/// Accepts for ever. A connection that breaks ends alone.
pub(crate) async fn accept<H, F, B>(listener: TcpListener, handler: H) -> anyhow::Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // Out of file descriptors: waiting lets other connections end, spinning does not.
                eprintln!("accept failed: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        let handler = handler.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = handler(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            // An error here is a client that left in the middle of a stream, which the memory test does on purpose.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Standard input is a pipe held by the parent; its end is the parent's end, however that came about.
async fn parent_gone() {
    let (gone, wait) = oneshot::channel();
    std::thread::spawn(move || {
        let mut sink = [0; 64];
        while matches!(std::io::stdin().read(&mut sink), Ok(read) if read > 0) {}
        let _ = gone.send(());
    });
    let _ = wait.await;
}
