//! Methods of the store that a simulation never calls: sessions, modes, files, knowledge.

use amalgam_core::{
    Scope,
    store::{
        AgentSession, AgentTurn, Collection, DocumentListing, DocumentRecord, ExecuteStore, FileListing, FileRecord,
        FileStore, FoundChunk, ImportCounts, KnowledgeQuery, KnowledgeStore, Mode, ModeChange, ModeStore, NewDocument,
        NewStep, Stored, TakenStep, Within,
    },
};
use bytes::Bytes;

use super::store::{SimStore, nobody_asks};

impl ExecuteStore for SimStore {
    fn open_session<'a>(&'a self, _: &'a Scope, _: AgentSession) -> Stored<'a, ()> {
        nobody_asks()
    }

    fn agent_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentSession>> {
        nobody_asks()
    }

    fn agent_sessions<'a>(&'a self, _: &'a Scope, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentSession>> {
        nobody_asks()
    }

    fn delete_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<String>>> {
        nobody_asks()
    }

    fn agent_turn<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<AgentTurn>> {
        nobody_asks()
    }

    fn agent_turns<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        nobody_asks()
    }

    fn take_step<'a>(&'a self, _: &'a Scope, _: NewStep) -> Stored<'a, TakenStep> {
        nobody_asks()
    }

    fn drop_step<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, ()> {
        nobody_asks()
    }

    fn change_mode<'a>(&'a self, _: &'a Scope, _: &'a str, _: ModeChange) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn mode_changes<'a>(&'a self, _: &'a Scope, _: &'a str, _: usize) -> Stored<'a, Option<Vec<ModeChange>>> {
        nobody_asks()
    }
}

impl ModeStore for SimStore {
    fn modes<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Mode>> {
        nobody_asks()
    }

    fn modes_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Mode>> {
        nobody_asks()
    }

    fn put_mode<'a>(&'a self, _: Within<'a>, _: Mode) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn delete_mode<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        nobody_asks()
    }
}

impl FileStore for SimStore {
    fn put_file<'a>(&'a self, _: &'a Scope, _: FileRecord, _: Bytes, _: u64) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn file<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<FileRecord>> {
        nobody_asks()
    }

    fn file_content<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        nobody_asks()
    }

    fn files<'a>(&'a self, _: &'a Scope, _: FileListing<'a>, _: u64) -> Stored<'a, Vec<FileRecord>> {
        nobody_asks()
    }

    fn delete_file<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        nobody_asks()
    }
}

impl KnowledgeStore for SimStore {
    fn collections<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Collection>> {
        nobody_asks()
    }

    fn collections_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Collection>> {
        nobody_asks()
    }

    fn documents_within<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        nobody_asks()
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
        nobody_asks()
    }

    fn delete_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: &'a [String],
        _: u64,
    ) -> Stored<'a, u64> {
        nobody_asks()
    }

    fn delete_collection<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        nobody_asks()
    }

    fn search_knowledge<'a>(&'a self, _: &'a Scope, _: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        nobody_asks()
    }
}
