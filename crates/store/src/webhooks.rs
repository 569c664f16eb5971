//! Webhook endpoints and the queue of their deliveries.

use amalgam_core::{
    AuditDraft, DeliveryAttempt, DeliveryStatus, DueDelivery, Operator, StoreError, WebhookDelivery, WebhookEndpoint,
    WebhookEvent,
    store::{ProcessId, Stored, WebhookStore, Within},
};

use crate::{
    SqlStore, audit,
    engine::{Repeat, SqlConnection, SqlEngine, TenantKey},
    rows::{self, process_bytes, unknown},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql PUT_ENDPOINT = "
        INSERT INTO webhook_endpoints (tenant_id, id, url, event_types, secret, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (tenant_id, id) DO UPDATE SET url = excluded.url, event_types = excluded.event_types,
            secret = excluded.secret, updated_at = excluded.updated_at";
    TenantSql ENDPOINT = "
        SELECT id, url, event_types, secret, created_at, updated_at FROM webhook_endpoints WHERE tenant_id = $1 AND id = $2";
    TenantSql ENDPOINTS = "
        SELECT id, url, event_types, secret, created_at, updated_at FROM webhook_endpoints
        WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3";
    TenantSql FORGET_ENDPOINT = "DELETE FROM webhook_endpoints WHERE tenant_id = $1 AND id = $2";
    TenantSql FORGET_DELIVERIES = "DELETE FROM webhook_deliveries WHERE tenant_id = $1 AND endpoint_id = $2";
    TenantSql DELIVERIES = "
        SELECT number, endpoint_id, event_id, event_type, data, event_at, queued_at, status, attempts, next_at, last_status,
            last_error, delivered_at
        FROM webhook_deliveries WHERE tenant_id = $1 AND endpoint_id = $2 AND number < $3 ORDER BY number DESC LIMIT $4";
    TenantSql ENQUEUE_DELIVERY = "
        INSERT INTO webhook_deliveries (tenant_id, endpoint_id, event_id, event_type, data, event_at, queued_at, next_at)
        SELECT tenant_id, id, CAST($3 AS text), CAST($4 AS text), CAST($5 AS text), CAST($6 AS bigint), CAST($7 AS bigint),
            CAST($7 AS bigint)
        FROM webhook_endpoints WHERE tenant_id = $1 AND id = $2
        RETURNING number";
    TenantSql ENQUEUE_EVENT = "
        INSERT INTO webhook_deliveries (tenant_id, endpoint_id, event_id, event_type, data, event_at, queued_at, next_at)
        SELECT tenant_id, id, CAST($2 AS text), CAST($3 AS text), CAST($4 AS text), CAST($5 AS bigint), CAST($6 AS bigint),
            CAST($6 AS bigint)
        FROM webhook_endpoints
        WHERE tenant_id = $1 AND event_types LIKE '%,' || CAST($3 AS text) || ',%' AND NOT EXISTS (
            SELECT 1 FROM webhook_deliveries AS known
            WHERE known.tenant_id = $1 AND known.endpoint_id = webhook_endpoints.id AND known.event_id = CAST($2 AS text)
        )";
    /// The first pending delivery of each endpoint, if it is due and no living process has it.
    OperatorSql DUE_DELIVERIES = "
        SELECT head.number FROM webhook_deliveries AS head
        WHERE head.status = 'pending' AND head.next_at <= $1
            AND (head.process IS NULL OR head.process NOT IN (SELECT id FROM processes))
            AND NOT EXISTS (
                SELECT 1 FROM webhook_deliveries AS earlier
                WHERE earlier.tenant_id = head.tenant_id AND earlier.endpoint_id = head.endpoint_id
                    AND earlier.status = 'pending' AND earlier.number < head.number
            )
        ORDER BY head.number LIMIT $2";
    OperatorSql CLAIM_DELIVERY = "UPDATE webhook_deliveries SET process = $2 WHERE number = $1";
    OperatorSql CLAIMED_DELIVERY = "
        SELECT d.number, d.endpoint_id, d.event_id, d.event_type, d.data, d.event_at, d.queued_at, d.status, d.attempts,
            d.next_at, d.last_status, d.last_error, d.delivered_at, d.tenant_id, e.url, e.secret
        FROM webhook_deliveries AS d JOIN webhook_endpoints AS e ON e.tenant_id = d.tenant_id AND e.id = d.endpoint_id
        WHERE d.number = $1";
    OperatorSql END_ATTEMPT = "
        UPDATE webhook_deliveries SET process = NULL, status = $2, attempts = attempts + 1, last_status = $3,
            last_error = $4, delivered_at = $5, next_at = $6
        WHERE number = $1";
    OperatorSql OLD_DELIVERIES = "DELETE FROM webhook_deliveries WHERE status <> 'pending' AND queued_at < $1";
}

/// Enqueues an event about a budget inside a transaction, once for each endpoint of the tenant that receives it.
pub(crate) async fn enqueue_budget_event<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    event_id: &str,
    data: &str,
    now_ms: u64,
) -> Result<(), C::Failure> {
    let values = values![event_id, "amalgam.budget.reached", data, now_ms, now_ms];
    connection.tenant(tenant, ENQUEUE_EVENT, values).run().await.map(drop)
}

