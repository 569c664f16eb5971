//! No assistants: no settings, no profiles, threads without a word, and an empty catalogue.

use amalgam_core::{
    AuditDraft, Scope,
    store::{
        AgentConfig, AgentProfile, AgentSession, AgentStore, CatalogueStore, Conversation, Course, CoursePage,
        CourseStore, ImportCounts, LearnerCourse, MessageRecord, MetadataRecord, NewUserMessage, OwnedBy, ProcessId,
        QueueEntry, SessionDeletion, SessionHistory, SessionRecord, SessionStore, Stored, ThreadStore, Ticket, Within,
    },
};

use super::{Nothing, gives};

impl AgentStore for Nothing {
    fn agent_config<'a>(&'a self, _: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        gives(None)
    }

    fn agent_config_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        gives(None)
    }

    fn put_agent_config<'a>(&'a self, _: Within<'a>, _: AgentConfig, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }

    fn profile<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentProfile>> {
        gives(None)
    }

    fn active_profiles<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        gives(Vec::new())
    }

    fn profiles_within<'a>(&'a self, _: Within<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentProfile>> {
        gives(Vec::new())
    }

    fn put_profile<'a>(&'a self, _: Within<'a>, _: AgentProfile, _: AuditDraft) -> Stored<'a, Option<AgentProfile>> {
        gives(None)
    }

    fn delete_profile<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }

    fn profile_versions<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        gives(Vec::new())
    }
}

impl SessionStore for Nothing {
    fn join_queue<'a>(
        &'a self,
        _: &'a Scope,
        _: Option<&'a str>,
        _: ProcessId,
        _: u64,
        _: Option<NewUserMessage>,
    ) -> Stored<'a, QueueEntry> {
        gives(QueueEntry { ticket: Ticket { session_id: 1, number: 1 }, history: None })
    }

    fn is_next<'a>(&'a self, _: &'a Scope, _: Ticket) -> Stored<'a, Option<bool>> {
        gives(None)
    }

    fn leave_queue<'a>(&'a self, _: &'a Scope, _: Ticket, _: Option<MetadataRecord>) -> Stored<'a, ()> {
        gives(())
    }

    fn append_message<'a>(&'a self, _: &'a Scope, _: Ticket, _: NewUserMessage) -> Stored<'a, Option<SessionHistory>> {
        gives(None)
    }

    fn sessions<'a>(&'a self, _: &'a Scope, _: Option<i64>, _: usize) -> Stored<'a, Vec<SessionRecord>> {
        gives(Vec::new())
    }

    fn messages<'a>(
        &'a self,
        _: &'a Scope,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        gives(None)
    }

    fn message<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<MessageRecord>> {
        gives(None)
    }

    fn response_of_answer<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<String>> {
        gives(None)
    }

    fn response_of_answer_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        gives(None)
    }

    fn count_client_message<'a>(&'a self, _: &'a Scope, _: u64, _: u64) -> Stored<'a, bool> {
        gives(true)
    }

    fn sessions_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        gives(Vec::new())
    }

    fn session_within<'a>(
        &'a self,
        _: Within<'a>,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        gives(None)
    }
}

impl CourseStore for Nothing {
    fn put_courses<'a>(&'a self, _: Within<'a>, _: Vec<Course>, _: u64) -> Stored<'a, Option<ImportCounts>> {
        gives(None)
    }

    fn course<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<Course>> {
        gives(None)
    }

    fn search_courses<'a>(&'a self, _: &'a Scope, _: &'a [String], _: u64, _: usize) -> Stored<'a, CoursePage> {
        gives(CoursePage { count: 0, courses: Vec::new() })
    }
}

impl CatalogueStore for Nothing {
    fn courses_within<'a>(&'a self, _: Within<'a>, _: Option<i64>, _: usize) -> Stored<'a, Vec<Course>> {
        gives(Vec::new())
    }

    fn course_within<'a>(&'a self, _: Within<'a>, _: i64) -> Stored<'a, Option<Course>> {
        gives(None)
    }

    fn search_courses_within<'a>(&'a self, _: Within<'a>, _: &'a [String], _: u64, _: usize) -> Stored<'a, CoursePage> {
        gives(CoursePage { count: 0, courses: Vec::new() })
    }

    fn change_courses<'a>(
        &'a self,
        _: Within<'a>,
        _: Vec<Course>,
        _: Vec<i64>,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<(ImportCounts, u64)>> {
        gives(None)
    }

    fn learner_courses_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<(&'a str, i64)>,
        _: usize,
    ) -> Stored<'a, Vec<LearnerCourse>> {
        gives(Vec::new())
    }

    fn change_learner_courses<'a>(
        &'a self,
        _: Within<'a>,
        _: Vec<LearnerCourse>,
        _: Vec<(String, i64)>,
        _: AuditDraft,
    ) -> Stored<'a, Option<u64>> {
        gives(None)
    }

    fn delete_learner<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, u64> {
        gives(0)
    }
}

impl ThreadStore for Nothing {
    fn close_session<'a>(&'a self, _: Within<'a>, _: i64, _: u64, _: AuditDraft) -> Stored<'a, Option<bool>> {
        gives(None)
    }

    fn delete_session_within<'a>(&'a self, _: Within<'a>, _: i64, _: AuditDraft) -> Stored<'a, SessionDeletion> {
        gives(SessionDeletion::Missing)
    }

    fn agent_sessions_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<OwnedBy<AgentSession>>> {
        gives(Vec::new())
    }

    fn agent_session_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<OwnedBy<AgentSession>>> {
        gives(None)
    }

    fn conversations_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<OwnedBy<Conversation>>> {
        gives(Vec::new())
    }

    fn conversation_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<OwnedBy<Conversation>>> {
        gives(None)
    }
}
