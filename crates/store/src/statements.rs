//! The statements of the shared code whose form differs between engines. Each engine supplies them all; the others are beside
//! the code that runs them.

use crate::{
    agents, approvals, audit, bank, catalogue, console, conversations, courses, execute, files, knowledge, limits,
    modes, session_queue, sessions,
    sql::{Declared, OperatorSql, TenantSql, UserSql},
    tenancy, threads, turn_details, turn_list, webhooks,
};

macro_rules! statement_set {
    ($(#[$doc:meta])* $set:ident { $($(#[$note:meta])* $name:ident: $kind:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $set {
            $($(#[$note])* pub $name: $kind,)+
        }

        impl $set {
            /// Every statement that the engine runs for the shared code, for tests.
            pub fn all(&self) -> Vec<Declared> {
                let own = [$((stringify!($kind), stringify!($name), self.$name.into())),+];
                let shared = [
                    agents::ALL,
                    approvals::ALL,
                    audit::ALL,
                    bank::ALL,
                    catalogue::ALL,
                    console::ALL,
                    conversations::ALL,
                    courses::ALL,
                    execute::ALL,
                    files::ALL,
                    knowledge::ALL,
                    modes::ALL,
                    session_queue::ALL,
                    sessions::ALL,
                    tenancy::ALL,
                    threads::ALL,
                    turn_details::ALL,
                    turn_list::ALL,
                    webhooks::ALL,
                ];
                shared.concat().into_iter().chain(limits::all()).chain(own).collect()
            }
        }
    };
}

statement_set! {
    /// The statements of an engine. The comments name their values, after those of the scope, and their columns. An
    /// engine whose writing transactions run one at a time need not lock anything.
    SqlStatements {
        /// Like `turn_list::TURNS`, but only turns whose input or output matches the last value.
        turns_with_text: TenantSql,
        /// The profile with a slug, locked against changes.
        hold_profile: TenantSql,
        /// The active profiles by slug.
        active_profiles: TenantSql,
        /// The same of those that are not decided and not expired at the last value.
        approvals_pending: TenantSql,
        /// A caller's approval by its id, locked against other decisions.
        hold_approval: UserSql,
        /// A tenant's approval by its id, locked against other decisions.
        hold_approval_of_tenant: TenantSql,
        /// The same, but only those with one of the keys.
        offered_tools: TenantSql,
        /// Adds a conversation with an id, a time and metadata, unless there is one with this id.
        add_conversation: UserSql,
        /// Reserves positions in a conversation, which it locks, and returns the first one; no row if there is no
        /// conversation.
        take_item_positions: UserSql,
        /// Those of several ids that items of a conversation already have.
        taken_item_ids: UserSql,
        /// Adds to a conversation, for each of several items, its position, id and text.
        add_conversation_item: UserSql,
        /// The settings of a response, by the stem of its id and its id.
        response_settings: UserSql,
        /// Replaces the settings of a response that has ended, by the stem of its id and its id.
        replace_response_settings: UserSql,
        /// The courses with one of several ids.
        known_courses: TenantSql,
        /// The bytes of the database.
        size: OperatorSql,
        /// Deletes the courses with one of several ids.
        delete_courses: TenantSql,
        /// Deletes what learners have of courses with one of several ids.
        forget_learners_of_courses: TenantSql,
        /// What a learner has of the courses with one of several ids, with the columns of `catalogue::learner_course`.
        courses_of_learner: UserSql,
        /// At a time, from a JSON array of objects: user, course_id, status, progress, is_eligible, in_playlist.
        put_learner_courses: TenantSql,
        /// From a JSON array of objects: user, course_id.
        delete_learner_courses: TenantSql,
        /// The mode and the number of turns of a session, which is locked against other changes.
        hold_session: UserSql,
        /// Like `files_upwards`, of the purpose that is the last value.
        files_of_purpose_upwards: UserSql,
        /// Like `files_downwards`, of the purpose that is the last value.
        files_of_purpose_downwards: UserSql,
        /// Number and embedding_model of the collection with a name, locked against other changes.
        hold_collection: TenantSql,
        /// Path, number, digest, language, attributes and chunks of the documents of a collection and a source that have one of
        /// several paths.
        known_documents: TenantSql,
        /// Adds documents to a collection and a source at a time, for each: path, language, attributes, digest, chunks.
        /// Returns their paths and numbers.
        add_document: TenantSql,
        /// Deletes the documents with several numbers.
        forget_documents: TenantSql,
        /// For each of several chunks: number, symbol, start_line, end_line, terms, content.
        add_chunk: TenantSql,
        /// For each of several chunks: number and words.
        add_chunk_words: TenantSql,
        /// To a collection, for each of several chunks: number and embedding.
        add_embedding: TenantSql,
        /// Deletes the index words of chunks, for each of several ranges of numbers. Runs before their chunks are
        /// deleted.
        forget_chunk_words: TenantSql,
        /// Deletes chunks, for each of several ranges of numbers.
        forget_chunks: TenantSql,
        /// Deletes embeddings of a collection, for each of several ranges of numbers.
        forget_chunk_embeddings: TenantSql,
        /// For each query and limit, in order, the number of chunks that the full-text index finds, up to the limit.
        count_word: TenantSql,
        /// Number, collection, path, language and attributes of the documents with several numbers.
        document_facts: TenantSql,
        /// Number, start_line and terms of the chunks with several numbers, and the columns above of their documents.
        ranked_chunks: TenantSql,
        /// Number, symbol, end_line and content of the chunks with several numbers.
        chunk_contents: TenantSql,
        /// Chunk and embedding, for each of several pairs of a collection and a chunk.
        embeddings: TenantSql,
        /// The response of a caller's answer, by the id that the upstream gave it.
        response_of_answer: UserSql,
        /// A tenant's response, by the id that the upstream gave it.
        response_of_provider: TenantSql,
        /// The response of a tenant's answer, by the same id.
        response_of_answer_within: TenantSql,
        /// Message, kind and value of the records of several messages, in order.
        message_metadata: TenantSql,
        /// The same for the calls of tools.
        message_tool_calls: TenantSql,
        /// A limit as `limits::LIMIT` reads it, locked against other reservations.
        hold_limit: OperatorSql,
        /// Adds a key, if its tenant exists and its id and hash are free. The hash is the third value.
        add_key: OperatorSql,
        /// For each id and time: records that the key was used.
        touch_key: OperatorSql,
    }
}
