//! Webhook endpoints of a tenant and their deliveries, for its administrators; and the delivery itself.

mod delivery;

use amalgam_app::{Application, no_such_cursor, not_found};
use amalgam_core::{
    Actor, AuditAction, Fault, FaultKind, IdKind, Ids, Operator, Scope, Seal, WEBHOOK_EVENTS, WEBHOOK_TEST,
    WebhookDelivery, WebhookEndpoint, WebhookEvent, WebhookSender, store::Page,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Administration,
    access::{known_id, within},
    audit::snapshot,
    fields::{Line, Texts, UnixSeconds, Verbatim},
    list::List,
    request::{self, missing, wrong},
};

pub use delivery::deliver_webhooks;

/// The endpoint in not-found errors.
const ENDPOINT: &str = "Webhook endpoint";
/// The delivery in not-found errors.
const DELIVERY: &str = "Webhook delivery";

const CREATE: AuditAction = AuditAction::new("webhook_endpoint.create");
const CHANGE: AuditAction = AuditAction::new("webhook_endpoint.change");
const ROTATE: AuditAction = AuditAction::new("webhook_endpoint.rotate_secret");
const DELETE: AuditAction = AuditAction::new("webhook_endpoint.delete");

/// The maximum number of endpoints of a tenant.
const MAX_ENDPOINTS: usize = 50;
/// The beginning of a signing secret.
pub const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: usize = 32;
/// The beginning of a delivery's id.
const DELIVERY_PREFIX: &str = "whd_";

/// An address that receives events.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookEndpoint")]
pub struct EndpointView {
    id: String,
    #[schemars(extend("const" = "webhook_endpoint"))]
    object: &'static str,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
    /// Where events are sent.
    url: String,
    /// The events that are sent.
    #[schemars(extend("items" = {"enum": WEBHOOK_EVENTS}))]
    event_types: Vec<String>,
}

/// An endpoint with its signing secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewWebhookEndpoint")]
pub struct NewEndpointView {
    #[serde(flatten)]
    endpoint: EndpointView,
    /// The secret of the signatures. It is only returned once.
    signing_secret: String,
}

/// An endpoint to create.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CreateWebhookEndpoint")]
pub(super) struct CreateEndpoint {
    /// An `https` URL, or one of `[egress] allow_private`.
    url: Line<2000>,
    /// The events to send.
    #[schemars(with = "Vec<String>", extend("minItems" = 1, "items" = {"enum": WEBHOOK_EVENTS}))]
    event_types: Texts,
}

/// The fields to change. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UpdateWebhookEndpoint")]
pub(super) struct ChangeEndpoint {
    /// An `https` URL, or one of `[egress] allow_private`.
    url: Option<Line<2000>>,
    /// The events to send.
    #[schemars(with = "Option<Vec<String>>", extend("minItems" = 1, "items" = {"enum": WEBHOOK_EVENTS}))]
    event_types: Option<Texts>,
}

/// An event on its way to an endpoint.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookDelivery")]
pub struct DeliveryView {
    id: String,
    #[schemars(extend("const" = "webhook_endpoint.delivery"))]
    object: &'static str,
    endpoint_id: String,
    created_at: UnixSeconds,
    #[schemars(extend("enum" = ["pending", "delivered", "failed"]))]
    status: &'static str,
    /// How often it was sent.
    attempts: u64,
    /// When it is sent next; null if it is not.
    next_attempt_at: Option<UnixSeconds>,
    delivered_at: Option<UnixSeconds>,
    /// The HTTP status of the last answer.
    #[schemars(with = "Option<i64>")]
    last_status_code: Option<u64>,
    /// Why the last attempt failed.
    last_error: Option<String>,
    /// The event that is sent.
    event: EventView,
}

// What is sent.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct EventView {
    id: String,
    #[schemars(extend("const" = "event"))]
    object: &'static str,
    created_at: UnixSeconds,
    #[serde(rename = "type")]
    kind: String,
    /// What the event is about.
    #[schemars(extend("type" = "object"))]
    data: Option<Verbatim>,
}

/// Access to the webhooks of one tenant.
pub struct Webhooks<'a> {
    /// The store, and the actor of changes.
    pub administration: Administration<'a>,
    /// Seals signing secrets.
    pub seal: &'a dyn Seal,
    /// Checks addresses.
    pub sender: &'a dyn WebhookSender,
    /// An administrator of the tenant.
    pub tenant: &'a Scope,
}

impl<'a> Webhooks<'a> {
    /// Access for an actor to the webhooks of a tenant.
    pub fn new(app: &'a Application, actor: Actor, tenant: &'a Scope) -> Self {
        let administration = Administration::new(app, actor);
        Self { administration, seal: &*app.seal, sender: &*app.webhook_sender, tenant }
    }

