//! Conversations and their items.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use amalgam_core::{
    Scope,
    store::{Added, Conversation, ConversationItem, ConversationStore, Listing, NewItem, Order, Page, Stored},
};
use amalgam_protocol::Json;
use tokio_postgres::Row;

use super::{
    Postgres,
    connection::{Connection, Failure, Param},
    job::{signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::rows;

statements! {
    Caller ADD_CONVERSATION = "
        INSERT INTO conversations (tenant_id, user_id, id, created_at, metadata, next_position)
        VALUES ($1, $2, $3, $4, $5, 0)
        ON CONFLICT (tenant_id, user_id, id) DO NOTHING";
    Caller CONVERSATION = "
        SELECT id, created_at, metadata FROM conversations WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller UPDATE_CONVERSATION = "
        UPDATE conversations SET metadata = $4 WHERE tenant_id = $1 AND user_id = $2 AND id = $3
        RETURNING id, created_at, metadata";
    Caller DELETE_CONVERSATION = "DELETE FROM conversations WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Caller DELETE_ITEMS = "
        DELETE FROM conversation_items WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3";
    /// Positions for more items. The transaction that has them locks the conversation until it ends.
    Caller TAKE_PLACES = "
        UPDATE conversations SET next_position = next_position + $4
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3
        RETURNING next_position - $4";
    Caller TAKEN = "
        SELECT id FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = ANY ($4)";
    Caller ADD_ITEMS = "
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        SELECT $1, $2, $3, $4::bigint + added.number - 1, added.id, added.item
        FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS added (id, item, number)";
    Caller PLACE_OF_ITEM = "
        SELECT position FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
    Caller ITEMS_UPWARDS = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND position > $4
        ORDER BY position LIMIT $5";
    Caller ITEMS_DOWNWARDS = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND position < $4
        ORDER BY position DESC LIMIT $5";
    Caller ITEM = "
        SELECT id, item FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
    Caller DELETE_ITEM = "
        DELETE FROM conversation_items
        WHERE tenant_id = $1 AND user_id = $2 AND conversation_id = $3 AND id = $4";
}

impl ConversationStore for Postgres {
    fn create_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        conversation: &'a Conversation,
        items: Vec<NewItem>,
    ) -> Stored<'a, ()> {
        Box::pin(async move {
            let items = &items;
            // The id is new: one that is there after a first try was put there by it.
            let (tried, id) = (&AtomicBool::new(false), &conversation.id);
            let created = self.pool.repeatably(move |mut connection: Lease| async move {
                let again = tried.swap(true, Ordering::Relaxed);
                connection.begin().await?;
                let created = create(&connection, scope, conversation, items, again).await;
                connection.end(created).await
            });
            created.await?.ok_or_else(|| {
                amalgam_core::StoreError::Broken(format!("conversation `{id}`, or an item of it, is there already"))
            })
        })
    }

    fn conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Conversation>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&CONVERSATION, &[&scope.tenant_id(), &scope.user(), &id]).await?;
            row.as_ref().map(conversation_from).transpose()
        }))
    }

    fn update_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        metadata: Json,
    ) -> Stored<'a, Option<Conversation>> {
        Box::pin(async move {
            let metadata = &metadata;
            let updated = self.pool.repeatably(move |connection: Lease| async move {
                let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &id, &metadata.raw().text()];
                let row = connection.row(&UPDATE_CONVERSATION, &params).await?;
                row.as_ref().map(conversation_from).transpose()
            });
            updated.await
        })
    }

    fn delete_conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |mut connection: Lease| async move {
            connection.begin().await?;
            let params: [Param<'_>; 3] = [&scope.tenant_id(), &scope.user(), &id];
            let deleted = async {
                // The conversation first: a transaction that adds items locks it, and they are there once the lock is ours.
                let deleted = connection.execute(&DELETE_CONVERSATION, &params).await? > 0;
                connection.execute(&DELETE_ITEMS, &params).await?;
                Ok(deleted)
            };
            let deleted = deleted.await;
            connection.end(deleted).await
        }))
    }

    fn add_items<'a>(&'a self, scope: &'a Scope, id: &'a str, items: Vec<NewItem>) -> Stored<'a, Option<Added>> {
        Box::pin(async move {
            let items = &items;
            let added = self.pool.once(move |mut connection: Lease| async move {
                connection.begin().await?;
                let added = add(&connection, scope, id, items).await;
                connection.end(added).await
            });
            added.await
        })
    }

    fn list_items<'a>(&'a self, scope: &'a Scope, id: &'a str, page: &'a Page) -> Stored<'a, Option<Listing>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move { list(&connection, scope, id, page).await }))
    }

    fn conversation_item<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        item_id: &'a str,
    ) -> Stored<'a, Option<ConversationItem>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&ITEM, &[&scope.tenant_id(), &scope.user(), &id, &item_id]).await?;
            row.as_ref().map(item_from).transpose()
        }))
    }

    fn delete_item<'a>(&'a self, scope: &'a Scope, id: &'a str, item_id: &'a str) -> Stored<'a, Option<bool>> {
        Box::pin(self.pool.once(move |connection: Lease| async move {
            if !exists(&connection, scope, id).await? {
                return Ok(None);
            }
            let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &id, &item_id];
            Ok(Some(connection.execute(&DELETE_ITEM, &params).await? > 0))
        }))
    }

    fn conversation_history<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<Json>>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            if !exists(&connection, scope, id).await? {
                return Ok(None);
            }
            let params: [Param<'_>; 5] = [&scope.tenant_id(), &scope.user(), &id, &FROM_THE_START, &None::<i64>];
            let items = connection.rows(&ITEMS_UPWARDS, &params).await?;
            Ok(Some(items.iter().map(|row| Ok(rows::json(row.try_get(1)?))).collect::<Result<_, Failure>>()?))
        }))
    }
}

