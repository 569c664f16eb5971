//! Waiting for what a server does by itself, with an end to the patience.

use std::time::{Duration, Instant};

use amalgam_testkit::{Client, HttpAnswer, Polling};
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;

/// How long a test waits for what has to become final. It is no promise: the machine may have other things to do.
pub(crate) const FINAL: Duration = Duration::from_secs(60);

/// How soon after a death nothing may be unfinished. P3. On a machine of its own, as `make soak` asks for, it is ten
/// seconds; elsewhere it is only awaited.
#[expect(clippy::disallowed_methods, reason = "how `make soak` speaks to the tests")]
pub(crate) fn final_after_a_death() -> Duration {
    match std::env::var_os("AMALGAM_SOAK_CYCLES") {
        Some(_) => Duration::from_secs(10),
        None => FINAL,
    }
}

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until there is something, and says how long that took.
pub(crate) async fn eventually<T>(what: &str, patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let polling = Polling::new();
    let started = Instant::now();
    loop {
        if let Some(found) = polling.attempt(look()).await {
            return found;
        }
        assert!(started.elapsed() < patience, "waited {patience:?} for {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The present state of a response, which has to exist.
pub(crate) async fn retrieved(client: &Client, id: &str) -> Value {
    let answer = client.get(&format!("/v1/responses/{id}")).await;
    assert_eq!(answer.status, 200, "{id}: {}", answer.text());
    answer.json()
}

/// The response once it has ended.
pub(crate) async fn ended(client: &Client, id: &str) -> Value {
    eventually(&format!("the end of {id}"), FINAL, async || {
        let response = retrieved(client, id).await;
        (!matches!(response["status"].as_str(), Some("queued" | "in_progress"))).then_some(response)
    })
    .await
}

/// The response once it has this status.
pub(crate) async fn standing(client: &Client, id: &str, status: &str) -> Value {
    eventually(&format!("{id} to be {status}"), FINAL, async || {
        let response = retrieved(client, id).await;
        (response["status"] == status).then_some(response)
    })
    .await
}

/// Asks for the end of a background response.
pub(crate) async fn cancel(client: &Client, id: &str) -> HttpAnswer {
    client.request(Method::POST, &format!("/v1/responses/{id}/cancel"), &[], Bytes::new()).await
}

/// The id of a response.
pub(crate) fn id_of(response: &Value) -> &str {
    response["id"].as_str().expect("a response has an id")
}

/// A task that runs beside the test; dropping it ends the task.
pub(crate) struct Beside<T>(JoinSet<T>);

/// Starts something beside the test.
pub(crate) fn beside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Beside<T> {
    let mut task = JoinSet::new();
    task.spawn(work);
    Beside(task)
}

impl<T: Send + 'static> Beside<T> {
    /// Waits for its end.
    pub(crate) async fn end(mut self) -> T {
        let ended = self.0.join_next().await.expect("one task was started");
        ended.expect("it ends in order")
    }

    /// Ends it in the middle; it must not have come to its own end yet.
    pub(crate) async fn leave(mut self) {
        self.0.abort_all();
        let ended = self.0.join_next().await.expect("one task was started");
        assert!(ended.is_err_and(|error| error.is_cancelled()), "it came to its end too early");
    }
}

/// Writes a line for the person who runs the tests.
#[expect(clippy::print_stderr, reason = "this is how a test speaks")]
pub(crate) fn say(what: &str) {
    eprintln!("{what}");
}
