//! Configured headers for a service: validated once, with secrets kept separate.

use amalgam_core::{ToolCall, TraceContext};
use amalgam_protocol::Writer;
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{egress::is_connection_header, secrets::Secrets, text};

const MAX_HEADERS: usize = 32;
/// Parts of header names whose values are credentials. Redacting a harmless value does no harm.
const CREDENTIALS: [&str; 11] =
    ["auth", "cookie", "token", "secret", "passw", "credential", "apikey", "-key", "_key", "session", "signature"];

/// The value of a header.
#[derive(Debug, Clone)]
pub enum HeaderText {
    /// Not a secret.
    Plain(String),
    /// Redacted from errors, and from results that repeat it.
    Secret(SecretString),
}

impl HeaderText {
    pub(crate) fn expose(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.expose_secret(),
        }
    }
}

/// Whether a header of this name usually contains a credential.
pub(crate) fn holds_a_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

/// The headers to send, and the secrets to redact. The error contains no values.
pub(crate) fn read(written: &[(String, HeaderText)]) -> Result<(HeaderMap, Secrets), String> {
    if written.len() > MAX_HEADERS {
        return Err(format!("at most {MAX_HEADERS}"));
    }
    let (mut headers, mut secrets) = (HeaderMap::new(), Secrets::default());
    for (name, text) in written {
        let shown = text::printable(name, 100);
        let name: HeaderName = name.parse().map_err(|_| format!("`{shown}` is no name of a header"))?;
        if is_connection_header(&name) {
            return Err(format!("`{shown}` belongs to the connection"));
        }
        let value = value(text.expose()).ok_or_else(|| format!("the value of `{shown}` is not usable"))?;
        if let HeaderText::Secret(secret) = text {
            secrets.add(secret);
        }
        if headers.insert(name, value).is_some() {
            return Err(format!("`{shown}` is there twice"));
        }
    }
    Ok((headers, secrets))
}

/// A value that is not logged.
pub(crate) fn value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The trace that a call of a tool belongs to, as other servers are told about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTrace<'a> {
    parent: TraceContext,
    /// The caller's `tracestate`.
    state: Option<&'a str>,
}

impl<'a> CallTrace<'a> {
    pub(crate) fn of(call: &ToolCall<'a>) -> Option<Self> {
        let state = call.scope.request().and_then(|request| request.trace_state());
        Some(Self { parent: call.trace?, state: state.map(|state| &**state) })
    }

    /// Its headers, with their values.
    fn headers(self) -> impl Iterator<Item = (&'static str, String)> {
        let state = self.state.map(|state| (TraceContext::STATE_HEADER, state.to_owned()));
        [(TraceContext::HEADER, self.parent.to_string())].into_iter().chain(state)
    }

    /// Writes it as the field `_meta` of a request of MCP, for servers that are not reached by HTTP.
    pub(crate) fn write_meta(self, writer: &mut Writer) {
        writer.key("_meta").object(|meta| self.headers().for_each(|(name, value)| meta.key(name).string(&value)));
    }
}

/// Adds the trace that a call belongs to, unless the tool's own headers name one.
pub(crate) fn pass_trace(headers: &mut HeaderMap, trace: Option<CallTrace<'_>>) {
    if headers.contains_key(TraceContext::HEADER) {
        return;
    }
    for (name, value) in trace.into_iter().flat_map(CallTrace::headers) {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.entry(name).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P12
    #[test]
    fn names_of_credential_headers_are_recognised() {
        for name in ["Authorization", "X-API-Key", "api-key", "Cookie", "x-goog-api-key", "X-Auth-Token", "apikey"] {
            assert!(holds_a_credential(name), "{name}");
        }
        for name in ["accept", "x-request-id", "content-type", "accept-language", "x-tenant", "user-agent"] {
            assert!(!holds_a_credential(name), "{name}");
        }
    }
}
