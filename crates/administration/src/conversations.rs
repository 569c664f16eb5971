//! The conversations of all users of a tenant.

use amalgam_app::{no_such_cursor, not_found};
use amalgam_core::{
    AuditAction, Fault, Operator, Scope,
    store::{Conversation, Listing, OwnedBy, Page},
    write_item,
};
use amalgam_protocol::{Json, Writer};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::{admin, known_id, user_scope, within},
    audit::snapshot,
    fields::{Object, UnixSeconds},
    list::List,
};

/// The conversation in not-found errors.
const CONVERSATION: &str = "Conversation";

const DELETE: AuditAction = AuditAction::new("conversation.delete");

/// A conversation, whose it is, and its metadata.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConversationHead")]
pub struct ConversationView {
    /// The id of the conversation.
    pub id: String,
    #[schemars(extend("const" = "conversation"))]
    object: &'static str,
    /// The owner.
    pub user: String,
    /// What the client has stored with it.
    metadata: Object,
    created_at: UnixSeconds,
}

/// A conversation with a page of its items.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ConversationItems")]
pub struct ConversationPage {
    #[serde(flatten)]
    conversation: ConversationView,
    /// Items as `GET /v1/conversations/{id}/items` shows them, newest first unless `order` says otherwise.
    data: Vec<Object>,
    first_id: Option<String>,
    last_id: Option<String>,
    /// Whether there are more items.
    has_more: bool,
}

/// An item as the API shows it.
fn shown(item: &Json) -> Object {
    let mut writer = Writer::default();
    write_item(&mut writer, item.raw());
    Json::from_writer(writer).into()
}

impl From<OwnedBy<Conversation>> for ConversationView {
    fn from(OwnedBy { user, object: conversation }: OwnedBy<Conversation>) -> Self {
        Self {
            id: conversation.id,
            object: "conversation",
            user,
            metadata: conversation.metadata.into(),
            created_at: UnixSeconds::from_ms(conversation.created_at_ms),
        }
    }
}

impl Administration<'_> {
    /// Conversations ordered by id, downwards; with `user` those of one user.
    pub async fn conversations(
        &self,
        scope: &Scope,
        user: Option<&str>,
        page: &Page,
    ) -> Result<List<ConversationView, String>, Fault> {
        let found = self.store.conversations_within(within(scope)?, user, page.after.as_deref(), page.limit + 1);
        let views = found.await?.into_iter().map(ConversationView::from).collect();
        Ok(List::new(views, page.limit, |conversation: &ConversationView| conversation.id.clone()))
    }

    /// One conversation with a page of its items.
    pub async fn conversation(&self, scope: &Scope, id: &str, page: &Page) -> Result<ConversationPage, Fault> {
        let found = self.owned_conversation(scope, id).await?;
        let user = user_scope(admin(scope)?, scope, &found.user);
        let (items, has_more) = match self.store.list_items(&user, id, page).await? {
            None => return Err(not_found(CONVERSATION, id)),
            Some(Listing::UnknownAfter) => {
                return Err(no_such_cursor("after", page.after.as_deref().unwrap_or_default()));
            }
            Some(Listing::Items { items, has_more }) => (items, has_more),
        };
        Ok(ConversationPage {
            conversation: found.into(),
            first_id: items.first().map(|item| item.id.clone()),
            last_id: items.last().map(|item| item.id.clone()),
            has_more,
            data: items.into_iter().map(|item| shown(&item.item)).collect(),
        })
    }

    /// Deletes a conversation with its items. Responses that were created in it stay.
    pub async fn delete_conversation(&self, scope: &Scope, id: &str) -> Result<(), Fault> {
        let found = self.owned_conversation(scope, id).await?;
        let user = user_scope(admin(scope)?, scope, &found.user);
        let audit = self.change(scope.tenant_id(), DELETE, id).before(snapshot(&ConversationView::from(found)));
        self.store.append_audit(Operator::of_this_process(), audit).await?;
        match self.store.delete_conversation(&user, id).await? {
            true => Ok(()),
            false => Err(not_found(CONVERSATION, id)),
        }
    }

    async fn owned_conversation(&self, scope: &Scope, id: &str) -> Result<OwnedBy<Conversation>, Fault> {
        let found = self.store.conversation_within(within(scope)?, known_id(CONVERSATION, id)?).await?;
        found.ok_or_else(|| not_found(CONVERSATION, id))
    }
}
