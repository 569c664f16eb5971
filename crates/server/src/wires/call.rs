//! The parts of a request that most handlers need: the caller, the path and the query.

use std::{net::IpAddr, sync::Arc};

use amalgam_core::{Actor, Fault, Scope};
use axum::{
    RequestPartsExt as _,
    extract::{FromRequestParts, RawPathParams},
};
use http::request::Parts;

use super::{
    WireError,
    query::{Query, is_id, missing},
};
use crate::app::{App, CurrentApp};

/// The head of a request that has passed authentication.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) scope: Scope,
    pub(crate) path: PathParameters,
    pub(crate) query: Query,
    /// The address of the client.
    address: Option<IpAddr>,
}

/// The parameters of the path, in order; none if they are not UTF-8.
pub(crate) struct PathParameters(Vec<String>);

impl FromRequestParts<CurrentApp> for Call {
    type Rejection = WireError;

    async fn from_request_parts(parts: &mut Parts, app: &CurrentApp) -> Result<Self, WireError> {
        let scope = parts.extensions.get::<Scope>().cloned();
        let scope = scope.ok_or_else(|| Fault::internal("a request passed authentication without a scope"))?;
        let path = parts.extract::<RawPathParams>().await;
        let path = path.map(|path| path.iter().map(|(_, value)| value.to_owned()).collect()).unwrap_or_default();
        let Ok(query) = parts.extract::<Query>().await;
        let app = app.load();
        let address = app.auth.client_address(&parts.extensions, &parts.headers);
        Ok(Self { app, scope, path: PathParameters(path), query, address })
    }
}

impl Call {
    /// The caller as the audit names it.
    pub(crate) fn actor(&self) -> Actor {
        Actor::of_caller(&self.scope, self.address.map(|address| address.to_string()))
    }
}

impl PathParameters {
    /// A parameter by its position; empty if it cannot be read.
    pub(crate) fn text(&self, position: usize) -> &str {
        self.0.get(position).map(String::as_str).unwrap_or_default()
    }

    /// The first parameter as the id of something. An id that nothing can have is reported as not found.
    pub(crate) fn id(&self, what: &'static str) -> Result<String, Fault> {
        self.id_at(0, what)
    }

    /// The same for a parameter at another position.
    pub(crate) fn id_at(&self, position: usize, what: &'static str) -> Result<String, Fault> {
        match self.text(position) {
            id if is_id(id) => Ok(id.to_owned()),
            id => Err(missing(what, id)),
        }
    }
}
