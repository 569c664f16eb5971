//! Delivers webhooks: claims due deliveries, signs and sends them, and schedules the next attempt.
//!
//! Signatures follow Standard Webhooks: HMAC-SHA256 over the event's id, the time and the body.

use std::time::Duration;

use amalgam_app::Application;
use amalgam_core::{DeliveryAttempt, DeliveryStatus, DueDelivery, Operator};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use ring::hmac;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::EventView;

/// The interval at which the queue is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which old deliveries are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);
/// The maximum number of deliveries that this process sends at once.
const AT_ONCE: usize = 16;
/// A delivery is given up after this time.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The pauses before further attempts; the last one repeats.
const PAUSES: [Duration; 7] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1800),
    Duration::from_secs(3600),
    Duration::from_secs(7200),
];

/// Delivers webhooks as long as it is polled. Deliveries that ended are deleted after `retention`.
pub async fn deliver_webhooks(app: &Application, retention: Duration) {
    let (mut poll, mut prune) = (interval(POLL_INTERVAL), interval(PRUNE_INTERVAL));
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    prune.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            _ = poll.tick() => {}
            _ = prune.tick() => {
                prune_deliveries(app, retention).await;
                continue;
            }
            // The next delivery of the same endpoint may be due.
            Some(()) = running.next() => {}
        }
        if running.len() >= AT_ONCE {
            continue;
        }
        let (operator, now_ms) = (Operator::of_this_process(), app.clock.now_ms());
        let process = app.engine.process();
        match app.store.take_deliveries(operator, process, now_ms, AT_ONCE - running.len()).await {
            Ok(taken) => taken.into_iter().for_each(|due| running.push(deliver(app, due))),
            Err(error) => debug!(%error, "the queue of webhooks could not be read"),
        }
    }
}

async fn prune_deliveries(app: &Application, retention: Duration) {
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let before_ms = app.clock.now_ms().saturating_sub(retention_ms);
    if let Err(error) = app.store.prune_deliveries(Operator::of_this_process(), before_ms).await {
        debug!(%error, "old webhook deliveries could not be deleted");
    }
}

async fn deliver(app: &Application, due: DueDelivery) {
    let (number, url) = (due.delivery.number, due.url.clone());
    let (queued_at_ms, attempts) = (due.delivery.queued_at_ms, due.delivery.attempts);
    let answer = send(app, due).await;
    let at_ms = app.clock.now_ms();
    let (code, error) = match answer {
        Ok(status @ 200..=299) => (Some(status), None),
        Ok(status) => (Some(status), Some(format!("the endpoint answered with status {status}"))),
        Err(error) => (None, Some(error)),
    };
    let (failure, next_at_ms) = after_failure(queued_at_ms, attempts, at_ms);
    let status = if error.is_none() { DeliveryStatus::Delivered } else { failure };
    if let Some(error) = &error {
        warn!(delivery = number, attempts = attempts + 1, "a webhook to {} failed: {error}", host_of(&url));
    }
    let attempt = DeliveryAttempt { number, status, answer: code.map(u64::from), error, at_ms, next_at_ms };
    // A claim that stays because the store is unavailable ends with this process; the event is sent again then.
    for pause in [0, 1, 5, 30, 60] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        match app.store.end_attempt(Operator::of_this_process(), attempt.clone()).await {
            Ok(()) => return,
            Err(error) => warn!(%error, delivery = number, "the outcome of a webhook could not be stored"),
        }
    }
}

async fn send(app: &Application, due: DueDelivery) -> Result<u16, String> {
    let DueDelivery { tenant_id, url, secret, delivery } = due;
    let key = app.seal.open(&format!("tenant:{tenant_id}"), &secret);
    let key = key.ok_or("the signing secret was sealed with a master key that is missing; rotate the secret")?;
    let (id, seconds) = (delivery.event.id.clone(), app.clock.now_ms() / 1000);
    let body = serde_json::to_string(&EventView::from(delivery.event)).map_err(|error| error.to_string())?;
    let signature = sign(&key, &id, seconds, &body);
    let headers =
        vec![("webhook-id", id), ("webhook-timestamp", seconds.to_string()), ("webhook-signature", signature)];
    app.webhook_sender.post(&url, headers, body.into()).await
}

/// What becomes of a delivery whose attempt has failed after so many earlier ones, and when the next attempt is due.
fn after_failure(queued_at_ms: u64, attempts: u64, at_ms: u64) -> (DeliveryStatus, u64) {
    let next_at_ms = at_ms.saturating_add(pause_after(attempts));
    match next_at_ms > queued_at_ms.saturating_add(GIVE_UP_AFTER.as_millis() as u64) {
        false => (DeliveryStatus::Pending, next_at_ms),
        true => (DeliveryStatus::Failed, next_at_ms),
    }
}

/// Milliseconds until the next attempt after so many earlier ones.
fn pause_after(attempts: u64) -> u64 {
    let at = usize::try_from(attempts).unwrap_or(usize::MAX).min(PAUSES.len() - 1);
    PAUSES.get(at).map_or(0, |pause| pause.as_millis() as u64)
}

fn sign(key: &[u8], id: &str, seconds: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

/// The host of an address, for the log: path and query may contain secrets.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_tried_within_half_a_minute_then_less_often_and_given_up_after_a_day() {
        const QUEUED: u64 = 1_700_000_000_000;
        const HOUR: u64 = 3_600_000;
        let (mut clock, mut attempts, mut pauses) = (QUEUED, 0, Vec::new());
        let given_up_at = loop {
            // Each attempt takes ten seconds until it fails.
            clock += 10_000;
            match after_failure(QUEUED, attempts, clock) {
                (DeliveryStatus::Pending, next) => {
                    pauses.push(next - clock);
                    clock = next;
                }
                (DeliveryStatus::Failed, _) => break clock,
                (DeliveryStatus::Delivered, _) => panic!("it has failed"),
            }
            attempts += 1;
            assert!(attempts < 100, "it is never given up");
        };
        assert!(pauses[0] <= 30_000 && pauses.is_sorted(), "{pauses:?}");
        let lasted = given_up_at - QUEUED;
        assert!((12 * HOUR..=24 * HOUR).contains(&lasted), "{lasted} ms, {attempts} attempts");
        assert!(clock + pauses[pauses.len() - 1] > QUEUED + 24 * HOUR, "the next attempt would be too late");
    }

    #[test]
    fn a_signature_is_that_of_the_standard_webhooks_example() {
        let key = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_first_retry_comes_within_30_seconds_and_pauses_grow() {
        assert!(pause_after(0) <= 30_000);
        assert!((0..20).map(pause_after).is_sorted());
    }

    #[test]
    fn the_log_names_the_host_alone() {
        assert_eq!(host_of("https://user:key@example.com:8443/secret?token=1"), "example.com:8443");
    }
}
