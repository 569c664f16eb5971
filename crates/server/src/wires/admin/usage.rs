//! `GET /admin/usage`: turns, tokens and cost, as JSON or CSV.

use amalgam_administration::usage::UsageRequest;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, header};

use super::call::{Answer, Call, shown};
use crate::wires::WireError;

/// The content type of tables.
const CSV: &str = "text/csv";

pub(super) async fn report(call: Call, headers: HeaderMap) -> Answer {
    let get = |name| match name {
        "tenant" => call.query.get("tenant").or_else(|| call.query.get("tenant_id")),
        name => call.query.get(name),
    };
    let request = UsageRequest::read(get, call.app.clock.now_ms())?;
    let report = call.administration().usage(&call.scope, &request).await?;
    match wants_csv(call.query.get("format"), &headers)? {
        true => Ok(csv(report.csv())),
        false => shown(&report),
    }
}

/// `format` decides; without it, whether the caller accepts CSV.
fn wants_csv(format: Option<&str>, headers: &HeaderMap) -> Result<bool, WireError> {
    let accepts = |value: &http::HeaderValue| value.to_str().is_ok_and(|value| value.contains(CSV));
    match format {
        Some("csv") => Ok(true),
        Some("json") => Ok(false),
        None => Ok(headers.get_all(header::ACCEPT).iter().any(accepts)),
        Some(_) => Err(WireError(amalgam_core::Fault::invalid(
            "format",
            "Invalid value for 'format': must be `json` or `csv`.",
        ))),
    }
}

fn csv(body: Vec<u8>) -> Response {
    let disposition = "attachment; filename=\"usage.csv\"";
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8"), (header::CONTENT_DISPOSITION, disposition)], body)
        .into_response()
}
