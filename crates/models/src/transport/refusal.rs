//! Reads an answer that is not 2xx: the upstream's error, without secrets of this server.

use std::{borrow::Cow, future::poll_fn, sync::Arc, time::Duration};

use amalgam_core::{CallRecorder, FaultParts, Finish, ModelError, ModelEvent};
use amalgam_protocol::Raw;
use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};

use super::{
    exchange::{Body, BodyRead},
    head::Head,
    retry,
};

/// The maximum size of an error body.
const BODY_BYTES: usize = 64 * 1024;
/// The maximum size of it in the log.
const LOGGED_BYTES: usize = 2 * 1024;
/// The status is known already; the error body is not worth a longer wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn read(
    head: &Head,
    mut body: Body,
    idle_timeout: Duration,
    secrets: &Secrets,
    recorder: Option<&CallRecorder>,
) -> ModelError {
    let status = head.status;
    let retry_after = retry::retry_after(|name| head.get(name));
    let body = explanation(&mut body, Vec::new(), idle_timeout).await;
    if let Some(recorder) = recorder {
        recorder.refused(status, &body);
    }
    let explanation = Explanation::read(&body);
    let clean = |text: String| secrets.redact(text);
    let mut logged = clean(String::from_utf8_lossy(&body).into_owned());
    logged.truncate(logged.floor_char_boundary(LOGGED_BYTES));
    ModelError::Refused {
        status,
        retry_after,
        message: explanation.message.map(clean),
        code: explanation.code.map(clean),
        param: explanation.param.map(clean),
        body: logged,
    }
}

/// Reads the body of a refused request, of which `bytes` have arrived. An incomplete body is still useful.
pub(super) async fn explanation(body: &mut Body, mut bytes: Vec<u8>, idle_timeout: Duration) -> Vec<u8> {
    let reading = async {
        while bytes.len() < BODY_BYTES {
            let Ok(BodyRead::Data) = poll_fn(|context| body.poll_fill(context, &mut bytes)).await else { return };
        }
    };
    let _ = tokio::time::timeout(idle_timeout.min(LONGEST_WAIT), reading).await;
    bytes.truncate(BODY_BYTES);
    bytes
}

/// The error object of any API.
#[derive(Debug, Default, PartialEq, Eq)]
struct Explanation {
    message: Option<String>,
    code: Option<String>,
    param: Option<String>,
}

impl Explanation {
    /// `{"error": {message, type, code, param}}`, `{"type": "error", "error": {type, message}}`, `{"error": "text"}`,
    /// `{"message": "text"}`, `{"detail": "text"}`; some wrap the object in a list.
    fn read(body: &[u8]) -> Self {
        let Ok(raw) = Raw::parse(body) else { return Self::default() };
        let raw = raw.elements().next().unwrap_or(raw);
        let error = raw.get("error").unwrap_or(raw);
        if let Some(text) = error.as_str() {
            return Self { message: Some(text.decode().into_owned()), ..Self::default() };
        }
        let text = |name: &str| {
            let value = error.get(name)?;
            match value.as_str() {
                Some(text) => Some(text.decode().into_owned()),
                None => value.as_u64().map(|number| number.to_string()),
            }
        };
        let code = text("code").filter(|code| !code.is_empty() && !code.bytes().all(|byte| byte.is_ascii_digit()));
        Self {
            message: text("message").or_else(|| text("detail")).filter(|message| !message.is_empty()),
            code: code.or_else(|| text("type")),
            param: text("param"),
        }
    }
}

/// A shorter key is not treated as a secret: local servers accept any key, and `x` or `none` occurs in many answers.
const SHORTEST_SECRET: usize = 7;

/// Secrets that must not appear in an upstream's errors: upstreams quote what they received. Cheap to clone.
#[derive(Clone)]
pub(super) struct Secrets(Arc<[SecretString]>);

