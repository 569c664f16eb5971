//! A store without webhooks, and a sender that sends nothing.

use amalgam_core::{
    AuditDraft, BoxFuture, DeliveryAttempt, DueDelivery, Fault, Operator, WebhookDelivery, WebhookEndpoint,
    WebhookEvent, WebhookSender,
    store::{ProcessId, Stored, WebhookStore, Within},
};
use bytes::Bytes;

use super::{Nothing, gives};

impl WebhookStore for Nothing {
    fn put_endpoint<'a>(&'a self, _: Within<'a>, _: WebhookEndpoint, _: AuditDraft) -> Stored<'a, ()> {
        gives(())
    }

    fn delete_endpoint<'a>(&'a self, _: Within<'a>, _: &'a str, _: AuditDraft) -> Stored<'a, bool> {
        gives(false)
    }

    fn endpoint<'a>(&'a self, _: Within<'a>, _: &'a str) -> Stored<'a, Option<WebhookEndpoint>> {
        gives(None)
    }

    fn endpoints<'a>(&'a self, _: Within<'a>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<WebhookEndpoint>> {
        gives(Vec::new())
    }

    fn deliveries<'a>(
        &'a self,
        _: Within<'a>,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Vec<WebhookDelivery>> {
        gives(Vec::new())
    }

    fn enqueue_delivery<'a>(&'a self, _: Within<'a>, _: &'a str, _: WebhookEvent, _: u64) -> Stored<'a, Option<u64>> {
        gives(None)
    }

    fn enqueue_event(&self, _: Operator, _: i64, _: WebhookEvent, _: u64) -> Stored<'_, u64> {
        gives(0)
    }

    fn take_deliveries(&self, _: Operator, _: ProcessId, _: u64, _: usize) -> Stored<'_, Vec<DueDelivery>> {
        gives(Vec::new())
    }

    fn end_attempt(&self, _: Operator, _: DeliveryAttempt) -> Stored<'_, ()> {
        gives(())
    }

    fn prune_deliveries(&self, _: Operator, _: u64) -> Stored<'_, u64> {
        gives(0)
    }
}

impl WebhookSender for Nothing {
    fn check<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn post<'a>(&'a self, _: &'a str, _: Vec<(&'static str, String)>, _: Bytes) -> BoxFuture<'a, Result<u16, String>> {
        Box::pin(async { Err("nothing is sent here".to_owned()) })
    }
}
