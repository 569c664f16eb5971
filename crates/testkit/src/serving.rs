//! A server on a thread and a runtime of its own, so that a test may block, pause its clock or run without a runtime.

use std::future::Future;
use std::net::SocketAddr;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A listener that serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    address: SocketAddr,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Serving {
    /// Starts the future that `serve` returns for a listener on a free port of the loopback interface.
    pub(crate) fn start<F>(serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a fresh listener can be made non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("upstream".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let listener = tokio::net::TcpListener::from_std(listener);
                    tokio::select! {
                        () = serve(listener.expect("a non-blocking listener joins the runtime")) => {}
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread starts");
        Self { address, runtime: handle, stop: Some(stop), thread: Some(thread) }
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The runtime of the server.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Sending fails only if the thread has ended already.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
