//! Webhook endpoints and the queue of their deliveries.
//!
//! Events of responses and approvals are enqueued by triggers of the database, in the transaction that ends the response or
//! requests the approval, however that happens.

use super::{ProcessId, Stored, Within};
use crate::{
    audit::AuditDraft,
    scope::Operator,
    webhook::{DeliveryAttempt, DueDelivery, WebhookDelivery, WebhookEndpoint, WebhookEvent},
};

/// Webhooks.
pub trait WebhookStore: Send + Sync {
    /// Adds an endpoint, or replaces the one of the same id.
    fn put_endpoint<'a>(&'a self, within: Within<'a>, endpoint: WebhookEndpoint, audit: AuditDraft) -> Stored<'a, ()>;

    /// Deletes an endpoint with its deliveries; whether there was one.
    fn delete_endpoint<'a>(&'a self, within: Within<'a>, id: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// One endpoint.
    fn endpoint<'a>(&'a self, within: Within<'a>, id: &'a str) -> Stored<'a, Option<WebhookEndpoint>>;

    /// Endpoints by id, behind `after`.
    fn endpoints<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookEndpoint>>;

    /// Deliveries of an endpoint, newest first, before the one with this number.
    fn deliveries<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookDelivery>>;

    /// Enqueues an event for one endpoint, whatever events it receives; none if there is no such endpoint.
    fn enqueue_delivery<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        event: WebhookEvent,
        now_ms: u64,
    ) -> Stored<'a, Option<u64>>;

    /// Enqueues an event for all endpoints of a tenant that receive such events; how many. The same event is enqueued once.
    fn enqueue_event(&self, operator: Operator, tenant_id: i64, event: WebhookEvent, now_ms: u64) -> Stored<'_, u64>;

    /// Claims for a process the first pending delivery of each endpoint, if it is due. A claim ends with its process.
    fn take_deliveries(
        &self,
        operator: Operator,
        process: ProcessId,
        now_ms: u64,
        limit: usize,
    ) -> Stored<'_, Vec<DueDelivery>>;

    /// Writes the outcome of an attempt and ends the claim.
    fn end_attempt(&self, operator: Operator, attempt: DeliveryAttempt) -> Stored<'_, ()>;

    /// Deletes deliveries that ended and were enqueued before this time; how many.
    fn prune_deliveries(&self, operator: Operator, before_ms: u64) -> Stored<'_, u64>;
}
