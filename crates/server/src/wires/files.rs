//! `/v1/files`: files that callers upload and name in requests. They belong to a user of a tenant, and are stored even
//! for a stateless tenant: an upload asks for storage.

mod form;
pub(super) mod multipart;

use amalgam_app::idempotency::{self, ClaimOutcome};
use amalgam_core::{
    Fault, FaultKind, IdKind, Ids, Scope,
    store::{FileListing, FileRecord},
};
use amalgam_protocol::Writer;
use axum::{
    Router,
    body::Body,
    extract::Request,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{WireError, answer, headers::idempotency_key, query::missing, reply};
use crate::wires::call::Call;
use crate::{
    app::{App, CurrentApp},
    body::{self, BodyLimits},
};
use form::Upload;

/// The resource name in errors about missing files.
const FILE: &str = "File";

/// The maximum size of a form besides its file.
const FORM_BYTES: usize = 64 * 1024;

/// The default and maximum page size.
const PAGE: usize = 10_000;

/// The characters that `filename*` does not encode (RFC 8187).
const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_');

/// The path for uploads.
pub(super) const UPLOAD: &str = "/v1/files";

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route(UPLOAD, post(upload).get(list))
        .route("/v1/files/{id}", get(retrieve).delete(delete))
        .route("/v1/files/{id}/content", get(content))
}

/// Stores a file; idempotent with an `Idempotency-Key`. S1
async fn upload(Call { app, scope, .. }: Call, request: Request) -> Result<Response, WireError> {
    let (head, body) = request.into_parts();
    let boundary = multipart::expect_form(&head.headers)?;
    let key = idempotency_key(&head.headers)?.map(str::to_owned);
    let max_bytes = app.limits.file_bytes;
    let bytes = max_bytes.saturating_add(FORM_BYTES);
    let limits = BodyLimits { bytes, text_bytes: bytes, pause: app.limits.body_pause };
    let body = body::read(body, limits, &app.memory).await?;
    let upload = Upload::read(&body, boundary.as_deref(), max_bytes)?;
    let Some(key) = key else {
        return Ok(answer::json(store_file(&app, &scope, upload).await?));
    };
    match idempotency::claim(&app.app, &scope, "POST /v1/files", &key, &upload.digest()).await? {
        ClaimOutcome::Replayed(replayed) => Ok(reply::render(replayed)),
        ClaimOutcome::First(first) => {
            let work = async move { store_file(&app, &scope, upload).await };
            Ok(answer::json(first.run(work).await?))
        }
    }
}

async fn store_file(app: &App, scope: &Scope, upload: Upload) -> Result<Bytes, Fault> {
    let Upload { filename, purpose, media_type, content, expires_after_seconds } = upload;
    let created_at_ms = app.clock.now_ms();
    let file = FileRecord {
        id: Ids::Unguessable.dated(IdKind::File, created_at_ms),
        filename,
        purpose,
        media_type,
        bytes: content.len() as u64,
        created_at_ms,
        expires_at_ms: expires_after_seconds.map(|seconds| created_at_ms.saturating_add(seconds * 1000)),
    };
    let file_object = file_object(&file);
    let max_bytes = app.limits.files_bytes_per_tenant;
    match app.store.put_file(scope, file, content, max_bytes).await? {
        true => Ok(file_object),
        false => {
            let message = format!("All uploaded files together may have {max_bytes} bytes. Delete some of them first.");
            Err(Fault::new(FaultKind::TooLarge, message).param("file").code("file_storage_exceeded"))
        }
    }
}

/// The caller's files.
async fn list(Call { app, scope, query, .. }: Call) -> Result<Response, WireError> {
    let page = query.page_of(PAGE, PAGE as u64)?;
    let purpose = query.get("purpose");
    // No stored file has an invalid purpose, so the store need not be asked.
    if purpose.is_some_and(|purpose| !form::is_purpose(purpose)) {
        return Err(form::invalid("purpose", form::PURPOSE).into());
    }
    let listing = FileListing { purpose, after: page.after.as_deref(), order: page.order, limit: page.limit + 1 };
    let mut files = app.store.files(&scope, listing, app.clock.now_ms()).await?;
    let has_more = files.len() > page.limit;
    files.truncate(page.limit);
    let mut writer = Writer::with_capacity(files.len() * 256 + 128);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| files.iter().for_each(|file| write_file(writer, file)));
        for (name, file) in [("first_id", files.first()), ("last_id", files.last())] {
            match file {
                Some(file) => writer.key(name).string(&file.id),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(has_more);
    });
    Ok(answer::json(writer.into_bytes()))
}

async fn retrieve(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(FILE)?;
    let file = app.store.file(&scope, &id, app.clock.now_ms()).await?;
    Ok(answer::json(file_object(&file.ok_or_else(|| missing(FILE, &id))?)))
}

/// The content of a file. The headers keep browsers from showing it as a page of this server: another user may have
/// uploaded it.
async fn content(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(FILE)?;
    let found = app.store.file_content(&scope, &id, app.clock.now_ms()).await?;
    let (file, content) = found.ok_or_else(|| missing(FILE, &id))?;
    let mut response = Response::new(Body::from(content));
    let headers = response.headers_mut();
    let media_type = HeaderValue::try_from(file.media_type);
    headers.insert(header::CONTENT_TYPE, media_type.unwrap_or(HeaderValue::from_static(amalgam_core::media::UNKNOWN)));
    let name = utf8_percent_encode(&file.filename, ATTRIBUTE);
    let disposition = HeaderValue::try_from(format!("attachment; filename*=UTF-8''{name}"));
    headers.insert(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("attachment")));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    Ok(response)
}

/// Deletes a file. Items that name it keep its id, and the model reads that the file was deleted.
async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = path.id(FILE)?;
    match app.store.delete_file(&scope, &id).await? {
        true => Ok(answer::deleted(&id, "file")),
        false => Err(missing(FILE, &id).into()),
    }
}

fn file_object(file: &FileRecord) -> Bytes {
    let mut writer = Writer::with_capacity(256);
    write_file(&mut writer, file);
    writer.into_bytes().into()
}

/// The file object.
fn write_file(writer: &mut Writer, file: &FileRecord) {
    writer.object(|writer| {
        writer.key("id").string(&file.id);
        writer.key("object").string("file");
        writer.key("bytes").number(file.bytes);
        writer.key("created_at").number(file.created_at_ms / 1000);
        if let Some(expires_at_ms) = file.expires_at_ms {
            writer.key("expires_at").number(expires_at_ms / 1000);
        }
        writer.key("filename").string(&file.filename);
        writer.key("purpose").string(&file.purpose);
        writer.key("status").string("processed");
    });
}
