//! Conversations and their items.

use std::collections::HashSet;

use amalgam_core::{
    Scope, StoreError,
    store::{AppendOutcome, Conversation, ConversationItem, ConversationStore, Listing, NewItem, Order, Page, Stored},
};
use amalgam_protocol::Json;

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    UserSql CONVERSATION = "
        SELECT id, created_at, metadata FROM conversations WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql UPDATE_CONVERSATION = "
        UPDATE conversations SET metadata = $4 WHERE tenant_id = $1 AND user_id = $2 AND id = $3
        RETURNING id, created_at, metadata";
    UserSql FORGET_CONVERSATION = "DELETE FROM conversations WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    UserSql FORGET_ITEMS = "
        DELETE FROM conversation_items WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3";
    UserSql ITEM_POSITION = "
        SELECT position FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
    UserSql ITEMS_UPWARDS = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND position > $4
        ORDER BY position LIMIT $5";
    UserSql ITEMS_DOWNWARDS = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND position < $4
        ORDER BY position DESC LIMIT $5";
    UserSql ITEM = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
    UserSql FORGET_ITEM = "
        DELETE FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
}

/// Before the first position.
const START: i64 = -1;

impl<E: SqlEngine> ConversationStore for SqlStore<E> {
    fn create_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        conversation: &'a Conversation,
        items: Vec<NewItem>,
    ) -> Stored<'a, ()> {
        let arguments = (scope.clone(), conversation.clone(), items);
        self.engine.transaction(Repeat::Safe, arguments, |connection, (scope, conversation, items)| {
            Box::pin(async move {
                let Conversation { id, created_at_ms, metadata } = conversation;
                let add =
                    connection.user(scope, connection.sql().add_conversation, values![id, *created_at_ms, metadata]);
                let is_new = add.run().await? == 1;
                // The id is new: a conversation that exists when the work is repeated was written by its first run.
                if !is_new && connection.is_repeated() {
                    return Ok(());
                }
                let broken = |what: String| Err(StoreError::Broken(what).into());
                if !is_new {
                    return broken(format!("conversation `{id}` exists already"));
                }
                match add_items(connection, scope, id, items).await? {
                    Some(AppendOutcome::Taken(item_id)) => broken(format!("item `{item_id}` comes twice")),
                    _ => Ok(()),
                }
            })
        })
    }

    fn conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Conversation>> {
        self.engine.read((scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(connection.user(scope, CONVERSATION, values![id]).first(conversation))
        })
    }

    fn update_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        metadata: Json,
    ) -> Stored<'a, Option<Conversation>> {
        let arguments = (scope.clone(), id.to_owned(), metadata);
        self.engine.change(Repeat::Safe, arguments, |connection, (scope, id, metadata)| {
            let query = connection.user(scope, UPDATE_CONVERSATION, values![id, metadata]);
            Box::pin(query.first(conversation))
        })
    }

    fn delete_conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        self.engine.transaction(Repeat::Never, (scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(async move {
                // The conversation first: a transaction that adds items locks it, so once this one has the lock, those
                // items are committed.
                let deleted = connection.user(scope, FORGET_CONVERSATION, values![id]).run().await? == 1;
                if deleted {
                    connection.user(scope, FORGET_ITEMS, values![id]).run().await?;
                }
                Ok(deleted)
            })
        })
    }

    fn add_items<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        items: Vec<NewItem>,
    ) -> Stored<'a, Option<AppendOutcome>> {
        let arguments = (scope.clone(), id.to_owned(), items);
        self.engine.transaction(Repeat::Never, arguments, |connection, (scope, id, items)| {
            Box::pin(add_items(connection, scope, id, items))
        })
    }

    fn list_items<'a>(&'a self, scope: &'a Scope, id: &'a str, page: &'a Page) -> Stored<'a, Option<Listing>> {
        self.engine.read((scope.clone(), id.to_owned(), page.clone()), |connection, (scope, id, page)| {
            Box::pin(list(connection, scope, id, page))
        })
    }

    fn conversation_item<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        item_id: &'a str,
    ) -> Stored<'a, Option<ConversationItem>> {
        let arguments = (scope.clone(), id.to_owned(), item_id.to_owned());
        self.engine.read(arguments, |connection, (scope, id, item_id)| {
            Box::pin(connection.user(scope, ITEM, values![id, item_id]).first(item))
        })
    }

    fn delete_item<'a>(&'a self, scope: &'a Scope, id: &'a str, item_id: &'a str) -> Stored<'a, Option<bool>> {
        let arguments = (scope.clone(), id.to_owned(), item_id.to_owned());
        self.engine.change(Repeat::Never, arguments, |connection, (scope, id, item_id)| {
            Box::pin(async move {
                if !connection.user(scope, CONVERSATION, values![id]).exists().await? {
                    return Ok(None);
                }
                Ok(Some(connection.user(scope, FORGET_ITEM, values![id, item_id]).run().await? == 1))
            })
        })
    }

    fn conversation_history<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<Json>>> {
        self.engine.read((scope.clone(), id.to_owned()), |connection, (scope, id)| {
            Box::pin(async move {
                if !connection.user(scope, CONVERSATION, values![id]).exists().await? {
                    return Ok(None);
                }
                let items = connection.user(scope, ITEMS_UPWARDS, values![id, START, i64::MAX]);
                items.all(|row| row.get(1)).await.map(Some)
            })
        })
    }
}

