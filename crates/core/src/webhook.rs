//! Webhooks: endpoints of a tenant, events, and their deliveries.
//!
//! The store enqueues an event in the transaction of what happened. A process delivers it later, at least once, in order for
//! each endpoint.

use bytes::Bytes;

use crate::{fault::Fault, ports::BoxFuture};

/// The events that an endpoint can receive. Those of responses are about background turns.
pub const WEBHOOK_EVENTS: [&str; 6] = [
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
    "amalgam.approval.requested",
    "amalgam.budget.reached",
];

/// The event that `POST …/test` sends.
pub const WEBHOOK_TEST: &str = "amalgam.webhook.test";

/// An address that receives events of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// `we_…`
    pub id: String,
    /// The URL that events are sent to.
    pub url: String,
    /// The types of events that are sent, from [`WEBHOOK_EVENTS`].
    pub event_types: Vec<String>,
    /// The signing secret, sealed for the tenant.
    pub secret: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    /// `evt_…`; an endpoint gets an event with the same id once, apart from retries and resends.
    pub id: String,
    /// One of [`WEBHOOK_EVENTS`], or [`WEBHOOK_TEST`].
    pub kind: String,
    /// The field `data`, a JSON object.
    pub data: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

/// The status of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryStatus {
    /// The delivery will be attempted, or attempted again.
    Pending,
    /// The endpoint has accepted it.
    Delivered,
    /// All attempts have failed.
    Failed,
}

impl DeliveryStatus {
    /// The name in the store and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Pending, Self::Delivered, Self::Failed].into_iter().find(|status| status.name() == name)
    }
}

/// An event that is delivered to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// Its place in the queue.
    pub number: u64,
    /// The endpoint.
    pub endpoint_id: String,
    /// The event.
    pub event: WebhookEvent,
    /// When it was enqueued, in milliseconds since 1970.
    pub queued_at_ms: u64,
    /// The status.
    pub status: DeliveryStatus,
    /// The number of attempts.
    pub attempts: u64,
    /// When it is tried next, in milliseconds since 1970.
    pub next_at_ms: u64,
    /// The HTTP status of the last answer.
    pub last_status: Option<u64>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it was accepted, in milliseconds since 1970.
    pub delivered_at_ms: Option<u64>,
}

/// A delivery that a process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    /// The tenant.
    pub tenant_id: i64,
    /// The URL of the endpoint.
    pub url: String,
    /// The endpoint's sealed secret.
    pub secret: String,
    /// The delivery.
    pub delivery: WebhookDelivery,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The delivery's place in the queue.
    pub number: u64,
    /// The new status.
    pub status: DeliveryStatus,
    /// The HTTP status of the answer.
    pub answer: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// When it is tried next, in milliseconds since 1970.
    pub next_at_ms: u64,
}

/// The guarded way to endpoints.
pub trait WebhookSender: Send + Sync {
    /// Whether events can be sent to this address.
    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>>;

    /// Posts a JSON body. Returns the HTTP status, or the reason why there is none.
    fn post<'a>(
        &'a self,
        url: &'a str,
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    ) -> BoxFuture<'a, Result<u16, String>>;
}
