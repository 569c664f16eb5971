//! Conversations: lists of items that several responses read and extend.

use amalgam_protocol::Json;

use super::Stored;
use crate::scope::Scope;

/// A conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// `conv_…`
    pub id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The metadata, a JSON object of strings.
    pub metadata: Json,
}

/// An item to add to a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct NewItem {
    /// The item's id, the same as in its JSON.
    pub id: String,
    /// The item's JSON.
    pub item: Json,
}

/// An item of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationItem {
    /// The item's id.
    pub id: String,
    /// The item's JSON.
    pub item: Json,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    #[default]
    Descending,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The id of the item before the page; `None` for the first page.
    pub after: Option<String>,
    /// The number of items, at most.
    pub limit: usize,
    /// The order.
    pub order: Order,
}

/// The result of adding items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOutcome {
    /// All items were added.
    All,
    /// No item was added: the conversation already has an item with this id.
    Taken(String),
}

/// A page of a conversation's items.
#[derive(Debug, Clone, PartialEq)]
pub enum Listing {
    /// The page.
    Items {
        /// The items, in the requested order.
        items: Vec<ConversationItem>,
        /// Whether further items follow.
        has_more: bool,
    },
    /// The conversation has no item with the id `after` of the page.
    UnknownAfter,
}

/// The caller's conversations. Methods that return an `Option` return `None`, and write nothing, if the conversation
/// does not exist.
pub trait ConversationStore: Send + Sync {
    /// Creates a conversation with its first items.
    fn create_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        conversation: &'a Conversation,
        items: Vec<NewItem>,
    ) -> Stored<'a, ()>;

    /// Returns a conversation.
    fn conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Conversation>>;

    /// Replaces the metadata and returns the conversation.
    fn update_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        metadata: Json,
    ) -> Stored<'a, Option<Conversation>>;

    /// Deletes a conversation and its items. Returns whether it existed.
    fn delete_conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;

    /// Appends all items, or none if one of their ids is taken.
    fn add_items<'a>(&'a self, scope: &'a Scope, id: &'a str, items: Vec<NewItem>)
    -> Stored<'a, Option<AppendOutcome>>;

    /// Returns a page of items.
    fn list_items<'a>(&'a self, scope: &'a Scope, id: &'a str, page: &'a Page) -> Stored<'a, Option<Listing>>;

    /// Returns an item; `None` also if the conversation has no such item.
    fn conversation_item<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        item_id: &'a str,
    ) -> Stored<'a, Option<ConversationItem>>;

    /// Deletes an item. Returns `Some(false)` if the conversation has no such item.
    fn delete_item<'a>(&'a self, scope: &'a Scope, id: &'a str, item_id: &'a str) -> Stored<'a, Option<bool>>;

    /// Returns all items, oldest first.
    fn conversation_history<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<Json>>>;
}
