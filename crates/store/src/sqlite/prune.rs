//! What need not be kept any longer, and everything that can be forgotten at once.

use amalgam_core::{
    Operator, Stem,
    store::{Pruned, Reset, Retention},
};

use super::{
    failure::Failure,
    files,
    job::Transaction,
    query::{int, owner_of},
    responses,
    sql::{self, OperatorSql},
};

/// Of each kind so many go at once: others wait for the writer meanwhile.
const AT_ONCE: i64 = 200;
/// Streams and responses take several statements each.
const WHOLE_AT_ONCE: i64 = 50;

pub(super) fn prune(
    transaction: &Transaction<'_>,
    operator: Operator,
    retention: Retention,
) -> Result<Pruned, Failure> {
    let database = transaction.database;
    let mut rows = 0;

    let before = int(retention.events_before_ms)?;
    let streams = database
        .operator(operator, sql::OLD_STREAMS, &[&before, &WHOLE_AT_ONCE])?
        .all(|row| Ok((row.get::<_, i64>(0)?, owner_of(row.get(1)?, row.get(2)?, None)?, row.get::<_, String>(3)?)))?;
    for (number, scope, id) in streams {
        rows += database.user(&scope, sql::FORGET_EVENTS, &[&id])?.run()?;
        // Says that there are none, so that they are not searched again.
        rows += database.operator(operator, sql::STREAM_IS_GONE, &[&number])?.run()?;
    }

    let before = int(retention.transcripts_before_ms)?;
    for statement in [sql::OLD_TRANSCRIPTS, sql::OLD_RUNS, sql::OLD_APPROVALS] {
        rows += database.operator(operator, statement, &[&before, &AT_ONCE])?.run()?;
    }
    let before = int(retention.claims_before_ms)?;
    rows += database.operator(operator, sql::OLD_CLAIMS, &[&before, &AT_ONCE])?.run()?;

    rows += files::prune(database, operator, int(retention.files_before_ms)?, WHOLE_AT_ONCE)?;

    if let Some(before) = retention.responses_before_ms {
        let old = database
            .operator(operator, sql::OLD_RESPONSES, &[&int(before)?, &WHOLE_AT_ONCE])?
            .all(|row| Ok((owner_of(row.get(0)?, row.get(1)?, None)?, row.get::<_, String>(2)?)))?;
        for (scope, id) in old {
            if let Some(stem) = Stem::of(&id) {
                rows += u64::from(responses::forget(transaction, &scope, stem, &id)?);
            }
        }
    }
    Ok(Pruned { rows })
}

/// What turns and callers have written: the whole table, and the rows of one tenant.
const RUNTIME: [(OperatorSql, OperatorSql); 18] = [
    (sql::RESET_RESPONSES, sql::RESET_RESPONSES_OF),
    (sql::RESET_ITEMS, sql::RESET_ITEMS_OF),
    (sql::RESET_EVENTS, sql::RESET_EVENTS_OF),
    (sql::RESET_TRANSCRIPTS, sql::RESET_TRANSCRIPTS_OF),
    (sql::RESET_RUNS, sql::RESET_RUNS_OF),
    (sql::RESET_APPROVALS, sql::RESET_APPROVALS_OF),
    (sql::RESET_CLAIMS, sql::RESET_CLAIMS_OF),
    (sql::RESET_CONVERSATIONS, sql::RESET_CONVERSATIONS_OF),
    (sql::RESET_CONVERSATION_ITEMS, sql::RESET_CONVERSATION_ITEMS_OF),
    (sql::RESET_QUEUES, sql::RESET_QUEUES_OF),
    (sql::RESET_METADATA, sql::RESET_METADATA_OF),
    (sql::RESET_MESSAGES, sql::RESET_MESSAGES_OF),
    (sql::RESET_SESSIONS, sql::RESET_SESSIONS_OF),
    (sql::RESET_MODE_CHANGES, sql::RESET_MODE_CHANGES_OF),
    (sql::RESET_STEPS, sql::RESET_STEPS_OF),
    (sql::RESET_AGENT_SESSIONS, sql::RESET_AGENT_SESSIONS_OF),
    (sql::RESET_CONTENTS, sql::RESET_CONTENTS_OF),
    (sql::RESET_FILES, sql::RESET_FILES_OF),
];

/// What assistants are made of: the whole table, and the rows of one tenant.
const ASSISTANTS: [(OperatorSql, OperatorSql); 4] = [
    (sql::RESET_TOOLS, sql::RESET_TOOLS_OF),
    (sql::RESET_CONFIGS, sql::RESET_CONFIGS_OF),
    (sql::RESET_PROFILES, sql::RESET_PROFILES_OF),
    (sql::RESET_VERSIONS, sql::RESET_VERSIONS_OF),
];

/// What else there is. Processes stay: those that live go on living.
const REST: [OperatorSql; 11] = [
    sql::RESET_MODES,
    sql::RESET_COURSES,
    sql::RESET_WORDS,
    sql::RESET_COLLECTIONS,
    sql::RESET_DOCUMENTS,
    sql::RESET_CHUNKS,
    sql::RESET_EMBEDDINGS,
    sql::RESET_CHUNK_WORDS,
    sql::RESET_KEYS,
    sql::RESET_TENANTS,
    sql::RESET_MEMORY,
];

/// Removes what `what` names.
pub(super) fn reset(transaction: &Transaction<'_>, operator: Operator, what: &Reset) -> Result<(), Failure> {
    let database = transaction.database;
    let (tables, tenants): (Vec<_>, &[i64]) = match what {
        Reset::Runtime(tenants) => (RUNTIME.to_vec(), tenants),
        Reset::Assistants(tenants) => (RUNTIME.into_iter().chain(ASSISTANTS).collect(), tenants),
        Reset::Everything => (RUNTIME.into_iter().chain(ASSISTANTS).collect(), &[]),
    };
    for (whole, of_tenant) in tables {
        if tenants.is_empty() {
            database.operator(operator, whole, &[])?.run()?;
        }
        for tenant_id in tenants {
            database.operator(operator, of_tenant, &[tenant_id])?.run()?;
        }
    }
    for statement in REST.into_iter().filter(|_| *what == Reset::Everything) {
        database.operator(operator, statement, &[])?.run()?;
    }
    Ok(())
}