/// The name of the lock that orders processes which claim deliveries.
const LOCK: &str = "webhook deliveries";

impl<E: SqlEngine> WebhookStore for SqlStore<E> {
    fn put_endpoint<'a>(&'a self, within: Within<'a>, endpoint: WebhookEndpoint, audit: AuditDraft) -> Stored<'a, ()> {
        let arguments = (TenantKey::within(within), endpoint, audit);
        self.engine.transaction(Repeat::Safe, arguments, |connection, (tenant, endpoint, audit)| {
            Box::pin(async move {
                let values = values![
                    &endpoint.id,
                    &endpoint.url,
                    format!(",{},", endpoint.event_types.join(",")),
                    &endpoint.secret,
                    endpoint.created_at_ms,
                    endpoint.updated_at_ms,
                ];
                connection.tenant(*tenant, PUT_ENDPOINT, values).run().await?;
                audit::append(connection, audit).await
            })
        })
    }

    fn delete_endpoint<'a>(&'a self, within: Within<'a>, id: &'a str, audit: AuditDraft) -> Stored<'a, bool> {
        let arguments = (TenantKey::within(within), id.to_owned(), audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, id, audit)| {
            Box::pin(async move {
                let deleted = connection.tenant(*tenant, FORGET_ENDPOINT, values![id]).run().await? == 1;
                connection.tenant(*tenant, FORGET_DELIVERIES, values![id]).run().await?;
                audit::append_if(connection, deleted, audit).await
            })
        })
    }

    fn endpoint<'a>(&'a self, within: Within<'a>, id: &'a str) -> Stored<'a, Option<WebhookEndpoint>> {
        self.engine.read((TenantKey::within(within), id.to_owned()), |connection, (tenant, id)| {
            Box::pin(connection.tenant(*tenant, ENDPOINT, values![id]).first(endpoint))
        })
    }

    fn endpoints<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookEndpoint>> {
        let arguments = (TenantKey::within(within), after.unwrap_or_default().to_owned(), limit);
        self.engine.read(arguments, |connection, (tenant, after, limit)| {
            Box::pin(connection.tenant(*tenant, ENDPOINTS, values![after, *limit]).all(endpoint))
        })
    }

    fn deliveries<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookDelivery>> {
        let arguments = (TenantKey::within(within), endpoint_id.to_owned(), before.unwrap_or(u64::MAX), limit);
        self.engine.read(arguments, |connection, (tenant, endpoint_id, before, limit)| {
            Box::pin(connection.tenant(*tenant, DELIVERIES, values![endpoint_id, *before, *limit]).all(delivery))
        })
    }

    fn enqueue_delivery<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        event: WebhookEvent,
        now_ms: u64,
    ) -> Stored<'a, Option<u64>> {
        let arguments = (TenantKey::within(within), endpoint_id.to_owned(), event, now_ms);
        self.engine.change(Repeat::Never, arguments, |connection, (tenant, endpoint_id, event, now_ms)| {
            let values = values![endpoint_id, &event.id, &event.kind, &event.data, event.created_at_ms, *now_ms];
            Box::pin(connection.tenant(*tenant, ENQUEUE_DELIVERY, values).first(|row| row.get(0)))
        })
    }

    fn enqueue_event(&self, operator: Operator, tenant_id: i64, event: WebhookEvent, now_ms: u64) -> Stored<'_, u64> {
        let arguments = (TenantKey::of_row(operator, tenant_id), event, now_ms);
        self.engine.change(Repeat::Safe, arguments, |connection, (tenant, event, now_ms)| {
            let values = values![&event.id, &event.kind, &event.data, event.created_at_ms, *now_ms];
            Box::pin(connection.tenant(*tenant, ENQUEUE_EVENT, values).run())
        })
    }

    fn take_deliveries(
        &self,
        operator: Operator,
        process: ProcessId,
        now_ms: u64,
        limit: usize,
    ) -> Stored<'_, Vec<DueDelivery>> {
        Box::pin(async move {
            // Most of the time nothing is due, and a look costs less than a transaction that writes.
            let arguments = (operator, now_ms);
            let due = self.engine.read(arguments, |connection, (operator, now_ms)| {
                let limit = 1_usize;
                Box::pin(connection.operator(*operator, DUE_DELIVERIES, values![*now_ms, limit]).exists())
            });
            if !due.await? {
                return Ok(Vec::new());
            }
            let arguments = (operator, process, now_ms, limit);
            let taken =
                self.engine.transaction(Repeat::Never, arguments, |connection, (operator, process, now_ms, limit)| {
                    Box::pin(async move {
                        connection.lock(LOCK.to_owned()).await?;
                        let due = connection.operator(*operator, DUE_DELIVERIES, values![*now_ms, *limit]);
                        let mut taken = Vec::new();
                        for number in due.all(|row| row.get::<u64>(0)).await? {
                            let claim = values![number, process_bytes(*process)];
                            connection.operator(*operator, CLAIM_DELIVERY, claim).run().await?;
                            taken.extend(
                                connection
                                    .operator(*operator, CLAIMED_DELIVERY, values![number])
                                    .first(claimed)
                                    .await?,
                            );
                        }
                        Ok(taken)
                    })
                });
            taken.await
        })
    }

    fn end_attempt(&self, operator: Operator, attempt: DeliveryAttempt) -> Stored<'_, ()> {
        self.engine.change(Repeat::Never, (operator, attempt), |connection, (operator, attempt)| {
            Box::pin(async move {
                let delivered_at = (attempt.status == DeliveryStatus::Delivered).then_some(attempt.at_ms);
                let error = attempt.error.as_deref().map(rows::storable);
                let values = values![
                    attempt.number,
                    attempt.status.name(),
                    attempt.answer,
                    error,
                    delivered_at,
                    attempt.next_at_ms,
                ];
                connection.operator(*operator, END_ATTEMPT, values).run().await.map(drop)
            })
        })
    }

    fn prune_deliveries(&self, operator: Operator, before_ms: u64) -> Stored<'_, u64> {
        self.engine.change(Repeat::Safe, (operator, before_ms), |connection, (operator, before_ms)| {
            Box::pin(connection.operator(*operator, OLD_DELIVERIES, values![*before_ms]).run())
        })
    }
}