    /// Endpoints ordered by id.
    pub async fn list(&self, page: &Page) -> Result<List<EndpointView, String>, Fault> {
        let store = self.administration.store;
        let found = store.endpoints(within(self.tenant)?, page.after.as_deref(), page.limit + 1).await?;
        Ok(List::new(found.into_iter().map(EndpointView::from).collect(), page.limit, |one| one.id.clone()))
    }

    /// One endpoint.
    pub async fn endpoint(&self, id: &str) -> Result<EndpointView, Fault> {
        Ok(self.find(id).await?.into())
    }

    /// Creates the endpoint that `body` describes. Only the result contains the secret.
    pub async fn create(&self, body: &Bytes) -> Result<NewEndpointView, Fault> {
        let within = within(self.tenant)?;
        let CreateEndpoint { url, event_types } = request::parse(body)?;
        let event_types = events(event_types)?;
        self.sender.check(&url.0).await?;
        if self.administration.store.endpoints(within, None, MAX_ENDPOINTS).await?.len() >= MAX_ENDPOINTS {
            let message = format!("A tenant has at most {MAX_ENDPOINTS} webhook endpoints.");
            return Err(Fault::new(FaultKind::Conflict, message));
        }
        let now_ms = self.administration.now_ms;
        let (shown, secret) = self.new_secret();
        let id = Ids::Unguessable.make(IdKind::WebhookEndpoint);
        let endpoint =
            WebhookEndpoint { id, url: url.0, event_types, secret, created_at_ms: now_ms, updated_at_ms: now_ms };
        self.put(None, &endpoint, CREATE).await?;
        Ok(NewEndpointView { endpoint: endpoint.into(), signing_secret: shown })
    }

    /// Changes the fields that `body` names.
    pub async fn change(&self, id: &str, body: &Bytes) -> Result<EndpointView, Fault> {
        let before = self.find(id).await?;
        let ChangeEndpoint { url, event_types } = request::parse(body)?;
        let mut endpoint = before.clone();
        if let Some(url) = url {
            self.sender.check(&url.0).await?;
            endpoint.url = url.0;
        }
        if let Some(event_types) = event_types {
            endpoint.event_types = events(event_types)?;
        }
        endpoint.updated_at_ms = self.administration.now_ms;
        self.put(Some(before), &endpoint, CHANGE).await?;
        Ok(endpoint.into())
    }

    /// Replaces the signing secret, from the next attempt on. Only the result contains it.
    pub async fn rotate_secret(&self, id: &str) -> Result<NewEndpointView, Fault> {
        let before = self.find(id).await?;
        let (shown, secret) = self.new_secret();
        let endpoint = WebhookEndpoint { secret, updated_at_ms: self.administration.now_ms, ..before.clone() };
        self.put(Some(before), &endpoint, ROTATE).await?;
        Ok(NewEndpointView { endpoint: endpoint.into(), signing_secret: shown })
    }

    /// Deletes an endpoint and its deliveries.
    pub async fn delete(&self, id: &str) -> Result<(), Fault> {
        let before = self.find(id).await?;
        let audit = self.administration.change(self.tenant.tenant_id(), DELETE, id);
        let audit = audit.before(snapshot(&EndpointView::from(before)));
        match self.administration.store.delete_endpoint(within(self.tenant)?, id, audit).await? {
            true => Ok(()),
            false => Err(not_found(ENDPOINT, id)),
        }
    }

    /// Sends a test event, even if the endpoint does not receive such events.
    pub async fn test(&self, id: &str) -> Result<DeliveryView, Fault> {
        let endpoint = self.find(id).await?;
        let event = WebhookEvent {
            id: Ids::Unguessable.make(IdKind::WebhookEvent),
            kind: WEBHOOK_TEST.to_owned(),
            data: json!({"id": endpoint.id}).to_string(),
            created_at_ms: self.administration.now_ms,
        };
        self.enqueue(id, event).await
    }

    /// Deliveries of an endpoint, newest first.
    pub async fn deliveries(&self, id: &str, page: &Page) -> Result<List<DeliveryView, String>, Fault> {
        let endpoint = self.find(id).await?;
        let before = match page.after.as_deref() {
            Some(after) => Some(number_of(after).ok_or_else(|| no_such_cursor("after", after))?),
            None => None,
        };
        let store = self.administration.store;
        let found = store.deliveries(within(self.tenant)?, &endpoint.id, before, page.limit + 1).await?;
        Ok(List::new(found.into_iter().map(DeliveryView::from).collect(), page.limit, |one| one.id.clone()))
    }

    /// Sends the event of a delivery again, as a new delivery.
    pub async fn resend(&self, id: &str, delivery_id: &str) -> Result<DeliveryView, Fault> {
        let endpoint = self.find(id).await?;
        let absent = || not_found(DELIVERY, delivery_id);
        let found = self.delivery(&endpoint.id, number_of(delivery_id).ok_or_else(absent)?).await?;
        self.enqueue(id, found.ok_or_else(absent)?.event).await
    }

