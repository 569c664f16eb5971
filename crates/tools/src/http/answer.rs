//! Maps the answer of an HTTP service to a tool output.

use amalgam_core::{ToolError, ToolOutput};
use amalgam_protocol::{Json, Raw, Shape, Writer};
use bytes::Bytes;
use http::{Response, header};

use crate::{secrets::Secrets, text};

/// How much of an error page the model sees.
const MAX_REASON_CHARS: usize = 200;

/// A path into the answer.
pub(super) struct ResultPath {
    written: String,
    steps: Vec<String>,
}

impl ResultPath {
    /// Parses `data.items.0` or the JSON pointer `/data/items/0`; `None` is the whole answer.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        let written = text.unwrap_or_default();
        let steps: Vec<String> = match written.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
            None if written.is_empty() => Vec::new(),
            None => written.split('.').map(str::to_owned).collect(),
        };
        if steps.iter().any(String::is_empty) {
            return Err("a step is empty".to_owned());
        }
        Ok(Self { written: text::printable(written, 100), steps })
    }

    fn follow<'a>(&self, whole: Raw<'a>) -> Option<Raw<'a>> {
        self.steps.iter().try_fold(whole, |value, step| match value.shape() {
            Shape::Array => value.elements().nth(step.parse().ok()?),
            _ => value.get(step),
        })
    }
}

/// The tool's output.
pub(super) fn output(
    response: &Response<Bytes>,
    path: &ResultPath,
    secrets: &Secrets,
) -> Result<ToolOutput, ToolError> {
    let status = response.status();
    let refused = |reason: String| Err(ToolError::Refused(reason));
    if status.is_redirection() {
        return refused(format!("the service answered with status {}; redirects are not followed", status.as_u16()));
    }
    if !status.is_success() {
        let page = String::from_utf8_lossy(response.body());
        let page = text::printable(&secrets.hide(&page), MAX_REASON_CHARS);
        let colon = if page.is_empty() { "" } else { ": " };
        return refused(format!("the service answered with status {}{colon}{page}", status.as_u16()));
    }
    let output = read(response, secrets)?;
    match path.follow(output.raw()) {
        Some(found) => Ok(ToolOutput { output: Json::from(found) }),
        None => refused(format!("the answer of the service has nothing at `{}`", path.written)),
    }
}

fn read(response: &Response<Bytes>, secrets: &Secrets) -> Result<Json, ToolError> {
    let refused = |reason: &str| Err(ToolError::Refused(reason.to_owned()));
    let body = response.body();
    let media_type = media_type(response);
    let coding = response.headers().get(header::CONTENT_ENCODING);
    if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return refused("the service compressed its answer although that was not asked for");
    }
    if body.is_empty() {
        let mut writer = Writer::default();
        writer.object(|writer| writer.key("status").number(response.status().as_u16().into()));
        return Ok(Json::from_writer(writer));
    }
    let is_json = media_type == "application/json" || media_type.ends_with("+json");
    // A service that repeats its request must not reveal our credential to the model.
    let text = match std::str::from_utf8(body) {
        Ok(text) => secrets.hide(text).into_owned(),
        Err(_) if media_type.starts_with("text/") => secrets.hide(&String::from_utf8_lossy(body)).into_owned(),
        Err(_) => return refused("the service answered with neither JSON nor text"),
    };
    if is_json || media_type.is_empty() {
        match Raw::parse(text.as_bytes()) {
            Ok(json) => return Ok(Json::from(json)),
            Err(_) if is_json => return refused("the service answered with invalid or too deep JSON"),
            Err(_) => {}
        }
    }
    let mut writer = Writer::with_capacity(text.len() + 2);
    writer.string(&text);
    Ok(Json::from_writer(writer))
}

fn media_type(response: &Response<Bytes>) -> String {
    let value = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
