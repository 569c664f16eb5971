//! The audit. Each row is appended inside the transaction of its change, one at a time: the installation has a single
//! chain.

use amalgam_core::{
    Actor, AuditDraft, AuditHash, AuditHead, AuditRow, CHAIN_START, Operator, StoreError,
    store::{AuditFilter, AuditStore, Stored},
};

use crate::{
    SqlStore,
    engine::{Repeat, SqlConnection, SqlEngine},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    OperatorSql AUDIT_HEAD = "SELECT number, hash FROM audit_head WHERE id = 1";
    OperatorSql SET_AUDIT_HEAD = "
        INSERT INTO audit_head (id, number, hash) VALUES (1, $1, $2)
        ON CONFLICT (id) DO UPDATE SET number = excluded.number, hash = excluded.hash";
    OperatorSql HAS_AUDIT_ROW = "SELECT number FROM audit WHERE id = $1";
    OperatorSql ADD_AUDIT_ROW = "
        INSERT INTO audit (number, id, at, tenant_id, actor, key_id, user_id, origin, action, object, object_id, before_change,
            after_change, previous, hash)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
    OperatorSql AUDIT_CHAIN = "
        SELECT number, id, at, tenant_id, actor, key_id, user_id, origin, action, object, object_id, before_change,
            after_change, previous, hash
        FROM audit WHERE number > $1 ORDER BY number LIMIT $2";
    /// An empty text as condition matches every row.
    OperatorSql AUDIT = "
        SELECT number, id, at, tenant_id, actor, key_id, user_id, origin, action, object, object_id, before_change,
            after_change, previous, hash
        FROM audit
        WHERE number < $1 AND at >= $2 AND at < $3 AND ($4 = '' OR actor = $4 OR key_id = $4 OR user_id = $4)
            AND ($5 = '' OR object = $5) AND ($6 = '' OR object_id = $6)
        ORDER BY number DESC LIMIT $7";
    OperatorSql AUDIT_OF_TENANT = "
        SELECT number, id, at, tenant_id, actor, key_id, user_id, origin, action, object, object_id, before_change,
            after_change, previous, hash
        FROM audit
        WHERE number < $1 AND at >= $2 AND at < $3 AND ($4 = '' OR actor = $4 OR key_id = $4 OR user_id = $4)
            AND ($5 = '' OR object = $5) AND ($6 = '' OR object_id = $6) AND tenant_id = $8
        ORDER BY number DESC LIMIT $7";
    OperatorSql AUDIT_ROW_OF_TENANT = "SELECT number FROM audit WHERE id = $1 AND tenant_id = $2";
}

/// The name of the lock that orders transactions which append. They take it last, so that they cannot deadlock.
const LOCK: &str = "audit";

/// Appends a row inside a transaction. The same row is appended once: the transaction may run again.
pub(crate) async fn append<C: SqlConnection>(connection: &C, draft: &AuditDraft) -> Result<(), C::Failure> {
    let operator = Operator::of_this_process();
    connection.lock(LOCK.to_owned()).await?;
    if connection.is_repeated() && connection.operator(operator, HAS_AUDIT_ROW, values![&draft.id]).exists().await? {
        return Ok(());
    }
    let head = connection.operator(operator, AUDIT_HEAD, []).first(head).await?;
    let AuditHead { number, hash: previous } = head.unwrap_or(AuditHead { number: 0, hash: CHAIN_START });
    let number = number + 1;
    let hash = draft.hash(number, &previous);
    let Actor { kind, key_id, user, origin } = &draft.actor;
    let values = values![
        number,
        &draft.id,
        draft.at_ms,
        draft.tenant_id,
        kind,
        key_id,
        user,
        origin,
        &draft.action,
        &draft.object,
        &draft.object_id,
        &draft.before,
        &draft.after,
        &previous,
        &hash,
    ];
    connection.operator(operator, ADD_AUDIT_ROW, values).run().await?;
    connection.operator(operator, SET_AUDIT_HEAD, values![number, &hash]).run().await?;
    Ok(())
}

/// Appends a row if there was a change. Returns whether there was one.
pub(crate) async fn append_if<C: SqlConnection>(
    connection: &C,
    changed: bool,
    draft: &AuditDraft,
) -> Result<bool, C::Failure> {
    if changed {
        append(connection, draft).await?;
    }
    Ok(changed)
}

impl<E: SqlEngine> AuditStore for SqlStore<E> {
    fn append_audit(&self, _: Operator, draft: AuditDraft) -> Stored<'_, ()> {
        self.engine.transaction(Repeat::Safe, draft, |connection, draft| {
            Box::pin(async move { append(connection, draft).await })
        })
    }

    fn audit(&self, operator: Operator, filter: AuditFilter, limit: usize) -> Stored<'_, Option<Vec<AuditRow>>> {
        self.engine.read((operator, filter, limit), |connection, (operator, filter, limit)| {
            Box::pin(async move {
                let before = match (&filter.after, filter.tenant_id) {
                    (None, _) => Some(i64::MAX.cast_unsigned()),
                    (Some(id), None) => {
                        connection.operator(*operator, HAS_AUDIT_ROW, values![id]).first(|row| row.get(0)).await?
                    }
                    (Some(id), Some(tenant)) => {
                        let found = connection.operator(*operator, AUDIT_ROW_OF_TENANT, values![id, tenant]);
                        found.first(|row| row.get(0)).await?
                    }
                };
                let Some(before) = before else { return Ok(None) };
                let text = |value: &'_ Option<String>| value.clone().unwrap_or_default();
                let values = values![
                    before,
                    filter.from_ms.unwrap_or_default(),
                    filter.to_ms.unwrap_or(u64::MAX),
                    text(&filter.actor),
                    text(&filter.object),
                    text(&filter.object_id),
                    *limit,
                ];
                let query = match filter.tenant_id {
                    None => connection.operator(*operator, AUDIT, values),
                    Some(tenant) => {
                        connection.operator(*operator, AUDIT_OF_TENANT, values.into_iter().chain(values![tenant]))
                    }
                };
                query.all(row).await.map(Some)
            })
        })
    }

    fn audit_chain(&self, operator: Operator, after: u64, limit: usize) -> Stored<'_, Vec<AuditRow>> {
        self.engine.read((operator, after, limit), |connection, (operator, after, limit)| {
            Box::pin(connection.operator(*operator, AUDIT_CHAIN, values![*after, *limit]).all(row))
        })
    }

    fn audit_head(&self, operator: Operator) -> Stored<'_, Option<AuditHead>> {
        self.engine
            .read(operator, |connection, operator| Box::pin(connection.operator(*operator, AUDIT_HEAD, []).first(head)))
    }
}

fn head(row: &dyn SqlRow) -> Result<AuditHead, StoreError> {
    Ok(AuditHead { number: row.get(0)?, hash: row.get(1)? })
}

fn row(row: &dyn SqlRow) -> Result<AuditRow, StoreError> {
    let hash = |column| row.get::<AuditHash>(column);
    Ok(AuditRow {
        number: row.get(0)?,
        content: AuditDraft {
            id: row.get(1)?,
            at_ms: row.get(2)?,
            tenant_id: row.get(3)?,
            actor: Actor {
                kind: row.get(4)?,
                key_id: row.optional(5)?,
                user: row.optional(6)?,
                origin: row.optional(7)?,
            },
            action: row.get(8)?,
            object: row.get(9)?,
            object_id: row.get(10)?,
            before: row.optional(11)?,
            after: row.optional(12)?,
        },
        previous: hash(13)?,
        hash: hash(14)?,
    })
}
