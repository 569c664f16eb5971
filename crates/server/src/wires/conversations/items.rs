//! `/v1/conversations/{id}/items`: added, listed, shown and forgotten.

use std::{collections::HashSet, sync::Arc};

use amalgam_core::{
    Fault, Ids, Scope, file_search, number_item,
    store::{Added, Listing, NewItem},
};
use amalgam_protocol::{AddItems, Item, ItemKind, Raw, Writer, item_path};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use super::{CONVERSATION, body, expect_state, find, told};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, is_id, missing, no_such_cursor},
    },
};

/// What a missing item is called.
const ITEM: &str = "Item";

/// Adds items at the end, all of them or none.
pub(super) async fn add(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    query: Query,
    request: Request,
) -> Result<Response, WireError> {
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let id = id_of(CONVERSATION, id)?;
    let results = query.include()?;
    let document = body::parse(&app, &body)?;
    let raw = document.raw();
    let asked = AddItems::read(raw).map_err(Fault::from)?;
    body::check_items(&app, &asked.items, raw, body.len())?;
    let items = keepable(&app, &scope, &asked.items, raw).await?;
    let added = app.store.add_items(&scope, &id, items.clone()).await?;
    match added.ok_or_else(|| missing(CONVERSATION, &id))? {
        Added::All => {
            let shown: Vec<Raw<'_>> = items.iter().map(|item| item.item.raw()).collect();
            Ok(answer::list(&shown, false, results))
        }
        Added::Taken(taken) => {
            let index = items.iter().position(|item| item.id == taken).unwrap_or_default();
            Err(taken_twice(
                asked.items.get(index).map_or_else(String::new, |item| item_path("items", raw.get("items"), item.raw)),
            )
            .into())
        }
    }
}

/// One page of the items.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    query: Query,
) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = id_of(CONVERSATION, id)?;
    let results = query.include()?;
    let page = query.page()?;
    let listing = app.store.list_items(&scope, &id, &page).await?;
    match listing.ok_or_else(|| missing(CONVERSATION, &id))? {
        Listing::Items { items, has_more } => {
            let items: Vec<Raw<'_>> = items.iter().map(|item| item.item.raw()).collect();
            Ok(answer::list(&items, has_more, results))
        }
        Listing::UnknownAfter => Err(no_such_cursor("after", page.after.as_deref().unwrap_or_default()).into()),
    }
}

/// One item.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    ids: Result<Path<(String, String)>, PathRejection>,
    query: Query,
) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let (id, item_id) = both(ids)?;
    let results = query.include()?;
    let Some(kept) = app.store.conversation_item(&scope, &id, &item_id).await? else {
        return Err(absent(&app, &scope, &id, &item_id).await.into());
    };
    let item = file_search::shown(kept.item, results);
    let mut writer = Writer::with_capacity(item.bytes().len() + 96);
    amalgam_core::write_item(&mut writer, item.raw());
    Ok(answer::json(writer.into_bytes()))
}

/// Forgets one item, and tells the conversation.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    ids: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let (id, item_id) = both(ids)?;
    let conversation = find(&app, &scope, &id).await?;
    match app.store.delete_item(&scope, &id, &item_id).await? {
        Some(true) => Ok(answer::json(told(&conversation))),
        Some(false) => Err(missing(ITEM, &item_id).into()),
        None => Err(missing(CONVERSATION, &id).into()),
    }
}

/// Items as they are kept: references replaced by what they refer to, every one with an id of its own.
pub(super) async fn keepable(
    app: &App,
    scope: &Scope,
    items: &[Item<'_>],
    body: Raw<'_>,
) -> Result<Vec<NewItem>, Fault> {
    let wanted: Vec<String> = items.iter().filter_map(referred).collect();
    let found = match wanted.is_empty() {
        true => Vec::new(),
        false => app.store.items(scope, &wanted).await?,
    };
    let mut found = found.into_iter();
    let mut ids = Ids::Unguessable;
    let mut seen = HashSet::new();
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        let path = || item_path("items", body.get("items"), item.raw);
        let new = match referred(item) {
            None => number_item(item, &mut ids),
            Some(id) => match found.next().flatten() {
                Some(item) => NewItem { id, item },
                None => {
                    let message = missing(ITEM, &id).into_parts().message;
                    return Err(Fault::invalid(path(), message).code("item_not_found"));
                }
            },
        };
        if !is_id(&new.id) {
            let message = "An id has at most 512 bytes and no control characters.";
            return Err(Fault::invalid(format!("{}.id", path()), message));
        }
        if !seen.insert(new.id.clone()) {
            return Err(taken_twice(path()));
        }
        kept.push(new);
    }
    Ok(kept)
}

/// The id that a reference names. One that nothing can have is asked for as the empty one, which nothing has either.
fn referred(item: &Item<'_>) -> Option<String> {
    match &item.kind {
        ItemKind::Reference(reference) if is_id(&reference.id) => Some(reference.id.clone().into_owned()),
        ItemKind::Reference(_) => Some(String::new()),
        _ => None,
    }
}

fn taken_twice(path: String) -> Fault {
    Fault::invalid(format!("{path}.id"), "The conversation has an item of this id already.").code("item_already_exists")
}

/// Which of the two is not there.
async fn absent(app: &App, scope: &Scope, id: &str, item_id: &str) -> Fault {
    match find(app, scope, id).await {
        Ok(_) => missing(ITEM, item_id),
        Err(fault) => fault,
    }
}

fn both(ids: Result<Path<(String, String)>, PathRejection>) -> Result<(String, String), Fault> {
    let (id, item_id) = match ids {
        Ok(Path((id, item_id))) => (Ok(Path(id)), Ok(Path(item_id))),
        Err(_) => return Err(missing(CONVERSATION, "")),
    };
    Ok((id_of(CONVERSATION, id)?, id_of(ITEM, item_id)?))
}
