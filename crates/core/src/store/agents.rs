//! Assistants of a tenant: settings, profiles, sessions and their queues, and the catalogue of courses.

use amalgam_protocol::{Json, Writer};

use super::{Stored, processes::ProcessId};
use crate::{
    audit::AuditDraft,
    scope::{Admin, Operator, Scope},
};

/// The tenant whose objects an administrator or an operator manages.
#[derive(Debug, Clone, Copy)]
pub enum Within<'a> {
    /// The administrator's own tenant.
    Own(Admin<'a>),
    /// The tenant with this number, on behalf of the operator.
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

/// The settings of a tenant's assistant. The configuration of the server supplies the values that are not set here.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// The values that are set, as a JSON object.
    pub values: Json,
    /// The tenant's API key for its upstream, sealed.
    pub api_key: Option<String>,
    /// Starts at 1 and increases by one with each change.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A profile: a prompt, tools and a model that a request selects by the profile's slug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProfile {
    /// The name in requests; unique in its tenant.
    pub slug: String,
    /// The system prompt.
    pub prompt: String,
    /// The names of its tools, in order.
    pub tools: Vec<String>,
    /// The requested model; `None` for the default model of the assistant.
    pub model: Option<String>,
    /// The tool that the model must call first in each turn; `None` lets the model choose.
    pub tool_choice: Option<String>,
    /// Whether requests can use the profile.
    pub active: bool,
    /// Starts at 1 and increases by one with each change.
    pub version: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A session: the messages of one user with one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session's id.
    pub id: i64,
    /// The user who owns the session.
    pub user: String,
    /// The profile's slug; `None` for a session without a profile.
    pub profile: Option<String>,
    /// Whether further turns of the user and the profile join this session.
    pub active: bool,
    /// The number of messages.
    pub messages: u64,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A message of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRecord {
    /// The message's id.
    pub id: i64,
    /// The session that the message belongs to.
    pub session_id: i64,
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// The text.
    pub content: String,
    /// The response of the turn that wrote the message.
    pub response_id: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Records about the message. Empty where a method does not load them.
    pub metadata: Vec<MetadataRecord>,
}

/// A record about a message, for administrators.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataRecord {
    /// `system_prompt`, `context`, `model_usage`, `tool_call` or `error`.
    pub kind: String,
    /// A JSON object.
    pub value: Json,
}

impl MetadataRecord {
    /// A record of this kind; `fill` writes the fields of its value.
    pub fn new(kind: &str, fill: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::default();
        writer.object(fill);
        Self { kind: kind.to_owned(), value: Json::from_writer(writer) }
    }
}

/// An entry in the queue of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The session.
    pub session_id: i64,
    /// The position in the queue: smaller numbers run first.
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
    /// The response of the turn that answers the message.
    pub response_id: String,
    /// The text of the message.
    pub content: String,
    /// Records about the message.
    pub metadata: Vec<MetadataRecord>,
    /// The number of earlier messages to return, at most.
    pub history_messages: usize,
    /// Whether it begins a new session; the active one is closed.
    pub starts_session: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The result of appending a user's message: the ids of both messages of the turn, and the earlier messages.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHistory {
    /// The id of the user's message.
    pub user_message_id: i64,
    /// The id that the answer will have.
    pub assistant_message_id: i64,
    /// The earlier messages as role and content, oldest first.
    pub history: Vec<(String, String)>,
    /// The response that the newest answer in `history` belongs to; `None` if `history` has no answer.
    pub answered_by: Option<String>,
}

/// What the end of a turn writes to its session. The same transaction removes the turn's entry from the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEnd {
    /// The turn's entry in the queue.
    pub ticket: Ticket,
    /// The answer, under the id that was reserved for it; `None` if the turn failed.
    pub answer: Option<(i64, String)>,
    /// Records to add, each with the id of its message.
    pub metadata: Vec<(i64, MetadataRecord)>,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// A course of a tenant's catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// The course's id, unique in its tenant.
    pub id: i64,
    /// The title.
    pub title: String,
    /// The description.
    pub description: String,
    /// The form of teaching, such as `Learn`.
    pub modality: String,
    /// The kind of entry, such as `Course`.
    pub kind: String,
    /// The learner's status, such as `Started`; `None` if there is none.
    pub status: Option<String>,
    /// Whether the parts must be taken in order.
    pub content_in_sequence: bool,
    /// The percentage that a learner must finish.
    pub min_percentage_finish: i64,
    /// The tags.
    pub tags: Vec<String>,
    /// The names of the parts.
    pub assets: Vec<String>,
    /// The address of the course.
    pub url: Option<String>,
    /// The percentage that the learner has finished.
    pub progress: i64,
    /// Whether the learner may take the course.
    pub is_eligible: bool,
    /// Whether the course is in the learner's playlist.
    pub in_playlist: bool,
    /// Whether searches and lookups return the course.
    pub active: bool,
}

/// A page of search results.
#[derive(Debug, Clone, PartialEq)]
pub struct CoursePage {
    /// The number of all matches.
    pub count: u64,
    /// The matches of this page, best first.
    pub courses: Vec<Course>,
}

