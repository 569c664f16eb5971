//! What the inside asks of the outside: fetching, sealing. Implemented elsewhere, introduced by the binary.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::fault::Fault;

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What was found at an address that a caller named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedFile {
    /// The media type by the content where that is conclusive, else as the server declared it.
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

/// The one way out to addresses that callers name.
///
/// An implementer resolves the name, checks the address, connects to that very address, follows no redirect,
/// and stops at a time and at a size.
pub trait Fetch: Send + Sync {
    /// Gets `url`, reading at most `limit` bytes.
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>>;

    /// Whether `url` may be handed to an upstream, which then fetches it from where it stands: `http` or `https`, and
    /// neither a private address nor a name that leads to one, unless the operator allows it.
    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>>;
}

/// Encrypts what leaves our hands and comes back, bound to the tenant that it belongs to.
pub trait Seal: Send + Sync {
    /// Text safe to hand to a client; only [`Seal::open`] with the same `context` gives `plain` back.
    fn seal(&self, context: &str, plain: &[u8]) -> String;
    /// The plain bytes; none if `sealed` is not ours, is damaged, or belongs to another context.
    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>>;

    /// Whether `text` has our sealed format, whichever key can open it: `ams`, the digit of the format, a dot.
    fn is_sealed(&self, text: &str) -> bool {
        matches!(text.as_bytes(), [b'a', b'm', b's', digit, b'.', ..] if digit.is_ascii_digit())
    }
}

/// Time, handed in.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> u64;
}
