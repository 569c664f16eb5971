//! Methods of the store that a simulation never calls: assistants.

use amalgam_core::{
    AuditDraft, Scope,
    store::{
        AgentConfig, AgentProfile, AgentSession, AgentStore, CatalogueStore, Conversation, Course, CoursePage,
        CourseStore, ImportCounts, LearnerCourse, MessageRecord, MetadataRecord, NewUserMessage, OwnedBy, ProcessId,
        QueueEntry, SessionDeletion, SessionHistory, SessionRecord, SessionStore, Stored, ThreadStore, Ticket, Within,
    },
};

use super::store::{SimStore, not_simulated};

impl AgentStore for SimStore {
    fn agent_config<'a>(&'a self, _: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        not_simulated()
    }

    fn agent_config_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        not_simulated()
    }

    fn put_agent_config<'a>(&'a self, _: Within<'a>, _: AgentConfig, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn profile<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentProfile>> {
        not_simulated()
    }

    fn active_profiles<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        not_simulated()
    }

    fn profiles_within<'a>(&'a self, _: Within<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentProfile>> {
        not_simulated()
    }

    fn put_profile<'a>(&'a self, _: Within<'a>, _: AgentProfile, _: AuditDraft) -> Stored<'a, Option<AgentProfile>> {
        not_simulated()
    }

    fn delete_profile<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn profile_versions<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        not_simulated()
    }
}

impl SessionStore for SimStore {
    fn join_queue<'a>(
        &'a self,
        _: &'a Scope,
        _: Option<&'a str>,
        _: ProcessId,
        _: u64,
        _: Option<NewUserMessage>,
    ) -> Stored<'a, QueueEntry> {
        not_simulated()
    }

    fn is_next<'a>(&'a self, _: &'a Scope, _: Ticket) -> Stored<'a, Option<bool>> {
        not_simulated()
    }

    fn leave_queue<'a>(&'a self, _: &'a Scope, _: Ticket, _: Option<MetadataRecord>) -> Stored<'a, ()> {
        not_simulated()
    }

    fn append_message<'a>(&'a self, _: &'a Scope, _: Ticket, _: NewUserMessage) -> Stored<'a, Option<SessionHistory>> {
        not_simulated()
    }

    fn sessions<'a>(&'a self, _: &'a Scope, _: Option<i64>, _: usize) -> Stored<'a, Vec<SessionRecord>> {
        not_simulated()
    }

    fn messages<'a>(
        &'a self,
        _: &'a Scope,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        not_simulated()
    }

    fn message<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<MessageRecord>> {
        not_simulated()
    }

    fn response_of_answer<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<String>> {
        not_simulated()
    }

    fn response_of_answer_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        not_simulated()
    }

    fn count_client_message<'a>(&'a self, _: &'a Scope, _: u64, _: u64) -> Stored<'a, bool> {
        not_simulated()
    }

    fn sessions_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        not_simulated()
    }

    fn session_within<'a>(
        &'a self,
        _: Within<'a>,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        not_simulated()
    }
}

impl CourseStore for SimStore {
    fn put_courses<'a>(&'a self, _: Within<'a>, _: Vec<Course>, _: u64) -> Stored<'a, Option<ImportCounts>> {
        not_simulated()
    }

    fn course<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<Course>> {
        not_simulated()
    }

    fn search_courses<'a>(&'a self, _: &'a Scope, _: &'a [String], _: u64, _: usize) -> Stored<'a, CoursePage> {
        not_simulated()
    }
}

impl CatalogueStore for SimStore {
    fn courses_within<'a>(&'a self, _: Within<'a>, _: Option<i64>, _: usize) -> Stored<'a, Vec<Course>> {
        not_simulated()
    }

    fn course_within<'a>(&'a self, _: Within<'a>, _: i64) -> Stored<'a, Option<Course>> {
        not_simulated()
    }

    fn search_courses_within<'a>(&'a self, _: Within<'a>, _: &'a [String], _: u64, _: usize) -> Stored<'a, CoursePage> {
        not_simulated()
    }

    fn change_courses<'a>(
        &'a self,
        _: Within<'a>,
        _: Vec<Course>,
        _: Vec<i64>,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<(ImportCounts, u64)>> {
        not_simulated()
    }

    fn learner_courses_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<(&'a str, i64)>,
        _: usize,
    ) -> Stored<'a, Vec<LearnerCourse>> {
        not_simulated()
    }

    fn change_learner_courses<'a>(
        &'a self,
        _: Within<'a>,
        _: Vec<LearnerCourse>,
        _: Vec<(String, i64)>,
        _: AuditDraft,
    ) -> Stored<'a, Option<u64>> {
        not_simulated()
    }

    fn delete_learner<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, u64> {
        not_simulated()
    }
}

impl ThreadStore for SimStore {
    fn close_session<'a>(&'a self, _: Within<'a>, _: i64, _: u64, _: AuditDraft) -> Stored<'a, Option<bool>> {
        not_simulated()
    }

    fn delete_session_within<'a>(&'a self, _: Within<'a>, _: i64, _: AuditDraft) -> Stored<'a, SessionDeletion> {
        not_simulated()
    }

    fn agent_sessions_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<OwnedBy<AgentSession>>> {
        not_simulated()
    }

    fn agent_session_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<OwnedBy<AgentSession>>> {
        not_simulated()
    }

    fn conversations_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<&'a str>,
        _: usize,
    ) -> Stored<'a, Vec<OwnedBy<Conversation>>> {
        not_simulated()
    }

    fn conversation_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<OwnedBy<Conversation>>> {
        not_simulated()
    }
}