fn endpoint(row: &dyn SqlRow) -> Result<WebhookEndpoint, StoreError> {
    let event_types: &str = row.get(2)?;
    Ok(WebhookEndpoint {
        id: row.get(0)?,
        url: row.get(1)?,
        event_types: event_types.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        secret: row.get(3)?,
        created_at_ms: row.get(4)?,
        updated_at_ms: row.get(5)?,
    })
}

fn delivery(row: &dyn SqlRow) -> Result<WebhookDelivery, StoreError> {
    let status: &str = row.get(7)?;
    Ok(WebhookDelivery {
        number: row.get(0)?,
        endpoint_id: row.get(1)?,
        event: WebhookEvent { id: row.get(2)?, kind: row.get(3)?, data: row.get(4)?, created_at_ms: row.get(5)? },
        queued_at_ms: row.get(6)?,
        status: DeliveryStatus::named(status).ok_or_else(|| unknown("status of a delivery", status))?,
        attempts: row.get(8)?,
        next_at_ms: row.get(9)?,
        last_status: row.optional(10)?,
        last_error: row.optional(11)?,
        delivered_at_ms: row.optional(12)?,
    })
}

fn claimed(row: &dyn SqlRow) -> Result<DueDelivery, StoreError> {
    Ok(DueDelivery { tenant_id: row.get(13)?, url: row.get(14)?, secret: row.get(15)?, delivery: delivery(row)? })
}
