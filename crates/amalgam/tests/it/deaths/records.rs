//! What is recorded beside turns, through all deaths: usage, budgets, webhooks, audit. Nothing is lost and nothing is counted twice.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Mutex,
    time::Instant,
};

use amalgam_testkit::{Amalgam, Client, Reply, Request, Setup, Upstream};
use http::Method;
use serde_json::{Value, json};

use super::load::{LOOK, Promise};
use crate::support::{Cli, FINAL, TestStore, eventually, setup};

/// The counters that turns and usage share.
const COUNTERS: [&str; 3] = ["calls", "input_tokens", "output_tokens"];

/// The receiver of all webhooks, and what it has received so far.
pub(crate) struct Records {
    receiver: Upstream,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    requests: usize,
    /// The events of each response, with their ids.
    events: HashMap<String, BTreeSet<(String, String)>>,
}

impl Received {
    fn read(&mut self, receiver: &Upstream) {
        let requests = receiver.requests_from(self.requests);
        self.requests += requests.len();
        for event in requests.iter().map(Request::json) {
            let [id, kind, response] = [&event["id"], &event["type"], &event["data"]["id"]]
                .map(|value| value.as_str().unwrap_or_default().to_owned());
            self.events.entry(response).or_default().insert((kind, id));
        }
    }
}

