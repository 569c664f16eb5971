//! Conversations and their items.

use amalgam_core::{
    Scope,
    store::{Added, Conversation, ConversationItem, ConversationStore, Listing, NewItem, Order, Page, Stored},
};
use amalgam_protocol::Json;
use rusqlite::Row;

use super::{
    Sqlite,
    failure::Failure,
    query::{Database, int, text, uint},
    sql,
};
use crate::rows;

impl ConversationStore for Sqlite {
    fn create_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        conversation: &'a Conversation,
        items: Vec<NewItem>,
    ) -> Stored<'a, ()> {
        let (scope, conversation) = (scope.clone(), conversation.clone());
        self.change(move |transaction| {
            let database = transaction.database;
            let (created_at, metadata) = (int(conversation.created_at_ms)?, conversation.metadata.raw().text());
            database.user(&scope, sql::ADD_CONVERSATION, &[&conversation.id, &created_at, &metadata])?.run()?;
            match add(database, &scope, &conversation.id, &items)? {
                Added::All => Ok(()),
                Added::Taken(id) => Err(Failure::Broken(format!("item `{id}` is there twice"))),
            }
        })
    }

    fn conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Conversation>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(move |transaction| transaction.database.user(&scope, sql::CONVERSATION, &[&id])?.first(conversation))
    }

    fn update_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        metadata: Json,
    ) -> Stored<'a, Option<Conversation>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.change(move |transaction| {
            let metadata = metadata.raw().text();
            transaction.database.user(&scope, sql::UPDATE_CONVERSATION, &[&id, &metadata])?.first(conversation)
        })
    }

    fn delete_conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            let there = database.user(&scope, sql::FORGET_CONVERSATION, &[&id])?.run()? == 1;
            if there {
                database.user(&scope, sql::FORGET_CONVERSATION_ITEMS, &[&id])?.run()?;
            }
            Ok(there)
        })
    }

    fn add_items<'a>(&'a self, scope: &'a Scope, id: &'a str, items: Vec<NewItem>) -> Stored<'a, Option<Added>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            if !exists(database, &scope, &id)? {
                return Ok(None);
            }
            // Looked at before anything is added: work that is refused must leave nothing behind.
            match taken(database, &scope, &id, &items)? {
                Some(taken) => Ok(Some(Added::Taken(taken))),
                None => add(database, &scope, &id, &items).map(Some),
            }
        })
    }

    fn list_items<'a>(&'a self, scope: &'a Scope, id: &'a str, page: &'a Page) -> Stored<'a, Option<Listing>> {
        let (scope, id, page) = (scope.clone(), id.to_owned(), page.clone());
        self.read(move |transaction| list(transaction.database, &scope, &id, &page))
    }

    fn conversation_item<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        item_id: &'a str,
    ) -> Stored<'a, Option<ConversationItem>> {
        let (scope, id, item_id) = (scope.clone(), id.to_owned(), item_id.to_owned());
        self.read(move |transaction| {
            transaction.database.user(&scope, sql::CONVERSATION_ITEM, &[&id, &item_id])?.first(item)
        })
    }

    fn delete_item<'a>(&'a self, scope: &'a Scope, id: &'a str, item_id: &'a str) -> Stored<'a, Option<bool>> {
        let (scope, id, item_id) = (scope.clone(), id.to_owned(), item_id.to_owned());
        self.change(move |transaction| {
            let database = transaction.database;
            if !exists(database, &scope, &id)? {
                return Ok(None);
            }
            let removed = database.user(&scope, sql::FORGET_CONVERSATION_ITEM, &[&id, &item_id])?.run()?;
            Ok(Some(removed == 1))
        })
    }

    fn conversation_history<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<Json>>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(move |transaction| {
            let database = transaction.database;
            if !exists(database, &scope, &id)? {
                return Ok(None);
            }
            database
                .user(&scope, sql::ITEMS_UPWARDS, &[&id, &-1, &-1])?
                .all(|row| Ok(rows::json(text(row, 1)?)))
                .map(Some)
        })
    }
}

/// Adds what a turn took in and gave out to the end of a conversation, if it is still there. Items without an id, or with
/// one that the conversation has, are passed over.
pub(super) fn append(database: Database<'_>, scope: &Scope, id: &str, arrays: [&Json; 2]) -> Result<(), Failure> {
    if !exists(database, scope, id)? {
        return Ok(());
    }
    let items: Vec<NewItem> = arrays.into_iter().flat_map(rows::items_with_ids).collect();
    add(database, scope, id, &items).map(drop)
}

fn exists(database: Database<'_>, scope: &Scope, id: &str) -> Result<bool, Failure> {
    database.user(scope, sql::CONVERSATION, &[&id])?.exists()
}

/// The first item whose id is not free, in the conversation or among `items`.
fn taken(database: Database<'_>, scope: &Scope, id: &str, items: &[NewItem]) -> Result<Option<String>, Failure> {
    let mut seen = std::collections::HashSet::new();
    for item in items {
        let twice = !seen.insert(item.id.as_str());
        if twice || database.user(scope, sql::PLACE_OF_ITEM, &[&id, &item.id])?.exists()? {
            return Ok(Some(item.id.clone()));
        }
    }
    Ok(None)
}

/// Adds items at the end; tells of one that was passed over because its id is there.
fn add(database: Database<'_>, scope: &Scope, id: &str, items: &[NewItem]) -> Result<Added, Failure> {
    let mut added = Added::All;
    let next = database.user(scope, sql::NEXT_PLACE, &[&id])?.first(|row| Ok(row.get::<_, i64>(0)?))?.unwrap_or(0);
    for (place, item) in (next..).zip(items) {
        let text = item.item.raw().text();
        let new = database.user(scope, sql::ADD_CONVERSATION_ITEM, &[&id, &place, &item.id, &text])?.run()?;
        if new == 0 {
            added = Added::Taken(item.id.clone());
        }
    }
    Ok(added)
}

fn list(database: Database<'_>, scope: &Scope, id: &str, page: &Page) -> Result<Option<Listing>, Failure> {
    if !exists(database, scope, id)? {
        return Ok(None);
    }
    let (statement, from_the_end) = match page.order {
        Order::Ascending => (sql::ITEMS_UPWARDS, -1),
        Order::Descending => (sql::ITEMS_DOWNWARDS, i64::MAX),
    };
    let from = match &page.after {
        None => from_the_end,
        Some(after) => {
            let place = database.user(scope, sql::PLACE_OF_ITEM, &[&id, after])?.first(|row| Ok(row.get(0)?))?;
            let Some(place) = place else { return Ok(Some(Listing::UnknownAfter)) };
            place
        }
    };
    // One more than was asked for tells whether there are more.
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX - 1).saturating_add(1);
    let mut items = database.user(scope, statement, &[&id, &from, &limit])?.all(item)?;
    let has_more = items.len() > page.limit;
    items.truncate(page.limit);
    Ok(Some(Listing::Items { items, has_more }))
}

fn conversation(row: &Row<'_>) -> Result<Conversation, Failure> {
    Ok(Conversation { id: row.get(0)?, created_at_ms: uint(row, 1)?, metadata: rows::json(text(row, 2)?) })
}

fn item(row: &Row<'_>) -> Result<ConversationItem, Failure> {
    Ok(ConversationItem { id: row.get(0)?, item: rows::json(text(row, 1)?) })
}
