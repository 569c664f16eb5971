//! Reads a document from the form that uploads it.

use amalgam_app::knowledge::{
    DOCUMENT_BYTES, DocumentUpload, InvalidAttribute, PATH_BYTES, check_attribute, check_attributes, check_name,
    check_value,
};
use amalgam_core::Fault;
use amalgam_protocol::ShapeError;
use axum::extract::Request;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::super::call::Call;
use crate::{
    body::{self, BodyLimits},
    wires::files::multipart::{self, Part, malformed},
};

/// The maximum size of a form besides its file.
const FORM_BYTES: usize = 64 * 1024;

/// The source of documents whose form names none.
const SOURCE: &str = "upload";

/// The fields of a form.
#[derive(Default)]
pub(super) struct DocumentForm {
    file: Option<Part>,
    source: Option<Part>,
    path: Option<Part>,
    attributes: Option<Part>,
}

/// Reads a form of at most the size of a document.
pub(super) async fn read(call: &Call, request: Request) -> Result<DocumentForm, Fault> {
    let (head, body) = request.into_parts();
    let boundary = multipart::expect_form(&head.headers)?;
    let bytes = usize::try_from(DOCUMENT_BYTES).unwrap_or(usize::MAX).saturating_add(FORM_BYTES);
    let limits = BodyLimits { bytes, text_bytes: bytes, pause: call.app.limits.body_pause };
    let body = body::read(body, limits, &call.app.memory).await?;
    DocumentForm::of(&body, boundary.as_deref())
}

impl DocumentForm {
    fn of(body: &Bytes, boundary: Option<&str>) -> Result<Self, Fault> {
        let boundary = boundary.ok_or_else(|| malformed("its Content-Type names no boundary"))?;
        let mut form = Self::default();
        for part in multipart::parts(body, boundary)? {
            let field = match part.name.as_str() {
                "file" => &mut form.file,
                "source" => &mut form.source,
                "path" => &mut form.path,
                "attributes" => &mut form.attributes,
                other => {
                    let shown: String = other.chars().take(200).collect();
                    let message = format!("Unknown parameter: '{shown}'.");
                    return Err(Fault::invalid(shown, message).code("unknown_parameter"));
                }
            };
            if field.is_some() {
                return Err(Fault::invalid(part.name, "This parameter is given twice."));
            }
            *field = Some(part);
        }
        Ok(form)
    }

    /// The document of the form for this collection.
    pub(super) fn upload(self, collection: &str) -> Result<DocumentUpload, Fault> {
        let source = text(&self.source).filter(|source| !source.is_empty()).unwrap_or(SOURCE);
        let source = check_name(source).map_err(|why| refused("source", &why))?;
        let attributes = match text(&self.attributes) {
            None | Some("") => Vec::new(),
            Some(text) => attributes(text)?,
        };
        let file = self.file.as_ref().ok_or_else(|| ShapeError::missing("file"))?;
        let path = text(&self.path).filter(|path| !path.is_empty()).or(file.filename.as_deref()).unwrap_or_default();
        Ok(DocumentUpload {
            collection: check_name(collection).map_err(|why| refused("collection", &why))?,
            source,
            path: check_path(path)?,
            attributes,
            content: file.content.to_vec(),
        })
    }
}

/// A relative path with slashes.
fn check_path(path: &str) -> Result<String, Fault> {
    let path = path.trim().replace('\\', "/");
    let path = path.trim_start_matches('/');
    let is_good = !path.is_empty() && path.len() <= PATH_BYTES && !path.contains(char::is_control);
    match is_good && path.split('/').all(|part| !["", ".", ".."].contains(&part)) {
        true => Ok(path.to_owned()),
        false => {
            let why = format!("a path has 1 to {PATH_BYTES} bytes of printable text, and no empty parts, `.` or `..`");
            Err(Fault::invalid("path", format!("Invalid value for 'path': {why}.")).code("invalid_value"))
        }
    }
}

/// A JSON object of texts.
fn attributes(text: &str) -> Result<Vec<(String, String)>, Fault> {
    let refuse = || {
        let message = "Invalid value for 'attributes': it must be a JSON object of texts.";
        Fault::invalid("attributes", message).code("invalid_value")
    };
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|_| refuse())?;
    let mut all = Vec::with_capacity(object.len());
    for (key, value) in &object {
        let value = value.as_str().ok_or_else(refuse)?;
        // The command line has an option of its own for this one.
        let checked = match key == "repo" {
            true => check_value(value).map(|value| (key.clone(), value)),
            false => check_attribute(key, value),
        };
        all.push(checked.map_err(|why| refused("attributes", &why))?);
    }
    check_attributes(all).map_err(|why| refused("attributes", &why))
}

fn refused(name: &'static str, why: &InvalidAttribute) -> Fault {
    Fault::invalid(name, format!("Invalid value for '{name}': {why}.")).code("invalid_value")
}

/// The text of a field; a replacement character if it is not UTF-8.
fn text(part: &Option<Part>) -> Option<&str> {
    part.as_ref().map(|part| std::str::from_utf8(&part.content).unwrap_or("\u{fffd}").trim())
}
