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

/// Webhook endpoints and deliveries.
pub trait WebhookStore: Send + Sync {
    /// Adds an endpoint, or replaces the one with the same id.
    fn put_endpoint<'a>(&'a self, within: Within<'a>, endpoint: WebhookEndpoint, audit: AuditDraft) -> Stored<'a, ()>;

    /// Deletes an endpoint and its deliveries. Returns whether it existed.
    fn delete_endpoint<'a>(&'a self, within: Within<'a>, id: &'a str, audit: AuditDraft) -> Stored<'a, bool>;

    /// Returns an endpoint; `None` if it does not exist.
    fn endpoint<'a>(&'a self, within: Within<'a>, id: &'a str) -> Stored<'a, Option<WebhookEndpoint>>;

    /// Returns at most `limit` endpoints with ids above `after`, sorted by id.
    fn endpoints<'a>(
        &'a self,
        within: Within<'a>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookEndpoint>>;

    /// Returns at most `limit` deliveries of an endpoint with numbers below `before`, newest first.
    fn deliveries<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        before: Option<u64>,
        limit: usize,
    ) -> Stored<'a, Vec<WebhookDelivery>>;

    /// Enqueues an event for one endpoint, even if it does not receive such events. Returns the delivery's number;
    /// `None` if the endpoint does not exist.
    fn enqueue_delivery<'a>(
        &'a self,
        within: Within<'a>,
        endpoint_id: &'a str,
        event: WebhookEvent,
        now_ms: u64,
    ) -> Stored<'a, Option<u64>>;

    /// Enqueues an event for all endpoints of a tenant that receive such events, and returns how many. Enqueueing the
    /// same event again has no effect.
    fn enqueue_event(&self, operator: Operator, tenant_id: i64, event: WebhookEvent, now_ms: u64) -> Stored<'_, u64>;

    /// Claims for a process the first pending delivery of each endpoint, if it is due; at most `limit` deliveries. A
    /// claim ends with its process.
    fn take_deliveries(
        &self,
        operator: Operator,
        process: ProcessId,
        now_ms: u64,
        limit: usize,
    ) -> Stored<'_, Vec<DueDelivery>>;

    /// Writes the outcome of an attempt and ends the claim.
    fn end_attempt(&self, operator: Operator, attempt: DeliveryAttempt) -> Stored<'_, ()>;

    /// Deletes deliveries that ended and were enqueued before `before_ms`. Returns how many.
    fn prune_deliveries(&self, operator: Operator, before_ms: u64) -> Stored<'_, u64>;
}