/// The counts of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportCounts {
    /// Entries that were added.
    pub created: u64,
    /// Entries that existed and were changed.
    pub updated: u64,
    /// Entries that existed with the same content.
    pub unchanged: u64,
}

/// Settings and profiles of assistants.
pub trait AgentStore: Send + Sync {
    /// Returns the settings of the caller's tenant; `None` if none are stored. May be a cached copy.
    fn agent_config<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Option<AgentConfig>>;

    /// Returns the stored settings of a tenant; `None` if there are none, or the tenant does not exist.
    fn agent_config_within<'a>(&'a self, within: Within<'a>) -> Stored<'a, Option<AgentConfig>>;

    /// Replaces the settings if the stored revision is the one before `config.revision`; revision 1 is for a tenant
    /// that has no settings yet. Returns `false` and writes nothing if the revision is stale or the tenant does not
    /// exist.
    fn put_agent_config<'a>(&'a self, within: Within<'a>, config: AgentConfig, audit: AuditDraft) -> Stored<'a, bool>;

    /// Returns a profile of the caller's tenant, active or not; `None` if there is no such profile. May be a cached
    /// copy.
    fn profile<'a>(&'a self, scope: &'a Scope, slug: &'a str) -> Stored<'a, Option<AgentProfile>>;

    /// Returns the active profiles of the caller's tenant, sorted by slug.
    fn active_profiles<'a>(&'a self, scope: &'a Scope) -> Stored<'a, Vec<AgentProfile>>;

    /// Returns at most `limit` profiles of a tenant whose slug is greater than `after`, sorted by slug.
    fn profiles_within<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<AgentProfile>>;

    /// Adds or replaces a profile and returns it as stored; `None` if the tenant does not exist. A profile with the
    /// same content is left unchanged. Otherwise the store assigns the next version, whatever `profile.version` is, and
    /// keeps the earlier ones.
    fn put_profile<'a>(
        &'a self,
        within: Within<'a>,
        profile: AgentProfile,
        audit: AuditDraft,
    ) -> Stored<'a, Option<AgentProfile>>;

    /// Deletes a profile and all its versions. Returns whether the profile existed.
    fn delete_profile<'a>(&'a self, within: Within<'a>, slug: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// Returns at most `limit` versions of a profile before version `before`, newest first; the current one is among
    /// them.
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
    /// Joins the queue of the caller's active session with a profile. Creates the session if the caller has none. If
    /// the entry is first at once, the same write appends `message`: most sessions have one turn at a time, and this
    /// saves a write.
    fn join_queue<'a>(
        &'a self,
        scope: &'a Scope,
        profile: Option<&'a str>,
        process: ProcessId,
        now_ms: u64,
        message: Option<NewUserMessage>,
    ) -> Stored<'a, QueueEntry>;

    /// Whether the entry is first in its queue; `None` if it has been removed. [`super::Store::changed`] notifies of
    /// changes under [`session_topic`].
    fn is_next<'a>(&'a self, scope: &'a Scope, ticket: Ticket) -> Stored<'a, Option<bool>>;

    /// Removes the entry from its queue, and adds `error` to the user's message if that was appended. No effect if the
    /// entry has been removed before.
    fn leave_queue<'a>(&'a self, scope: &'a Scope, ticket: Ticket, error: Option<MetadataRecord>) -> Stored<'a, ()>;

    /// Appends the user's message and returns the messages before it. `None`, and nothing is written, if the entry is
    /// not first.
    fn append_message<'a>(
        &'a self,
        scope: &'a Scope,
        ticket: Ticket,
        words: NewUserMessage,
    ) -> Stored<'a, Option<SessionHistory>>;

    /// Returns at most `limit` of the caller's sessions with ids below `after`, newest first.
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

    /// Returns a message of one of the caller's sessions with its records; `None` if there is no such message.
    fn message<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<MessageRecord>>;

    /// Returns the newest of the caller's responses whose answer has this id of the upstream; `None` if there is none.
    fn response_of_answer<'a>(&'a self, scope: &'a Scope, provider_id: &'a str) -> Stored<'a, Option<String>>;

    /// Returns the newest response of a tenant whose answer has this id of the upstream, of any user and any wire;
    /// `None` if there is none.
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

    /// Returns a session of a tenant with its newest messages below `after` and their records; `None` if it does not
    /// exist.
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

/// The catalogue of courses.
pub trait CourseStore: Send + Sync {
    /// Adds courses, or replaces those with the same ids, all in one transaction. `None` if the tenant does not exist.
    fn put_courses<'a>(
        &'a self,
        within: Within<'a>,
        courses: Vec<Course>,
        now_ms: u64,
    ) -> Stored<'a, Option<ImportCounts>>;

    /// Returns an active course of the caller's tenant; `None` if there is none with this id.
    fn course<'a>(&'a self, scope: &'a Scope, id: i64) -> Stored<'a, Option<Course>>;

    /// Returns a page of the active courses of the caller's tenant that contain at least one of the words, best first.
    /// An empty list of words selects all courses, sorted by id. The words are those of
    /// `amalgam_knowledge::search::words`.
    fn search_courses<'a>(
        &'a self,
        scope: &'a Scope,
        words: &'a [String],
        offset: u64,
        limit: usize,
    ) -> Stored<'a, CoursePage>;
}