/// Adds items at the end of a conversation, all of them or none. Inside a transaction.
async fn add_items<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    id: &str,
    items: &[NewItem],
) -> Result<Option<AppendOutcome>, C::Failure> {
    let first = connection.user(scope, connection.sql().take_item_positions, values![id, items.len()]);
    let Some(first) = first.first(|row| row.get::<i64>(0)).await? else { return Ok(None) };
    let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    let taken = connection
        .user(scope, connection.sql().taken_item_ids, values![id, ids])
        .all(|row| row.get::<String>(0))
        .await?;
    let mut taken: HashSet<&str> = taken.iter().map(String::as_str).collect();
    // Also an id that occurs twice in `items`. The positions that were reserved for the items stay empty.
    if let Some(item) = items.iter().find(|item| !taken.insert(&item.id)) {
        return Ok(Some(AppendOutcome::Taken(item.id.clone())));
    }
    let rows = (first..).zip(items).map(|(position, item)| values![position, &item.id, &item.item]);
    connection.user(scope, connection.sql().add_conversation_item, values![id]).for_each(rows).run().await?;
    Ok(Some(AppendOutcome::All))
}

async fn list<C: SqlConnection>(
    connection: &C,
    scope: &Scope,
    id: &str,
    page: &Page,
) -> Result<Option<Listing>, C::Failure> {
    if !connection.user(scope, CONVERSATION, values![id]).exists().await? {
        return Ok(None);
    }
    let (statement, end) = match page.order {
        Order::Ascending => (ITEMS_UPWARDS, START),
        Order::Descending => (ITEMS_DOWNWARDS, i64::MAX),
    };
    let from = match &page.after {
        None => end,
        Some(after) => {
            let position = connection.user(scope, ITEM_POSITION, values![id, after]);
            match position.first(|row| row.get(0)).await? {
                Some(position) => position,
                None => return Ok(Some(Listing::UnknownAfter)),
            }
        }
    };
    // One item more than requested shows whether further items follow.
    let limit = page.limit.saturating_add(1);
    let mut items = connection.user(scope, statement, values![id, from, limit]).all(item).await?;
    let has_more = items.len() > page.limit;
    items.truncate(page.limit);
    Ok(Some(Listing::Items { items, has_more }))
}

fn conversation(row: &dyn SqlRow) -> Result<Conversation, StoreError> {
    Ok(Conversation { id: row.get(0)?, created_at_ms: row.get(1)?, metadata: row.get(2)? })
}

fn item(row: &dyn SqlRow) -> Result<ConversationItem, StoreError> {
    Ok(ConversationItem { id: row.get(0)?, item: row.get(1)? })
}
