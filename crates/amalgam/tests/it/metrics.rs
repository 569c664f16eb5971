//! Metrics: what is counted, who may read it, and that the dashboard and the alert rules use names that exist.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{
    BINARY, Cli, DELIVERIES, Delivery, SOON, Script, Wire, Workshop, World, asking, calls, eventually, named, say,
    says, setup, stores,
};

const KEY: &str = "am_configured-0123456789";

async fn text(client: &Client) -> String {
    let answer = client.get("/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// The value of the sample with this name and these labels.
fn sample(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// The sum of all samples of a name whose labels contain a text.
fn sum(text: &str, name: &str, labels: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// A server that has done a bit of everything: turns, refusals, failures, tools, background turns.
async fn busy_workshop() -> Workshop {
    let store = stores().remove(0);
    let workshop = Workshop::with(&store, setup()).await;
    workshop.put("weather", json!({})).await;
    workshop.service.enqueue(says(json!({"sun": true})));
    let scripts = [calls("c1", "weather", "Bonn"), Script::text(&["done"])];
    workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &json!({"input": "Hi", "tools": [named("weather")]})).await;
    workshop.turn(Wire::Chat, Delivery::Stream, &[Script::text(&["done"])], &json!({"input": "Hi"})).await;
    workshop.client().get("/v1/nothing").await;
    workshop
}

#[tokio::test]
async fn turns_tokens_upstreams_tools_and_writes_are_counted_on_both_stores() {
    for store in stores() {
        let workshop = Workshop::with(&store, setup()).await;
        workshop.put("weather", json!({})).await;
        for delivery in DELIVERIES {
            workshop.service.enqueue(says(json!({"sun": true})));
            let scripts = [calls("c1", "weather", "Bonn"), Script::text(&["done"])];
            let request = json!({"input": "Hi", "tools": [named("weather")]});
            workshop.turn(Wire::Chat, delivery, &scripts, &request).await;
        }
        workshop.world.upstream(Wire::Chat).enqueue(Reply::status(400));
        let refused = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        assert_eq!(workshop.client().post_json("/v1/responses", &refused).await.status, 400);
        let text = text(&workshop.client()).await;
        let completed = r#"amalgam_turns_total{door="responses",model="m-chat",upstream="chat",status="completed"}"#;
        assert_eq!(sample(&text, completed), Some(2.0), "{}\n{text}", store.name);
        assert_eq!(sum(&text, "amalgam_turns_total", r#"status="failed""#), 1.0, "{}", store.name);
        assert_eq!(sample(&text, r#"amalgam_requests_total{door="responses",status="200"}"#), Some(2.0));
        assert_eq!(sample(&text, r#"amalgam_requests_total{door="responses",status="400"}"#), Some(1.0));
        assert_eq!(sample(&text, r#"amalgam_upstream_requests_total{upstream="chat",status="ok"}"#), Some(4.0));
        assert_eq!(sample(&text, r#"amalgam_upstream_requests_total{upstream="chat",status="failed"}"#), Some(1.0));
        assert_eq!(sample(&text, r#"amalgam_tool_calls_total{tool="weather",outcome="ok"}"#), Some(2.0));
        assert!(sample(&text, r#"amalgam_tokens_total{model="m-chat",kind="input"}"#) > Some(0.0), "{text}");
        assert_eq!(sample(&text, r#"amalgam_upstream_breaker_open{upstream="chat"}"#), Some(0.0), "{text}");
        assert_eq!(sample(&text, r#"amalgam_queue_depth{queue="background"}"#), Some(0.0), "{text}");
        assert_eq!(sample(&text, "amalgam_turns_in_flight"), Some(0.0));
        assert_eq!(sample(&text, "amalgam_streams_open"), Some(0.0));
        for counted in ["amalgam_store_write_seconds_count", "amalgam_store_flush_seconds_count"] {
            assert!(sample(&text, counted) > Some(0.0), "{}: {counted}\n{text}", store.name);
        }
        assert!(sample(&text, r#"amalgam_store_writes_total{outcome="stored"}"#) > Some(0.0), "{}", store.name);
        assert!(sample(&text, "process_resident_memory_bytes") > Some(1e6));
    }
}

#[tokio::test]
async fn metrics_need_no_key_on_this_machine_and_one_with_the_right_scope_elsewhere() {
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key(KEY))).await;
        let cli = Cli::beside(&amalgam, &store);
        let key = |scope: &str| {
            let created = cli.json(&["keys", "create", "--tenant", "1", "--scope", scope]);
            created["key"].as_str().expect("a new key is shown").to_owned()
        };
        let anyone = Client::new(amalgam.url());
        assert_eq!(anyone.get("/metrics").await.status, 200, "a program on this machine");
        // What a proxy forwards does not come from this machine, and neither does a page of another name.
        let forwarded = || Client::new(amalgam.url()).with_header("x-forwarded-for", "203.0.113.7");
        assert_eq!(forwarded().get("/metrics").await.status, 401);
        assert_eq!(anyone.clone().with_header("host", "evil.example").get("/metrics").await.status, 401);
        for (key, status) in [(key("metrics"), 200), (KEY.to_owned(), 200), (key("admin"), 200), (key("use"), 403)] {
            assert_eq!(forwarded().with_key(&key).get("/metrics").await.status, status, "{}", store.name);
        }
        let reader = anyone.with_key(&key("metrics"));
        for path in ["/v1/models", "/admin/tenants"] {
            assert_eq!(reader.get(path).await.status, 403, "{path}: the scope is for metrics only");
        }
    }
}

#[tokio::test]
async fn an_address_of_its_own_serves_metrics_without_a_key_and_nothing_else() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let setup = Setup::new().tenant_key(KEY).extra(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\""));
    let amalgam = Amalgam::start(BINARY, setup).await;
    let own = Client::new(&format!("http://127.0.0.1:{port}")).with_header("x-forwarded-for", "203.0.113.7");
    assert!(text(&own).await.contains("amalgam_build_info"));
    assert_eq!(own.clone().with_key(KEY).get("/v1/models").await.status, 404);
    assert_eq!(amalgam.client().get("/v1/models").await.status, 200);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of our metrics that a text uses.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words
        .filter(|word| ["amalgam_", "process_", "gen_ai_client_"].iter().any(|own| word.starts_with(own)))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_dashboard_the_alert_rules_and_the_documentation_name_the_metrics_that_are_there() {
    let workshop = busy_workshop().await;
    let exposed = text(&workshop.client()).await;
    let samples = exposed.lines().filter(|line| !line.starts_with('#'));
    let mut known: BTreeSet<String> =
        samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
    let described: Vec<&str> =
        exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    known.extend(described.iter().map(|name| (*name).to_owned()));
    // Labels of histograms and counters that have no sample yet.
    for (name, kind) in exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
        if kind == "histogram" {
            known.extend(["bucket", "sum", "count"].map(|part| format!("{name}_{part}")));
        }
    }
    for file in ["deploy/grafana/amalgam.json", "deploy/prometheus/alerts.yml", "docs/operations.md"] {
        let used = names_in(&fs::read_to_string(root().join(file)).unwrap());
        assert!(used.len() > 5, "{file}");
        // The targets of log lines, a variable of the nginx example, and the name of a package.
        let own = ["amalgam_request", "amalgam_span", "amalgam_connection", "amalgam_VERSION_amd64"].map(str::to_owned);
        let unknown: Vec<&String> = used.iter().filter(|name| !known.contains(*name) && !own.contains(name)).collect();
        assert_eq!(unknown, Vec::<&String>::new(), "{file}");
    }
    let documented = names_in(&fs::read_to_string(root().join("docs/operations.md")).unwrap());
    let missing: Vec<&&str> = described.iter().filter(|name| !documented.contains(**name)).collect();
    assert_eq!(missing, Vec::<&&str>::new(), "metrics that docs/operations.md does not describe");
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(root().join("deploy/grafana/amalgam.json")).unwrap()).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

/// Runs a program of the Prometheus package, if it is installed.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Some((output.status.success(), told))
}

#[tokio::test]
async fn promtool_accepts_the_metrics_and_the_alert_rules() {
    let workshop = busy_workshop().await;
    let exposed = text(&workshop.client()).await;
    let Some((good, told)) = promtool(&["check", "metrics"], &exposed) else {
        return say("skipped: promtool is not installed");
    };
    assert!(good, "{told}");
    let rules = root().join("deploy/prometheus/alerts.yml");
    let (good, told) = promtool(&["check", "rules", rules.to_str().unwrap()], "").unwrap();
    assert!(good, "{told}");
}

/// A Prometheus that ends with the test.
struct Prometheus {
    child: Child,
    client: Client,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Scrapes a server every 200 ms and evaluates our rules as often, with short windows; none if it is not installed.
    fn start(folder: &Path, target: &str) -> Option<Self> {
        let rules = fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
        let rules = rules.replace("[5m]", "[4s]").replace("[10m]", "[4s]");
        let rules: String = rules
            .lines()
            .map(|line| if line.trim_start().starts_with("for: ") { "        for: 1s" } else { line })
            .flat_map(|line| [line, "\n"])
            .collect();
        fs::write(folder.join("alerts.yml"), rules).unwrap();
        let config = format!(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\nrule_files: [alerts.yml]\n\
             scrape_configs:\n  - job_name: amalgam\n    static_configs:\n      - targets: ['{target}']\n"
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { child, client: Client::new(&format!("http://127.0.0.1:{port}")) })
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.client.try_request(http::Method::GET, path, &[], bytes::Bytes::new()).await.ok()?;
        (answer.status == 200).then(|| answer.json())
    }

    async fn firing(&self) -> Vec<String> {
        let alerts = self.get("/api/v1/alerts").await.unwrap_or_default();
        let alerts = alerts["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.into_iter().filter(|alert| alert["state"] == "firing");
        firing.filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned)).collect()
    }
}

#[tokio::test]
async fn prometheus_scrapes_the_server_and_an_alert_fires_when_its_upstream_fails() {
    let upstream = Upstream::always(Reply::status(500));
    let setup = setup().upstream("broken", "chat", &upstream.base_url()).option("retries", "0");
    let amalgam = Amalgam::start(BINARY, setup.option("models", "[\"m\"]")).await;
    let folder = tempfile::tempdir().unwrap();
    let target = amalgam.url().trim_start_matches("http://").to_owned();
    let Some(prometheus) = Prometheus::start(folder.path(), &target) else {
        return say("skipped: prometheus is not installed");
    };
    eventually("a scrape", SOON, async || {
        let up = prometheus.get("/api/v1/query?query=amalgam_build_info").await?;
        (!up["data"]["result"].as_array()?.is_empty()).then_some(())
    })
    .await;
    // The disk is this machine's.
    let mut firing = prometheus.firing().await;
    firing.retain(|alert| alert != "AmalgamDiskFull");
    assert_eq!(firing, Vec::<String>::new());
    let limited = amalgam.client().with_header("x-amalgam-user", "anna");
    let budget = json!({"budget": {"amount": 1, "unit": "tokens", "period": "total"}});
    crate::limits::set(&amalgam.client(), "users/anna", &budget).await;
    eventually("the alert", SOON, async || {
        let answer = amalgam.client().post_json("/v1/responses", &json!({"model": "m", "input": "Hi"})).await;
        assert!(answer.status.is_server_error(), "{}", answer.text());
        let firing = prometheus.firing().await;
        let refused = limited.post_json("/v1/responses", &json!({"model": "m", "input": "Hi"})).await;
        assert!(matches!(refused.status.as_u16(), 429 | 500..), "{}", refused.text());
        let expected = [
            "AmalgamServerErrors",
            "AmalgamUpstreamFailing",
            "AmalgamBreakerOpen",
            "AmalgamRefusedForLimits",
            "AmalgamBudgetReached",
        ];
        expected.iter().all(|name| firing.iter().any(|alert| alert == name)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_open_stream_and_a_running_turn_are_counted_while_they_last() {
    let world = World::with(Setup::new(), &[]).await;
    let gate = amalgam_testkit::Gate::new();
    let held = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
    world.upstream(Wire::Chat).enqueue(held);
    let client = world.amalgam.client();
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let mut stream = client.post_stream("/v1/responses", &request).await;
    stream.next_of_type("response.output_text.delta").await;
    let while_open = text(&client).await;
    gate.open();
    stream.rest().await;
    let after = eventually("the end of the stream", SOON, async || {
        let after = text(&client).await;
        (sample(&after, "amalgam_streams_open") == Some(0.0)).then_some(after)
    })
    .await;
    let both = |text: &str| (sample(text, "amalgam_streams_open"), sample(text, "amalgam_turns_in_flight"));
    assert_eq!((both(&while_open), both(&after)), ((Some(1.0), Some(1.0)), (Some(0.0), Some(0.0))));
}
