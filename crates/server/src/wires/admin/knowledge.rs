//! `/admin/knowledge`: a tenant's collections and documents. Documents are imported on the command line.

mod views;

use std::sync::Arc;

use amalgam_app::knowledge::{Forgetting, document_id};
use amalgam_core::{
    Fault, Scope,
    store::{Collection, DocumentListing, Within},
};
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use super::{list_page, tenant_admin_scope, tenant_in_query, tool_bank::admin};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, is_id, missing, no_such_cursor},
    },
};

pub(in crate::wires) use views::{CollectionView, DocumentView};
pub use views::{show_collection, show_document};

/// The collection in not-found errors.
const COLLECTION: &str = "Knowledge collection";
/// The source in not-found errors.
const SOURCE: &str = "Knowledge source";

/// Collections ordered by name.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let asked = query.page()?;
    let mut collections = app.store.collections_within(Within::Own(admin(&tenant)?)).await.map_err(Fault::from)?;
    if let Some(after) = &asked.after {
        collections.retain(|collection| collection.name > *after);
    }
    Ok(list_page(&collections, asked.limit, |collection| collection.name.as_str(), CollectionView::from))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let collection = find(&app, &tenant, &name).await?;
    Ok(super::answer(&CollectionView::from(&collection)))
}

/// Deletes a collection with all its documents; with `source` only the documents of that source.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let within = Within::Own(admin(&tenant)?);
    find(&app, &tenant, &name).await?;
    let source = source_of(&query)?;
    let mut forgetting = Forgetting::of(&name, source);
    let mut gone = 0;
    while let Some(more) = forgetting.go_on(&*app.store, within, app.clock.now_ms()).await.map_err(Fault::from)? {
        gone += more;
    }
    match source {
        None => Ok(answer::deleted(&name, "knowledge.collection.deleted")),
        Some(source) if gone > 0 => Ok(answer::deleted(source, "knowledge.source.deleted")),
        Some(source) => Err(missing(SOURCE, source).into()),
    }
}

/// Documents of a collection ordered by source and path; with `source` only those of that source.
pub(super) async fn documents(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let asked = query.page()?;
    let after = asked.after.as_deref().map(|after| after.split_once(':').ok_or_else(|| no_such_cursor("after", after)));
    let after = after.transpose()?;
    find(&app, &tenant, &name).await?;
    let listing = DocumentListing { source: source_of(&query)?, after, limit: asked.limit + 1 };
    let found = app.store.documents_within(Within::Own(admin(&tenant)?), &name, listing);
    let documents = found.await.map_err(Fault::from)?;
    Ok(list_page(&documents, asked.limit, document_id, DocumentView::from))
}

/// `source` of a query. An invalid name is reported as not found, like an unknown one.
fn source_of(query: &Query) -> Result<Option<&str>, Fault> {
    match query.get("source") {
        Some(source) if !is_id(source) => Err(missing(SOURCE, source)),
        source => Ok(source),
    }
}

async fn find(app: &App, tenant: &Scope, name: &str) -> Result<Collection, Fault> {
    let collections = app.store.collections_within(Within::Own(admin(tenant)?)).await?;
    collections.into_iter().find(|collection| collection.name == name).ok_or_else(|| missing(COLLECTION, name))
}