const FROM_THE_START: i64 = -1;

/// Nothing when it was there before.
async fn create(
    connection: &Connection,
    scope: &Scope,
    conversation: &Conversation,
    items: &[NewItem],
    again: bool,
) -> Result<Option<()>, Failure> {
    let metadata = conversation.metadata.raw();
    let params: [Param<'_>; 5] =
        [&scope.tenant_id(), &scope.user(), &conversation.id, &signed(conversation.created_at_ms), &metadata.text()];
    if connection.execute(&ADD_CONVERSATION, &params).await? == 0 {
        return Ok(again.then_some(()));
    }
    match add(connection, scope, &conversation.id, items).await? {
        Some(Added::All) => Ok(Some(())),
        // Not an answer but an error: the transaction must not be kept.
        _ => Err(Failure::broken("an item of a new conversation is there twice")),
    }
}

/// Adds items inside a transaction.
async fn add(connection: &Connection, scope: &Scope, id: &str, items: &[NewItem]) -> Result<Option<Added>, Failure> {
    let (tenant_id, user) = (scope.tenant_id(), scope.user());
    let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    let texts: Vec<&str> = items.iter().map(|item| item.item.raw().text()).collect();
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let Some(base) = connection.row(&TAKE_PLACES, &[&tenant_id, &user, &id, &count]).await? else { return Ok(None) };
    let base: i64 = base.try_get(0)?;
    let there = connection.rows(&TAKEN, &[&tenant_id, &user, &id, &ids]).await?;
    let mut taken: HashSet<&str> = there.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    // Also one that comes twice. The places that were taken for nothing stay empty.
    if let Some(first) = ids.iter().find(|id| !taken.insert(id)) {
        return Ok(Some(Added::Taken((*first).to_owned())));
    }
    connection.execute(&ADD_ITEMS, &[&tenant_id, &user, &id, &base, &ids, &texts]).await?;
    Ok(Some(Added::All))
}

async fn list(connection: &Connection, scope: &Scope, id: &str, page: &Page) -> Result<Option<Listing>, Failure> {
    let (tenant_id, user) = (scope.tenant_id(), scope.user());
    if !exists(connection, scope, id).await? {
        return Ok(None);
    }
    let (sql, end) = match page.order {
        Order::Ascending => (&ITEMS_UPWARDS, FROM_THE_START),
        Order::Descending => (&ITEMS_DOWNWARDS, i64::MAX),
    };
    let from = match &page.after {
        None => end,
        Some(after) => match connection.row(&PLACE_OF_ITEM, &[&tenant_id, &user, &id, after]).await? {
            Some(row) => row.try_get(0)?,
            None => return Ok(Some(Listing::UnknownAfter)),
        },
    };
    // One more than was asked for tells whether there are more.
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX).saturating_add(1);
    let found = connection.rows(sql, &[&tenant_id, &user, &id, &from, &limit]).await?;
    let items = found.iter().take(page.limit).map(item_from).collect::<Result<_, _>>()?;
    Ok(Some(Listing::Items { items, has_more: found.len() > page.limit }))
}

async fn exists(connection: &Connection, scope: &Scope, id: &str) -> Result<bool, Failure> {
    Ok(connection.row(&CONVERSATION, &[&scope.tenant_id(), &scope.user(), &id]).await?.is_some())
}

fn conversation_from(row: &Row) -> Result<Conversation, Failure> {
    Ok(Conversation {
        id: row.try_get(0)?,
        created_at_ms: unsigned(row.try_get(1)?),
        metadata: rows::json(row.try_get(2)?),
    })
}

fn item_from(row: &Row) -> Result<ConversationItem, Failure> {
    Ok(ConversationItem { id: row.try_get(0)?, item: rows::json(row.try_get(1)?) })
}
