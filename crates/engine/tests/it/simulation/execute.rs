//! Methods of the store that a simulation never calls: sessions, modes, files, knowledge.

use amalgam_core::{
    AuditDraft, Operator, Scope, TurnSummary,
    store::{
        AgentSession, AgentTurn, Collection, DocumentListing, DocumentRecord, ExecuteStore, FileListing, FileRecord,
        FileStore, FoundChunk, ImportCounts, KnowledgeQuery, KnowledgeStore, Mode, ModeChange, ModeStore, NewDocument,
        NewStep, Stored, TakenStep, Within,
    },
};
use bytes::Bytes;

use super::store::{SimStore, not_simulated};

impl ExecuteStore for SimStore {
    fn open_session<'a>(&'a self, _: &'a Scope, _: AgentSession) -> Stored<'a, ()> {
        not_simulated()
    }

    fn agent_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentSession>> {
        not_simulated()
    }

    fn agent_sessions<'a>(&'a self, _: &'a Scope, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentSession>> {
        not_simulated()
    }

    fn delete_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<String>>> {
        not_simulated()
    }

    fn agent_turn<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<AgentTurn>> {
        not_simulated()
    }

    fn agent_turns<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        not_simulated()
    }

    fn take_step<'a>(&'a self, _: &'a Scope, _: NewStep) -> Stored<'a, TakenStep> {
        not_simulated()
    }

    fn drop_step<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, ()> {
        not_simulated()
    }

    fn change_mode<'a>(&'a self, _: &'a Scope, _: &'a str, _: ModeChange) -> Stored<'a, bool> {
        not_simulated()
    }

    fn mode_changes<'a>(&'a self, _: &'a Scope, _: &'a str, _: usize) -> Stored<'a, Option<Vec<ModeChange>>> {
        not_simulated()
    }
}

impl ModeStore for SimStore {
    fn modes<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Mode>> {
        not_simulated()
    }

    fn modes_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Mode>> {
        not_simulated()
    }

    fn put_mode<'a>(&'a self, _: Within<'a>, _: Mode, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn delete_mode<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }
}

impl FileStore for SimStore {
    fn put_file<'a>(&'a self, _: &'a Scope, _: FileRecord, _: Bytes, _: u64) -> Stored<'a, bool> {
        not_simulated()
    }

    fn file<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<FileRecord>> {
        not_simulated()
    }

    fn file_content<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        not_simulated()
    }

    fn files<'a>(&'a self, _: &'a Scope, _: FileListing<'a>, _: u64) -> Stored<'a, Vec<FileRecord>> {
        not_simulated()
    }

    fn delete_file<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        not_simulated()
    }
}

impl KnowledgeStore for SimStore {
    fn count_calls(&self, _: Operator, _: TurnSummary) -> Stored<'_, ()> {
        not_simulated()
    }

    fn collections<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Collection>> {
        not_simulated()
    }

    fn collections_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Collection>> {
        not_simulated()
    }

    fn documents_within<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        not_simulated()
    }

    fn put_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: Option<&'a str>,
        _: Vec<NewDocument>,
        _: u64,
    ) -> Stored<'a, Option<ImportCounts>> {
        not_simulated()
    }

    fn delete_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: &'a [String],
        _: u64,
    ) -> Stored<'a, u64> {
        not_simulated()
    }

    fn delete_collection<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        not_simulated()
    }

    fn search_knowledge<'a>(&'a self, _: &'a Scope, _: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        not_simulated()
    }
}
