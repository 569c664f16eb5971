//! The common parts of the handlers of `/admin`: the tenant that a request addresses, its body, and the answers.

use amalgam_administration::{Administration, operator, tenant_scope};
use amalgam_core::{Fault, Operator, Scope, store::Page};
use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{StatusCode, header};
use serde::Serialize;

use crate::{
    body::{BodyLimits, read_json},
    wires::{WireError, answer},
};

pub(super) use crate::wires::call::Call;

/// The result of a handler.
pub(in crate::wires) type Answer = Result<Response, WireError>;

impl Call {
    /// The services that need only the store.
    pub(in crate::wires) fn administration(&self) -> Administration<'_> {
        Administration::new(&self.app, self.actor())
    }

    /// The id of the object; empty if it cannot be read.
    pub(in crate::wires) fn id(&self) -> &str {
        self.path.text(0)
    }

    /// The page of a list.
    pub(in crate::wires) fn page(&self) -> Result<Page, Fault> {
        self.query.page()
    }

    /// The caller as an operator.
    pub(in crate::wires) fn operator(&self) -> Result<Operator, Fault> {
        operator(&self.scope)
    }

    /// `tenant_id` of the query.
    pub(in crate::wires) fn tenant_id(&self) -> Result<Option<i64>, Fault> {
        match self.query.number("tenant_id")?.map(i64::try_from) {
            None => Ok(None),
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(_)) => {
                Err(Fault::invalid("tenant_id", "Invalid value for 'tenant_id': no tenant has this number."))
            }
        }
    }

    /// The caller as an administrator of the tenant in the query, or of its own tenant if the query names none.
    pub(in crate::wires) async fn tenant(&self) -> Result<Scope, Fault> {
        tenant_scope(&*self.app.store, &self.scope, self.tenant_id()?).await
    }

    /// The caller as an administrator of this tenant.
    pub(in crate::wires) async fn tenant_of(&self, id: i64) -> Result<Scope, Fault> {
        tenant_scope(&*self.app.store, &self.scope, Some(id)).await
    }

    /// The body of the request, of at most this many bytes.
    pub(in crate::wires) async fn body(&self, request: Request, largest: usize) -> Result<Bytes, Fault> {
        let limits = BodyLimits { bytes: largest.min(self.app.limits.body_bytes), ..self.app.text_body() };
        Ok(read_json(request, limits, &self.app.memory).await?.1)
    }
}

/// A 200 response with this object.
pub(in crate::wires) fn shown(object: &impl Serialize) -> Answer {
    let text =
        serde_json::to_vec(object).expect("an answer is a struct, and what it holds verbatim was checked as JSON");
    Ok(answer::json(text))
}

/// The same for an object that was stored; 201 if it is new.
pub(in crate::wires) fn stored((object, new): (impl Serialize, bool)) -> Answer {
    let response = shown(&object)?;
    Ok(if new { (StatusCode::CREATED, response).into_response() } else { response })
}

/// The same for an object with a secret, which caches must not store.
pub(in crate::wires) fn secret(object: &impl Serialize) -> Answer {
    Ok(([(header::CACHE_CONTROL, "no-store")], shown(object)?).into_response())
}
