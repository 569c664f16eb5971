//! Webhooks, which no turn asks for.

use amalgam_core::{
    AuditDraft, DeliveryAttempt, DueDelivery, Operator, WebhookDelivery, WebhookEndpoint, WebhookEvent,
    store::{ProcessId, Stored, WebhookStore, Within},
};

use super::store::{SimStore, not_simulated};

impl WebhookStore for SimStore {
    fn put_endpoint<'a>(&'a self, _: Within<'a>, _: WebhookEndpoint, _: AuditDraft) -> Stored<'a, ()> {
        not_simulated()
    }

    fn delete_endpoint<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        not_simulated()
    }

    fn endpoint<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<WebhookEndpoint>> {
        not_simulated()
    }

    fn endpoints<'a>(&'a self, _: Within<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<WebhookEndpoint>> {
        not_simulated()
    }

    fn deliveries<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Vec<WebhookDelivery>> {
        not_simulated()
    }

    fn enqueue_delivery<'a>(&'a self, _: Within<'a>, _: &'a str, _: WebhookEvent, _: u64) -> Stored<'a, Option<u64>> {
        not_simulated()
    }

    fn enqueue_event(&self, _: Operator, _: i64, _: WebhookEvent, _: u64) -> Stored<'_, u64> {
        not_simulated()
    }

    fn take_deliveries(&self, _: Operator, _: ProcessId, _: u64, _: usize) -> Stored<'_, Vec<DueDelivery>> {
        not_simulated()
    }

    fn end_attempt(&self, _: Operator, _: DeliveryAttempt) -> Stored<'_, ()> {
        not_simulated()
    }

    fn prune_deliveries(&self, _: Operator, _: u64) -> Stored<'_, u64> {
        not_simulated()
    }
}
