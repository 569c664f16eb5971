//! Conversations and their items.

use amalgam_core::{Scope, store::NewItem};
use amalgam_protocol::Json;
use amalgam_store::{rows, statements};

use super::{failure::SqliteFailure, query::Database, statements::STATEMENTS};

statements! {
    UserSql ADD_NEW_ITEM = "
        INSERT INTO conversation_items (tenant_id, user_id, conversation_id, position, id, item)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (tenant_id, id, conversation_id) DO NOTHING";
}

/// Adds the input and the output of a turn to the end of a conversation, if it still exists. Skips items without an id,
/// or with an id that the conversation already has.
pub(super) fn append(database: Database<'_>, scope: &Scope, id: &str, arrays: [&Json; 2]) -> Result<(), SqliteFailure> {
    let items: Vec<NewItem> = arrays.into_iter().flat_map(rows::items_with_ids).collect();
    let first =
        database.user(scope, STATEMENTS.take_item_positions, &[&id, &1])?.first(|row| Ok(row.get::<_, i64>(0)?))?;
    let Some(first) = first else { return Ok(()) };
    for (position, item) in (first..).zip(&items) {
        let text = item.item.raw().text();
        database.user(scope, ADD_NEW_ITEM, &[&id, &position, &item.id, &text])?.run()?;
    }
    Ok(())
}
