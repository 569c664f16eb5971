//! What a tenant's assistant is: its settings, its profiles, its threads, and the catalogue that it knows.

use amalgam_protocol::{Json, Writer};

use super::{Stored, processes::ProcessId};
use crate::{
    audit::AuditDraft,
    scope::{Admin, Operator, Scope},
};

/// The tenant whose objects an administrator or an operator manages.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// Those of its own tenant.
    Own(Admin<'a>),
    /// Those of a tenant that the operator names.
    Named(Operator, i64),
}

impl Within<'_> {
    /// The tenant's number.
    pub fn tenant_id(self) -> i64 {
        match self {
            Self::Own(admin) => admin.tenant_id(),
            Self::Named(_, tenant_id) => tenant_id,
        }
    }
}

/// A tenant's settings. What is not set comes from elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// A JSON object of what is set.
    pub values: Json,
    /// The tenant's key for its upstream, sealed.
    pub api_key: Option<String>,
    /// Grows with every change, from 1.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Who an assistant is for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProfile {
    /// What callers ask for; unique in its tenant.
    pub slug: String,
    /// What it is told to be.
    pub prompt: String,
    /// The names of its tools, in order.
    pub tools: Vec<String>,
    /// The model that it wants.
    pub model: Option<String>,
    /// The tool that the model has to call first in each turn; none where it is free.
    pub tool_choice: Option<String>,
    /// Whether it may be asked for.
    pub active: bool,
    /// Grows with every change, from 1.
    pub version: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A thread of one user with one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub id: i64,
    /// Whose it is.
    pub user: String,
    /// The profile; none where none was found.
    pub profile: Option<String>,
    /// Whether it goes on.
    pub active: bool,
    /// How many messages it has.
    pub messages: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// Something said in a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRecord {
    /// Its number.
    pub id: i64,
    /// The thread.
    pub session_id: i64,
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// What was said.
    pub content: String,
    /// The turn that it belongs to.
    pub response_id: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// What is known about it.
    pub metadata: Vec<MetadataRecord>,
}

/// Something known about a message.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataRecord {
    /// `system_prompt`, `context`, `model_usage`, `tool_call` or `error`.
    pub kind: String,
    /// A JSON object.
    pub value: Json,
}

impl MetadataRecord {
    /// A row of this kind; `fill` writes the fields of its value.
    pub fn new(kind: &str, fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.object(fill);
        Self { kind: kind.to_owned(), value: Json::from_writer(writer) }
    }
}

/// An entry in the queue of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The thread.
    pub session_id: i64,
    /// Smaller comes first.
    pub number: i64,
}

/// An entry that has joined the queue of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueEntry {
    /// The entry.
    pub ticket: Ticket,
    /// The history before the user's message, if the entry was first at once and the message was appended.
    pub history: Option<SessionHistory>,
}

/// The user's message, appended when its entry is first in the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct NewUserMessage {
    /// The turn that answers.
    pub response_id: String,
    /// Its text.
    pub content: String,
    /// What is known about it.
    pub metadata: Vec<MetadataRecord>,
    /// The most messages of before that are wanted.
    pub history_messages: usize,
    /// Whether it begins a new session; the active one is closed.
    pub starts_session: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What appending a user's message gives: the numbers of both messages, and what was said before.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHistory {
    /// The number of the user's message.
    pub user_message_id: i64,
    /// The number that the answer will have.
    pub assistant_message_id: i64,
    /// What was said before, oldest first: role and content.
    pub history: Vec<(String, String)>,
    /// The turn that gave the newest answer among it.
    pub answered_by: Option<String>,
}

/// What the end of a turn adds to its session; the next entry of the queue is first with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEnd {
    /// The turn's entry in the queue.
    pub ticket: Ticket,
    /// The answer, under the number that was kept for it; none where the turn failed.
    pub answer: Option<(i64, String)>,
    /// What is known now, by the number of the message.
    pub metadata: Vec<(i64, MetadataRecord)>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// A course of a tenant's catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// Its number, unique in its tenant.
    pub id: i64,
    /// Its title.
    pub title: String,
    /// What it is about.
    pub description: String,
    /// `Learn` and the like.
    pub modality: String,
    /// `Course` and the like.
    pub kind: String,
    /// Where the learner is with it, such as `Started`; none when nowhere.
    pub status: Option<String>,
    /// Whether its parts have an order.
    pub content_in_sequence: bool,
    /// How much of it has to be done.
    pub min_percentage_finish: i64,
    /// What it is filed under.
    pub tags: Vec<String>,
    /// What it consists of.
    pub assets: Vec<String>,
    /// Where it is.
    pub url: Option<String>,
    /// How much of it is done.
    pub progress: i64,
    /// Whether it may be taken.
    pub is_eligible: bool,
    /// Whether it is on the learner's list.
    pub in_playlist: bool,
    /// Whether it is offered.
    pub active: bool,
}

/// A part of what a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct CoursePage {
    /// How many there are.
    pub count: u64,
    /// This part, the best first.
    pub courses: Vec<Course>,
}

/// What came of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportCounts {
    /// New ones.
    pub created: u64,
    /// Ones that were there and are different now.
    pub updated: u64,
    /// Ones that were there like this.
    pub unchanged: u64,
}