    async fn enqueue(&self, id: &str, event: WebhookEvent) -> Result<DeliveryView, Fault> {
        let (store, within, now_ms) = (self.administration.store, within(self.tenant)?, self.administration.now_ms);
        let number = store.enqueue_delivery(within, id, event, now_ms).await?;
        let absent = || not_found(ENDPOINT, id);
        let delivery = self.delivery(id, number.ok_or_else(absent)?).await?;
        Ok(delivery.ok_or_else(absent)?.into())
    }

    async fn delivery(&self, endpoint_id: &str, number: u64) -> Result<Option<WebhookDelivery>, Fault> {
        let (store, within) = (self.administration.store, within(self.tenant)?);
        let found = store.deliveries(within, endpoint_id, number.checked_add(1), 1).await?;
        Ok(found.into_iter().find(|delivery| delivery.number == number))
    }

    async fn find(&self, id: &str) -> Result<WebhookEndpoint, Fault> {
        let found = self.administration.store.endpoint(within(self.tenant)?, known_id(ENDPOINT, id)?).await?;
        found.ok_or_else(|| not_found(ENDPOINT, id))
    }

    async fn put(
        &self,
        before: Option<WebhookEndpoint>,
        endpoint: &WebhookEndpoint,
        action: AuditAction,
    ) -> Result<(), Fault> {
        let view = |endpoint: WebhookEndpoint| snapshot(&EndpointView::from(endpoint));
        let audit = self.administration.change(self.tenant.tenant_id(), action, endpoint.id.as_str());
        let audit = audit.before(before.and_then(view)).after(view(endpoint.clone()));
        Ok(self.administration.store.put_endpoint(within(self.tenant)?, endpoint.clone(), audit).await?)
    }

    /// A new secret as it is shown, and sealed.
    fn new_secret(&self) -> (String, String) {
        let bytes = rand::random::<[u8; SECRET_BYTES]>();
        let shown = format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(bytes));
        (shown, self.seal.seal(&self.tenant.seal_context(), &bytes))
    }
}

impl Administration<'_> {
    /// Enqueues an event for the endpoints of a tenant that receive such events. The same event id is enqueued once.
    pub async fn enqueue_event(&self, tenant_id: i64, event: WebhookEvent) -> Result<u64, Fault> {
        Ok(self.store.enqueue_event(Operator::of_this_process(), tenant_id, event, self.now_ms).await?)
    }
}

fn events(Texts(named): Texts) -> Result<Vec<String>, Fault> {
    if named.is_empty() {
        return Err(missing("event_types"));
    }
    let mut events: Vec<String> = Vec::with_capacity(named.len());
    for name in named {
        if !WEBHOOK_EVENTS.contains(&name.as_str()) {
            return Err(wrong("event_types", &format!("must be some of `{}`", WEBHOOK_EVENTS.join("`, `"))));
        }
        if !events.contains(&name) {
            events.push(name);
        }
    }
    Ok(events)
}

fn number_of(id: &str) -> Option<u64> {
    id.strip_prefix(DELIVERY_PREFIX)?.parse().ok()
}

impl From<WebhookEndpoint> for EndpointView {
    fn from(endpoint: WebhookEndpoint) -> Self {
        Self {
            id: endpoint.id,
            object: "webhook_endpoint",
            created_at: UnixSeconds::from_ms(endpoint.created_at_ms),
            updated_at: UnixSeconds::from_ms(endpoint.updated_at_ms),
            url: endpoint.url,
            event_types: endpoint.event_types,
        }
    }
}

impl From<WebhookDelivery> for DeliveryView {
    fn from(delivery: WebhookDelivery) -> Self {
        let pending = delivery.status == amalgam_core::DeliveryStatus::Pending;
        let next_at_ms = delivery.next_at_ms.max(delivery.queued_at_ms);
        Self {
            id: format!("{DELIVERY_PREFIX}{}", delivery.number),
            object: "webhook_endpoint.delivery",
            endpoint_id: delivery.endpoint_id,
            created_at: UnixSeconds::from_ms(delivery.queued_at_ms),
            status: delivery.status.name(),
            attempts: delivery.attempts,
            next_attempt_at: pending.then(|| UnixSeconds::from_ms(next_at_ms)),
            delivered_at: delivery.delivered_at_ms.map(UnixSeconds::from_ms),
            last_status_code: delivery.last_status,
            last_error: delivery.last_error,
            event: delivery.event.into(),
        }
    }
}

impl From<WebhookEvent> for EventView {
    fn from(event: WebhookEvent) -> Self {
        Self {
            id: event.id,
            object: "event",
            created_at: UnixSeconds::from_ms(event.created_at_ms),
            kind: event.kind,
            data: Verbatim::of_text(event.data),
        }
    }
}
