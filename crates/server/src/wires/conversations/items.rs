//! `/v1/conversations/{id}/items`: adds, lists, shows and deletes items.

use std::collections::HashSet;

use amalgam_core::{
    Fault, Ids, Scope, file_search, number_item,
    store::{AppendOutcome, Listing, NewItem},
};
use amalgam_protocol::{AddItems, Item, ItemKind, Raw, Writer, item_path};
use axum::{extract::Request, response::Response};

use super::{CONVERSATION, body, conversation_object, expect_state, find};
use crate::wires::call::Call;
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{is_id, missing, no_such_cursor},
    },
};

/// The resource name in errors about missing items.
const ITEM: &str = "Item";

/// Appends items, all of them or none.
pub(super) async fn add(Call { app, scope, path, query, .. }: Call, request: Request) -> Result<Response, WireError> {
    let body = body::read(&app, request).await?;
    expect_state(&scope)?;
    let id = path.id(CONVERSATION)?;
    let results = query.include()?;
    let document = body::parse(&app, &body)?;
    let raw = document.raw();
    let request_body = AddItems::read(raw).map_err(Fault::from)?;
    body::check_items(&app, &request_body.items, raw, body.len())?;
    let items = items_to_store(&app, &scope, &request_body.items, raw).await?;
    let added = app.store.add_items(&scope, &id, items.clone()).await?;
    match added.ok_or_else(|| missing(CONVERSATION, &id))? {
        AppendOutcome::All => {
            let shown: Vec<Raw<'_>> = items.iter().map(|item| item.item.raw()).collect();
            Ok(answer::list(&shown, false, results))
        }
        AppendOutcome::Taken(taken) => {
            let index = items.iter().position(|item| item.id == taken).unwrap_or_default();
            Err(taken_twice(
                request_body
                    .items
                    .get(index)
                    .map_or_else(String::new, |item| item_path("items", raw.get("items"), item.raw)),
            )
            .into())
        }
    }
}

/// One page of the items.
pub(super) async fn list(Call { app, scope, path, query, .. }: Call) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let id = path.id(CONVERSATION)?;
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
pub(super) async fn retrieve(Call { app, scope, path, query, .. }: Call) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let (id, item_id) = (path.id(CONVERSATION)?, path.id_at(1, ITEM)?);
    let results = query.include()?;
    let Some(stored) = app.store.conversation_item(&scope, &id, &item_id).await? else {
        return Err(missing_error(&app, &scope, &id, &item_id).await.into());
    };
    let item = file_search::shown(stored.item, results);
    let mut writer = Writer::with_capacity(item.bytes().len() + 96);
    amalgam_core::write_item(&mut writer, item.raw());
    Ok(answer::json(writer.into_bytes()))
}

/// Deletes an item, and returns the conversation.
pub(super) async fn delete(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    expect_state(&scope)?;
    let (id, item_id) = (path.id(CONVERSATION)?, path.id_at(1, ITEM)?);
    let conversation = find(&app, &scope, &id).await?;
    match app.store.delete_item(&scope, &id, &item_id).await? {
        Some(true) => Ok(answer::json(conversation_object(&conversation))),
        Some(false) => Err(missing(ITEM, &item_id).into()),
        None => Err(missing(CONVERSATION, &id).into()),
    }
}

/// The items to store: with references replaced, and each with a new id.
pub(super) async fn items_to_store(
    app: &App,
    scope: &Scope,
    items: &[Item<'_>],
    body: Raw<'_>,
) -> Result<Vec<NewItem>, Fault> {
    let references: Vec<String> = items.iter().filter_map(reference_id).collect();
    let found = match references.is_empty() {
        true => Vec::new(),
        false => app.store.items(scope, &references).await?,
    };
    let mut found = found.into_iter();
    let mut ids = Ids::Unguessable;
    let mut seen = HashSet::new();
    let mut stored = Vec::with_capacity(items.len());
    for item in items {
        let path = || item_path("items", body.get("items"), item.raw);
        let new = match reference_id(item) {
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
        stored.push(new);
    }
    Ok(stored)
}

/// The id that a reference names. An invalid id becomes the empty id, which no item has.
fn reference_id(item: &Item<'_>) -> Option<String> {
    match &item.kind {
        ItemKind::Reference(reference) if is_id(&reference.id) => Some(reference.id.clone().into_owned()),
        ItemKind::Reference(_) => Some(String::new()),
        _ => None,
    }
}

fn taken_twice(path: String) -> Fault {
    Fault::invalid(format!("{path}.id"), "The conversation has an item of this id already.").code("item_already_exists")
}

/// The error for a missing conversation or a missing item.
async fn missing_error(app: &App, scope: &Scope, id: &str, item_id: &str) -> Fault {
    match find(app, scope, id).await {
        Ok(_) => missing(ITEM, item_id),
        Err(fault) => fault,
    }
}