impl Secrets {
    pub(super) fn new(keys: Vec<SecretString>) -> Self {
        Self(keys.into_iter().filter(|key| key.expose_secret().len() >= SHORTEST_SECRET).collect())
    }

    fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| match secret.expose_secret() {
            secret if text.contains(secret) => text.replace(secret, "[redacted]"),
            _ => text,
        })
    }

    /// Removes the server's secrets from an error.
    pub(super) fn clean_error(&self, error: ModelError) -> ModelError {
        let clean = |text: Option<String>| text.map(|text| self.redact(text));
        match error {
            ModelError::Refused { status, retry_after, message, code, param, body } => ModelError::Refused {
                status,
                retry_after,
                message: clean(message),
                code: clean(code),
                param: clean(param),
                body: self.redact(body),
            },
            ModelError::Unreadable(what) => ModelError::Unreadable(self.redact(what)),
            other => other,
        }
    }

    /// Removes our secrets from bytes; copies only if there is one.
    pub(super) fn clean_bytes(&self, bytes: Bytes) -> Bytes {
        let holds = |secret: &SecretString| memchr::memmem::find(&bytes, secret.expose_secret().as_bytes()).is_some();
        match self.0.iter().any(holds) {
            true => self.redact(String::from_utf8_lossy(&bytes).into_owned()).into(),
            false => bytes,
        }
    }

    /// Removes our secrets from a failure that ends an answer.
    pub(super) fn clean_events(&self, events: &mut [ModelEvent]) {
        if let Some(ModelEvent::Finish(Finish::Failed(fault))) = events.last_mut() {
            let clean = |text: &mut Cow<'static, str>| *text = self.redact(std::mem::take(text).into_owned()).into();
            let FaultParts { message, param, code, detail, quote, .. } = &mut **fault;
            clean(message);
            param.iter_mut().chain(code).for_each(clean);
            for text in [detail, quote] {
                *text = text.take().map(|text| self.redact(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explanation(message: &str, code: Option<&str>, param: Option<&str>) -> Explanation {
        Explanation {
            message: Some(message.to_owned()),
            code: code.map(str::to_owned),
            param: param.map(str::to_owned),
        }
    }

    #[test]
    fn error_objects_of_every_family_are_read() {
        for (body, expected) in [
            (
                r#"{"error":{"message":"Too long","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
                explanation("Too long", Some("context_length_exceeded"), Some("input")),
            ),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                explanation("Overloaded", Some("overloaded_error"), None),
            ),
            (
                r#"{"error":{"message":"No","type":"not_found_error","code":404}}"#,
                explanation("No", Some("not_found_error"), None),
            ),
            (r#"{"error":"model not found"}"#, explanation("model not found", None, None)),
            (r#"[{"error":{"message":"In a list","code":null}}]"#, explanation("In a list", None, None)),
            (
                r#"{"object":"error","message":"Flat","type":"BadRequestError"}"#,
                explanation("Flat", Some("BadRequestError"), None),
            ),
            (r#"{"detail":"Not authenticated"}"#, explanation("Not authenticated", None, None)),
            ("<html>", Explanation::default()),
            ("", Explanation::default()),
        ] {
            assert_eq!(Explanation::read(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_key_that_is_echoed_is_struck_out() {
        // P12
        let secrets = Secrets::new(vec![SecretString::from("sk-secret-1"), SecretString::from("")]);
        assert_eq!(
            secrets.redact("key sk-secret-1 is wrong: sk-secret-1".to_owned()),
            "key [redacted] is wrong: [redacted]"
        );
    }

    #[test]
    fn a_word_that_stands_for_no_key_is_left_in_answers() {
        let secrets = Secrets::new(["x", "none", "EMPTY", "ollama"].map(SecretString::from).to_vec());
        let explanation = "the tool choice is none, x is EMPTY, and ollama runs";
        assert_eq!(secrets.redact(explanation.to_owned()), explanation);
        assert_eq!(secrets.clean_bytes(explanation.into()), explanation);
    }
}