/// Settings and profiles.
pub trait AgentStore: Send + Sync {
    /// The settings of the caller's tenant.
    fn agent_config<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Option<AgentConfig>>;

    /// The settings of a tenant.
    fn agent_config_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Option<AgentConfig>>;

    /// Sets them, if those that are there have the revision before `config`'s; `false` when they do not, or there is no such
    /// tenant.
    fn put_agent_config<'a>(&'a self, within: Within<'a>, config: AgentConfig, audit: AuditDraft) -> Stored<'a, bool>;

    /// A profile of the caller's tenant, active or not.
    fn profile<'a>(&'a self, scope: &'a Scope, slug: &'a str) -> Stored<'a, Option<AgentProfile>>;

    /// The active profiles of the caller's tenant by slug.
    fn active_profiles<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<AgentProfile>>;

    /// The profiles of a tenant by slug, behind `after`.
    fn profiles_within<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>>;

    /// Keeps a profile. One that is there like this stays; else its version is the next one, whatever `profile` says, and the
    /// version before is kept too. Nothing when there is no such tenant.
    fn put_profile<'a>(
        &'a self,
        within: Within<'a>,
        profile: AgentProfile,
        audit: AuditDraft,
    ) -> Stored<'a, Option<AgentProfile>>;

    /// Forgets a profile and its versions; whether there was one.
    fn delete_profile<'a>(&'a self, within: Within<'a>, slug: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// The versions of a profile, the newest first, with the one that is there now.
    fn profile_versions<'a>(
        &'a self,
        within: Within<'a>,
        slug: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>>;
}

/// Sessions of assistants.
pub trait SessionStore: Send + Sync {
    /// Joins the queue of the caller's active session with a profile, which is created if there is none. If the entry is first
    /// at once, appends the message too: most sessions have one turn at a time, and this saves them a write.
    fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        profile: Option<&'a str>,
        process: ProcessId,
        now_ms: u64,
        message: Option<NewUserMessage>,
    ) -> Stored<'a, QueueEntry>;

    /// Whether the entry is first in its queue; nothing when it is gone. Changes are notified through
    /// [`super::Store::changed`] under [`session_topic`].
    fn is_next<'a>(&'a self, scope: &'a Scope, ticket: Ticket) -> Stored<'a, Option<bool>>;

    /// Leaves the queue; a message that was appended by then gets `error` as a row of its own.
    fn leave_queue<'a>(&'a self, scope: &'a Scope, ticket: Ticket, error: Option<MetadataRecord>) -> Stored<'a, ()>;

    /// Appends the user's message, and gives the history before it. Nothing when the entry is not first.
    fn append_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        words: NewUserMessage,
    ) -> Stored<'a, Option<SessionHistory>>;

    /// The caller's threads, the newest first, behind `after`.
    fn sessions<'a>(&'a self, scope: &'a Scope, after: Option<i64>, limit: usize) -> Stored<'a, Vec<SessionRecord>>;

    /// The messages of one of the caller's threads, the newest first, behind `after`, with the calls of their tools and
    /// without other records.
    fn messages<'a>(
        &'a self,
        scope: &'a Scope,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>>;

    /// One message of one of the caller's threads, with all that is known about it.
    fn message<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<MessageRecord>>;

    /// The response of the caller whose model's own id of the answer is `provider_id`, the newest if there are several.
    fn response_of_answer<'a>(&'a self, scope: &'a Scope, provider_id: &'a str) -> Stored<'a, Option<String>>;

    /// The response of any user of a tenant, whichever door it came through, that has this id of the model's server; the
    /// newest if there are several.
    fn response_of_answer_within<'a>(&'a self, within: Within<'a>, provider_id: &'a str) -> Stored<'a, Option<String>>;

    /// Counts a message that the caller sends with a browser token on a day, in days since 1970. `false`, and nothing is
    /// counted, if it has sent `limit` messages on that day already.
    fn count_client_message<'a>(&'a self, scope: &'a Scope, day: u64, limit: u64) -> Stored<'a, bool>;

    /// The threads of a tenant, of one user or of all, the newest first, behind `after`.
    fn sessions_within<'a>(
        &'a self,
        within: Within<'a>,
        user: Option<&'a str>,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Vec<SessionRecord>>;

    /// One thread of a tenant with its newest messages behind `after`, and all that is known about them.
    fn session_within<'a>(
        &'a self,
        within: Within<'a>,
        session_id: i64,
        after: Option<i64>,
        limit: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>>;
}

/// The topic under which [`super::Store::changed`] notifies of the queue of a session.
pub fn session_topic(session_id: i64) -> String {
    format!("session {session_id}")
}

/// The catalogue.
pub trait CourseStore: Send + Sync {
    /// Keeps courses, each in the place of the one of its number, all of them or none. Nothing when there is no such tenant.
    fn put_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>>;

    /// An active course of the caller's tenant.
    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>>;

    /// The active courses of the caller's tenant in which any of these words is found, the best first; with no words all of
    /// them by number. Words are those of `amalgam_knowledge::search::words`.
    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage>;
}
