//! Ports: fetching, sealing, time. Other crates implement them; the binary passes them in.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::fault::Fault;

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A file that was fetched from a caller's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFile {
    /// The media type by the content if that is conclusive, else the server's declaration.
    pub media_type: String,
    /// The complete body, within the requested limit.
    pub bytes: Bytes,
}

impl FetchedFile {
    /// The body as a `data:` URI.
    pub fn data_uri(&self) -> String {
        format!(
            "data:{};base64,{}",
            self.media_type,
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &self.bytes)
        )
    }
}

/// The one way to addresses that callers name.
///
/// An implementer resolves the name, checks the address, connects to exactly that address, follows no redirect, and
/// limits time and size.
pub trait Fetch: Send + Sync {
    /// Gets `url`, reading at most `limit` bytes.
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>>;

    /// Whether `url` may be passed to an upstream, which fetches it from its own network: `http` or `https`, and
    /// neither a private address nor a name that resolves to one, unless the operator allows it.
    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>>;
}

/// Encrypts values that clients store and send back, bound to a tenant.
pub trait Seal: Send + Sync {
    /// Text that is safe for a client; only [`Seal::open`] with the same `context` returns `plain`.
    fn seal(&self, context: &str, plain: &[u8]) -> String;
    /// The plain bytes; none if `sealed` is not this server's, is damaged, or belongs to another context.
    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>>;

    /// Whether `text` has this server's sealed format, whichever key can open it: `ams`, the digit of the format, a
    /// dot.
    fn is_sealed(&self, text: &str) -> bool {
        matches!(text.as_bytes(), [b'a', b'm', b's', digit, b'.', ..] if digit.is_ascii_digit())
    }
}

/// The source of time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}
