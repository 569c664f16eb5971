//! `/admin/knowledge`: what a tenant's agents can look up. Documents are brought in on the command line.

use std::sync::Arc;

use amalgam_app::knowledge::{Forgetting, document_id, show_collection, write_collection, write_document};
use amalgam_core::{
    Fault, Scope,
    store::{Collection, DocumentListing, DocumentRecord, Within},
};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use super::{bank::admin, named_tenant, page, place};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, is_id, missing, no_such_cursor},
    },
};

/// What a missing collection is called.
const COLLECTION: &str = "Knowledge collection";
/// What a missing source is called.
const SOURCE: &str = "Knowledge source";

/// Collections by name.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
    let asked = query.page()?;
    let mut collections = app.store.collections_within(Within::Own(admin(&tenant)?)).await.map_err(Fault::from)?;
    if let Some(after) = &asked.after {
        collections.retain(|collection| collection.name > *after);
    }
    let id = |writer: &mut Writer, collection: &Collection| writer.string(&collection.name);
    Ok(page(&collections, asked.limit, id, write_collection))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
    let collection = find(&app, &tenant, &name).await?;
    Ok(answer::json(show_collection(&collection).bytes().clone()))
}

/// Forgets a collection with all of its documents; with `source` those of one source.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
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

/// Documents of a collection, by source and path; with `source` those of one source.
pub(super) async fn documents(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(COLLECTION, name)?;
    let tenant = place(&app, &scope, named_tenant(&query)?).await?;
    let asked = query.page()?;
    let after = asked.after.as_deref().map(|after| after.split_once(':').ok_or_else(|| no_such_cursor("after", after)));
    let after = after.transpose()?;
    find(&app, &tenant, &name).await?;
    let listing = DocumentListing { source: source_of(&query)?, after, limit: asked.limit + 1 };
    let found = app.store.documents_within(Within::Own(admin(&tenant)?), &name, listing);
    let documents = found.await.map_err(Fault::from)?;
    let id = |writer: &mut Writer, document: &DocumentRecord| writer.string(&document_id(document));
    Ok(page(&documents, asked.limit, id, write_document))
}

/// `source` of a query; what no source can be called is missing like any other.
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
