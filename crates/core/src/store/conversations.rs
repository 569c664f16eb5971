//! Conversations: items that several responses add to.

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
    /// An object of strings.
    pub metadata: Json,
}

/// An item to be added.
#[derive(Debug, Clone, PartialEq)]
pub struct NewItem {
    /// Its id, which is also in its text.
    pub id: String,
    /// The item.
    pub item: Json,
}

/// An item of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationItem {
    /// Its id.
    pub id: String,
    /// The item.
    pub item: Json,
}

/// Which way a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Oldest first.
    Ascending,
    /// Newest first.
    #[default]
    Descending,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Begin behind this item.
    pub after: Option<String>,
    /// At most this many.
    pub limit: usize,
    /// Which way.
    pub order: Order,
}

/// What came of adding items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOutcome {
    /// They are there.
    All,
    /// Nothing was added: the conversation has an item of this id already.
    Taken(String),
}

/// A part of a conversation's items.
#[derive(Debug, Clone, PartialEq)]
pub enum Listing {
    /// The items, and whether there are more behind them.
    Items {
        /// In the order that was asked for.
        items: Vec<ConversationItem>,
        /// Whether the list goes on.
        has_more: bool,
    },
    /// The item to begin behind is not there.
    UnknownAfter,
}

/// Conversations of a caller. A method that is about a conversation which is not there gives nothing.
pub trait ConversationStore: Send + Sync {
    /// Makes one, with its first items.
    fn create_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        conversation: &'a Conversation,
        items: Vec<NewItem>,
    ) -> Stored<'a, ()>;

    /// One conversation.
    fn conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Conversation>>;

    /// Sets its metadata.
    fn update_conversation<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        metadata: Json,
    ) -> Stored<'a, Option<Conversation>>;

    /// Forgets it and its items; whether there was one.
    fn delete_conversation<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, bool>;

    /// Adds items at its end, all of them or none.
    fn add_items<'a>(&'a self, scope: &'a Scope, id: &'a str, items: Vec<NewItem>)
    -> Stored<'a, Option<AppendOutcome>>;

    /// One page of items.
    fn list_items<'a>(&'a self, scope: &'a Scope, id: &'a str, page: &'a Page) -> Stored<'a, Option<Listing>>;

    /// One item.
    fn conversation_item<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a str,
        item_id: &'a str,
    ) -> Stored<'a, Option<ConversationItem>>;

    /// Forgets one item; whether there was one.
    fn delete_item<'a>(&'a self, scope: &'a Scope, id: &'a str, item_id: &'a str) -> Stored<'a, Option<bool>>;

    /// All items, oldest first.
    fn conversation_history<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Vec<Json>>>;
}
