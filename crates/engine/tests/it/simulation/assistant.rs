//! Methods of the store that a simulation never calls: assistants.

use amalgam_core::{
    Scope,
    store::{
        AgentConfig, AgentProfile, AgentStore, Course, CoursePage, CourseStore, ImportCounts, MessageRecord,
        MetadataRecord, NewUserMessage, ProcessId, QueueEntry, SessionHistory, SessionRecord, SessionStore, Stored,
        Ticket, Within,
    },
};

use super::store::{SimStore, nobody_asks};

impl AgentStore for SimStore {
    fn agent_config<'a>(&'a self, _: &'a Scope) -> Stored<'a, Option<AgentConfig>> {
        nobody_asks()
    }

    fn agent_config_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Option<AgentConfig>> {
        nobody_asks()
    }

    fn put_agent_config<'a>(&'a self, _: Within<'a>, _: AgentConfig) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn profile<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentProfile>> {
        nobody_asks()
    }

    fn active_profiles<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<AgentProfile>> {
        nobody_asks()
    }

    fn profiles_within<'a>(&'a self, _: Within<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentProfile>> {
        nobody_asks()
    }

    fn put_profile<'a>(&'a self, _: Within<'a>, _: AgentProfile) -> Stored<'a, Option<AgentProfile>> {
        nobody_asks()
    }

    fn delete_profile<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn profile_versions<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Vec<AgentProfile>> {
        nobody_asks()
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
        nobody_asks()
    }

    fn is_next<'a>(&'a self, _: &'a Scope, _: Ticket) -> Stored<'a, Option<bool>> {
        nobody_asks()
    }

    fn leave_queue<'a>(&'a self, _: &'a Scope, _: Ticket, _: Option<MetadataRecord>) -> Stored<'a, ()> {
        nobody_asks()
    }

    fn append_message<'a>(&'a self, _: &'a Scope, _: Ticket, _: NewUserMessage) -> Stored<'a, Option<SessionHistory>> {
        nobody_asks()
    }

    fn sessions<'a>(&'a self, _: &'a Scope, _: Option<i64>, _: usize) -> Stored<'a, Vec<SessionRecord>> {
        nobody_asks()
    }

    fn messages<'a>(
        &'a self,
        _: &'a Scope,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<MessageRecord>>> {
        nobody_asks()
    }

    fn message<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<MessageRecord>> {
        nobody_asks()
    }

    fn response_of_answer<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<String>> {
        nobody_asks()
    }

    fn response_of_answer_within<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        nobody_asks()
    }

    fn sessions_within<'a>(
        &'a self,
        _: Within<'a>,
        _: Option<&'a str>,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Vec<SessionRecord>> {
        nobody_asks()
    }

    fn session_within<'a>(
        &'a self,
        _: Within<'a>,
        _: i64,
        _: Option<i64>,
        _: usize,
    ) -> Stored<'a, Option<(SessionRecord, Vec<MessageRecord>)>> {
        nobody_asks()
    }
}

impl CourseStore for SimStore {
    fn put_courses<'a>(&'a self, _: Within<'a>, _: Vec<Course>, _: u64) -> Stored<'a, Option<ImportCounts>> {
        nobody_asks()
    }

    fn course<'a>(&'a self, _: &'a Scope, _: i64) -> Stored<'a, Option<Course>> {
        nobody_asks()
    }

    fn search_courses<'a>(&'a self, _: &'a Scope, _: &'a [String], _: u64, _: usize) -> Stored<'a, CoursePage> {
        nobody_asks()
    }
}
