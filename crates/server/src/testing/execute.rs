//! A store without sessions, modes, files and documents.

use amalgam_core::{
    AuditDraft, BoxFuture, EmbeddedTexts, Embedder, Fault, Retrieval, RetrievalQuery, RetrievalResult, Scope,
    store::{
        AgentSession, AgentTurn, Collection, DocumentListing, DocumentRecord, ExecuteStore, FileListing, FileRecord,
        FileStore, FoundChunk, ImportCounts, KnowledgeQuery, KnowledgeStore, Mode, ModeChange, ModeStore, NewDocument,
        NewStep, Stored, TakenStep, Within,
    },
};
use bytes::Bytes;

use super::{Nothing, gives};

impl ExecuteStore for Nothing {
    fn open_session<'a>(&'a self, _: &'a Scope, _: AgentSession) -> Stored<'a, ()> {
        gives(())
    }

    fn agent_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentSession>> {
        gives(None)
    }

    fn agent_sessions<'a>(&'a self, _: &'a Scope, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentSession>> {
        gives(Vec::new())
    }

    fn delete_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<String>>> {
        gives(None)
    }

    fn agent_turn<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<AgentTurn>> {
        gives(None)
    }

    fn agent_turns<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        gives(None)
    }

    fn take_step<'a>(&'a self, _: &'a Scope, _: NewStep) -> Stored<'a, TakenStep> {
        gives(TakenStep::Missing)
    }

    fn drop_step<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, ()> {
        gives(())
    }

    fn change_mode<'a>(&'a self, _: &'a Scope, _: &'a str, _: ModeChange) -> Stored<'a, bool> {
        gives(false)
    }

    fn mode_changes<'a>(&'a self, _: &'a Scope, _: &'a str, _: usize) -> Stored<'a, Option<Vec<ModeChange>>> {
        gives(None)
    }
}

impl ModeStore for Nothing {
    fn modes<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Mode>> {
        gives(Vec::new())
    }

    fn modes_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Mode>> {
        gives(Vec::new())
    }

    fn put_mode<'a>(&'a self, _: Within<'a>, _: Mode, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }

    fn delete_mode<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }
}

impl FileStore for Nothing {
    fn put_file<'a>(&'a self, _: &'a Scope, _: FileRecord, _: Bytes, _: u64) -> Stored<'a, bool> {
        gives(false)
    }

    fn file<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<FileRecord>> {
        gives(None)
    }

    fn file_content<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<(FileRecord, Bytes)>> {
        gives(None)
    }

    fn files<'a>(&'a self, _: &'a Scope, _: FileListing<'a>, _: u64) -> Stored<'a, Vec<FileRecord>> {
        gives(Vec::new())
    }

    fn delete_file<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        gives(false)
    }
}

impl Retrieval for Nothing {
    fn find<'a>(&'a self, _: &'a Scope, _: RetrievalQuery<'a>) -> BoxFuture<'a, Result<RetrievalResult, Fault>> {
        Box::pin(async { Ok(RetrievalResult::default()) })
    }
}

impl Embedder for Nothing {
    fn embed<'a>(&'a self, _: &'a str, _: &'a [&'a str]) -> BoxFuture<'a, Result<EmbeddedTexts, Fault>> {
        Box::pin(async { Ok(EmbeddedTexts { vectors: Vec::new(), call: None }) })
    }
}

impl KnowledgeStore for Nothing {
    fn count_calls(&self, _: amalgam_core::Operator, _: amalgam_core::TurnSummary) -> Stored<'_, ()> {
        gives(())
    }

    fn collections<'a>(&'a self, _: &'a Scope) -> Stored<'a, Vec<Collection>> {
        gives(Vec::new())
    }

    fn collections_within<'a>(&'a self, _: Within<'a>) -> Stored<'a, Vec<Collection>> {
        gives(Vec::new())
    }

    fn documents_within<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: DocumentListing<'a>,
    ) -> Stored<'a, Vec<DocumentRecord>> {
        gives(Vec::new())
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
        gives(None)
    }

    fn delete_documents<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: &'a str,
        _: &'a [String],
        _: u64,
    ) -> Stored<'a, u64> {
        gives(0)
    }

    fn delete_collection<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, bool> {
        gives(false)
    }

    fn search_knowledge<'a>(&'a self, _: &'a Scope, _: KnowledgeQuery<'a>) -> Stored<'a, Vec<FoundChunk>> {
        gives(Vec::new())
    }
}
