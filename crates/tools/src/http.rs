//! Tools that are a request to an HTTP service.
//!
//! A tool is checked when it is created, not when it is called. Arguments fill placeholders in the path, the query and
//! the body; the tool's author alone decides the host and the credentials.

mod answer;
mod template;

use std::{fmt, sync::Arc, time::Duration};

use amalgam_core::{BankFault, BoxFuture, Handler, ToolCall, ToolError, ToolOutput};
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use self::answer::ResultPath;
use self::template::{BodyTemplate, UrlTemplate};
use crate::egress::{Egress, EgressLimits};
use crate::headers::{self, CallTrace, HeaderText};
use crate::secrets::Secrets;

/// The maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
const ACCEPT: &str = "application/json, text/plain;q=0.9, */*;q=0.1";
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The settings of a tool.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// The address: `https://host/courses/{course_id}?language={language}`. Arguments fill path and query, never the
    /// host. A query parameter whose argument is absent is omitted.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, HeaderText)>,
    /// The string `"arguments"` for all arguments, or JSON whose strings `"{name}"` are replaced by arguments.
    pub body: Option<Json>,
    /// The part of the answer that is the result: `data.items`, or a JSON pointer such as `/data/items`.
    pub result_path: Option<String>,
}

/// A tool with valid settings.
pub struct HttpTool {
    method: Method,
    url: UrlTemplate,
    headers: HeaderMap,
    secrets: Secrets,
    body: Option<BodyTemplate>,
    result_path: ResultPath,
    egress: Arc<Egress>,
    timeout: Duration,
}

impl HttpTool {
    /// Checks the settings; the error names the invalid one. `timeout` comes from the tool's policy.
    pub fn new(settings: &HttpSettings, egress: Arc<Egress>, timeout: Duration) -> Result<Self, BankFault> {
        let wrong = |field: &str| {
            let field = field.to_owned();
            move |reason: String| BankFault { field, reason }
        };
        let known = |method: &&Method| method.as_str().eq_ignore_ascii_case(&settings.method);
        let method = METHODS.iter().find(known);
        let method = method.ok_or_else(|| wrong("method")("GET, POST, PUT, PATCH or DELETE".to_owned()))?.clone();
        if method == Method::GET && settings.body.is_some() {
            return Err(wrong("body")("a GET request has none".to_owned()));
        }
        let (mut headers, secrets) = headers::read(&settings.headers).map_err(wrong("headers"))?;
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static(ACCEPT));
        Ok(Self {
            method,
            url: UrlTemplate::parse(&settings.url).map_err(wrong("url"))?,
            headers,
            secrets,
            body: settings.body.clone().map(BodyTemplate::new),
            result_path: ResultPath::parse(settings.result_path.as_deref()).map_err(wrong("result_path"))?,
            egress,
            timeout,
        })
    }

    async fn call(&self, call: ToolCall<'_>) -> Result<ToolOutput, ToolError> {
        let url = self.url.fill(call.arguments).map_err(ToolError::Refused)?;
        let mut headers = self.headers.clone();
        headers::pass_trace(&mut headers, CallTrace::of(&call));
        if self.method != Method::GET && !headers.contains_key(&IDEMPOTENCY_KEY) {
            // Our keys are plain text. Another one cannot be sent, but the call need not fail.
            if let Ok(key) = HeaderValue::from_str(call.key) {
                headers.insert(IDEMPOTENCY_KEY, key);
            }
        }
        let body = match &self.body {
            Some(body) => {
                headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                body.fill(call.arguments)
            }
            None => Bytes::new(),
        };
        let limits = EgressLimits { bytes: MAX_ANSWER_BYTES, timeout: self.timeout };
        let response = self.egress.request(self.method.clone(), &url, headers, body, limits).await?;
        answer::output(&response, &self.result_path, &self.secrets)
    }
}

impl Handler for HttpTool {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.call(call))
    }
}

impl fmt::Debug for HttpTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.method, self.url)
    }
}

/// An argument that is present; null counts as absent.
fn argument<'a>(arguments: Raw<'a>, name: &str) -> Option<Raw<'a>> {
    arguments.get(name).filter(|value| !value.is_null())
}