/// A change of the administration that a server acknowledged.
pub(crate) struct Change {
    mode: String,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self { receiver: Upstream::always(Reply::json(json!({}))), received: Mutex::default() }
    }

    pub(crate) fn setup(&self) -> Setup {
        let settings =
            format!("[limits]\nmax_in_flight = 12\n\n[egress]\nallow_private = [\"{}\"]\n", self.receiver.address());
        setup().extra(&settings)
    }

    /// Asks for an event at the end of every background turn.
    pub(crate) async fn listen(&self, amalgam: &Amalgam) {
        let events = ["response.completed", "response.failed"];
        let body = json!({"url": format!("{}/hook", self.receiver.url()), "event_types": events});
        let answer = amalgam.client().post_json("/v1/webhook_endpoints", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Every background turn that has ended has one event with its status, however often it was delivered.
    pub(crate) async fn assert_delivered(&self, settled: &[(Promise, Value)]) {
        let expected: BTreeMap<&str, String> = settled
            .iter()
            .filter(|(promise, _)| promise.is_background())
            .filter_map(|(_, response)| {
                Some((response["id"].as_str()?, format!("response.{}", response["status"].as_str()?)))
            })
            .collect();
        let started = Instant::now();
        while let Some(response) = self.without_event(&expected) {
            assert!(started.elapsed() < FINAL * 2, "no event for {response}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A response whose event has not arrived.
    fn without_event<'r>(&self, expected: &BTreeMap<&'r str, String>) -> Option<&'r str> {
        let mut received = self.received.lock().expect("no task panicked");
        received.read(&self.receiver);
        for (response, kind) in expected {
            let Some(found) = received.events.get(*response) else { return Some(response) };
            let kinds: Vec<&String> = found.iter().map(|(kind, _)| kind).collect();
            assert_eq!(kinds, [kind], "{response} has one event");
        }
        None
    }
}

/// Changes a mode. `None` if the server died before it answered.
pub(crate) async fn change(client: Client, cycle: usize) -> Option<Change> {
    let mode = format!("of-cycle-{cycle}");
    let headers = [("content-type", "application/json")];
    let body = json!({"system_prompt": "Be brief."}).to_string();
    let path = format!("/admin/modes/{mode}");
    let answer = client.try_request(Method::PUT, &path, &headers, body.into()).await.ok()?;
    answer.status.is_success().then_some(Change { mode })
}

/// The change that was acknowledged is in the audit, once.
pub(crate) async fn assert_audited(amalgam: &Amalgam, change: &Change) {
    let client = amalgam.client();
    assert_eq!(client.get(&format!("/admin/modes/{}", change.mode)).await.status, 200, "{} is lost", change.mode);
    let answer = client.get(&format!("/admin/audit?object=mode/{}", change.mode)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"].as_array().map(Vec::len), Some(1), "{}", answer.text());
}

/// What may be missing from the usage after deaths, and why.
#[derive(Clone, Copy, Default)]
pub(crate) struct Deaths {
    pub(crate) processes: usize,
    /// Turns that are not stored are written a moment after their answer, so those of a process that dies may be lost.
    pub(crate) unstored: usize,
}

impl Deaths {
    /// One more process has died, under this load.
    pub(crate) fn count(&mut self, promised: &[Promise]) {
        self.processes += 1;
        self.unstored += promised.iter().filter(|promise| promise.is_unstored()).count();
    }
}

/// The usage is the sum of all turns and what the upstreams have served, and each turn is listed once; no entry of the audit is
/// missing.
pub(crate) async fn assert_balanced(
    amalgam: &Amalgam,
    store: &TestStore,
    settled: &HashSet<String>,
    served: usize,
    deaths: Deaths,
) {
    /// Calls of one process whose usage is not in the store yet: of the turns that run at once, and of those that are ending.
    const MOST_OPEN: usize = 2 * 12;
    let client = amalgam.client();
    let mut listed: HashSet<String> = HashSet::new();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/admin/turns?limit=200{after}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        for row in page["data"].as_array().expect("a list has data") {
            let id = row["id"].as_str().expect("a turn has an id");
            assert!(listed.insert(id.to_owned()), "{id} is listed twice");
            for name in COUNTERS {
                *sums.entry(name).or_default() += row[name].as_u64().unwrap_or_default();
            }
        }
        if page["has_more"] != true {
            break;
        }
        after = format!("&after={}", page["last_id"].as_str().expect("a page with more has a last id"));
    }
    let missing: Vec<&String> = settled.difference(&listed).collect();
    assert!(missing.is_empty(), "turns that ended are not listed: {missing:?}");
    let report = client.get("/admin/usage").await.json();
    let total = &report["data"][0];
    assert_eq!(total["turns"].as_u64(), Some(listed.len() as u64), "{report}");
    for name in COUNTERS {
        assert_eq!(total[name].as_u64(), sums.get(name).copied(), "{name} of {report}");
    }
    let lost = deaths.processes * MOST_OPEN + deaths.unstored;
    for (name, each) in [("calls", 1), ("input_tokens", 11), ("output_tokens", 7)] {
        let (counted, most) = (total[name].as_u64().unwrap_or_default(), served as u64 * each);
        let least = served.saturating_sub(lost) as u64 * each;
        assert!((least..=most).contains(&counted), "{counted} {name} of {served} calls, of which {lost} may be lost");
    }
    let verified = Cli::beside(amalgam, store).json(&["audit", "verify"]);
    assert_eq!(verified["valid"], true, "{verified}");
}

/// Limits the tenant, so that every model call is counted; `more` limits besides.
pub(crate) fn count_all(cli: &Cli, more: &[&str]) {
    let set = ["limits", "set", "tenants", "1", "--budget", "1000000000", "--unit", "tokens", "--period", "total"];
    cli.text(&[&set[..], more].concat());
}

/// What was used is booked in the budget, once: no less than the usage says, and no more than that and what the calls that ran
/// at each death had reserved. Such a call may not have reached the upstream.
pub(crate) async fn assert_booked(cli: &Cli, deaths: usize) {
    /// The longest prompt of these tests, and the output tokens that are reserved; and the calls that run at once.
    const MOST_RESERVED: u64 = (400 + 1024) * 12;
    let shown = eventually("all reservations to end", FINAL, async || {
        let usage = cli.json(&["limits", "show", "tenants", "1"])["usage"].clone();
        (usage["in_flight"].as_u64().unwrap_or(0) == 0 && usage["budget"]["reserved"] == 0).then_some(usage)
    })
    .await;
    let report = cli.json(&["usage", "--group-by", "tenant"]);
    let counted = |field: &str| report["data"][0][field].as_u64().unwrap_or_default();
    let tokens = counted("input_tokens") + counted("output_tokens");
    let booked = shown["budget"]["used"].as_u64().unwrap_or_default();
    let most = tokens + deaths as u64 * MOST_RESERVED;
    assert!((tokens..=most).contains(&booked), "{booked} of {tokens} tokens are booked after {deaths} deaths");
}
