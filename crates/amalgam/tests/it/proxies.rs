//! Upstreams behind an HTTP proxy, as `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` say.

use amalgam_testkit::{Certificates, ConnectProxy, Front, Reply, Setup};
use serde_json::{Value, json};

use crate::support::{
    BINARY, Cli, DELIVERIES, Delivery, Script, WIRES, Wire, World, asking, assert_calm, error_of, stores, text_of,
};

/// A name that only the proxy can resolve.
const NAME: &str = "upstream.test";

/// `Basic`, `user` and `p@ss`.
const CREDENTIALS: &str = "Basic dXNlcjpwQHNz";

/// A server whose upstreams speak TLS under [`NAME`], with these variables.
async fn behind_tls(variables: &[(&str, String)]) -> (World, Vec<Front>, Certificates) {
    let certificates = Certificates::for_names(&format!("DNS:{NAME}"));
    let setup = Setup::new().env("SSL_CERT_FILE", &certificates.authority().display().to_string());
    let setup = variables.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    let mut fronts = Vec::new();
    let world = World::behind(setup, &[("retries", "0")], |upstream| {
        let front = Front::before(upstream.address(), &certificates);
        let address = format!("https://{NAME}:{}/v1", front.address().port());
        fronts.push(front);
        address
    })
    .await;
    (world, fronts, certificates)
}

/// A server whose upstreams do not speak TLS, with these variables.
async fn behind_plain(variables: &[(&str, String)]) -> World {
    let setup = variables.iter().fold(Setup::new(), |setup, (name, value)| setup.env(name, value));
    let address = |upstream: &amalgam_testkit::Upstream| format!("http://{NAME}:{}/v1", upstream.address().port());
    World::behind(setup, &[("retries", "0")], address).await
}

fn hello() -> Value {
    json!({"input": "Say hello."})
}

async fn refusal(world: &World, wire: Wire, delivery: Delivery) -> (u16, Value) {
    let request = asking(wire, delivery, &hello());
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
    (answer.status.as_u16(), error_of(&answer))
}

#[tokio::test]
async fn https_goes_through_a_tunnel_whose_inside_the_proxy_does_not_see() {
    for variable in ["HTTPS_PROXY", "https_proxy"] {
        let proxy = ConnectProxy::wanting(CREDENTIALS);
        let address = format!("http://user:p%40ss@{}", proxy.address());
        let (world, fronts, _certificates) = behind_tls(&[(variable, address)]).await;
        let script = Script::text(&["Hel", "lo."]);
        for wire in WIRES {
            for delivery in DELIVERIES {
                let response = world.response(wire, delivery, &script, &hello()).await;
                assert_eq!(text_of(&response), "Hello.", "{variable} {wire:?} {delivery:?}");
            }
        }
        let mut expected: Vec<String> =
            fronts.iter().map(|front| format!("CONNECT {NAME}:{} HTTP/1.1", front.address().port())).collect();
        let heads = proxy.heads();
        let mut lines: Vec<&str> = heads.iter().filter_map(|head| head.lines().next()).collect();
        expected.sort_unstable();
        lines.sort_unstable();
        assert_eq!(lines, expected, "one tunnel for each upstream, used again");
        assert!(heads.iter().all(|head| !head.contains("sk-")), "{heads:?}");
        assert_calm(&world.amalgam);
    }
}

#[tokio::test]
async fn http_is_sent_on_by_the_proxy_which_reads_whole_addresses() {
    let proxy = ConnectProxy::wanting(CREDENTIALS);
    let world = behind_plain(&[("HTTP_PROXY", format!("user:p%40ss@{}", proxy.address()))]).await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &Script::text(&["Hello."]), &hello()).await;
            assert_eq!(text_of(&response), "Hello.", "{wire:?} {delivery:?}");
        }
        let request = world.upstream(wire).requests().pop().expect("the upstream was asked");
        assert_eq!(request.header("proxy-authorization"), None, "{wire:?}");
    }
    let heads = proxy.heads();
    assert_eq!(heads.len(), WIRES.len() * DELIVERIES.len());
    assert!(heads.iter().all(|head| head.starts_with(&format!("POST http://{NAME}:"))), "{heads:?}");
}

#[tokio::test]
async fn hosts_of_no_proxy_are_reached_directly() {
    let proxy = ConnectProxy::refusing("502 Bad Gateway");
    let address = format!("http://{}", proxy.address());
    let setup = Setup::new().env("HTTP_PROXY", &address).env("HTTPS_PROXY", &address).env("NO_PROXY", "127.0.0.0/8");
    let world = World::with(setup, &[]).await;
    for wire in WIRES {
        let response = world.response(wire, Delivery::Whole, &Script::text(&["Hello."]), &hello()).await;
        assert_eq!(text_of(&response), "Hello.", "{wire:?}");
    }
    assert_eq!(proxy.heads(), [""; 0]);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_a_502_that_names_the_proxy_and_not_its_address() {
    for (proxy, credentials, logged) in [
        (ConnectProxy::refusing("502 Bad Gateway"), "", "unsuccessful"),
        (ConnectProxy::wanting(CREDENTIALS), "user:wr0ng@", "proxy authorization required"),
    ] {
        let address = format!("http://{credentials}{}", proxy.address());
        let (world, _fronts, _certificates) = behind_tls(&[("HTTPS_PROXY", address)]).await;
        for wire in WIRES {
            for delivery in DELIVERIES {
                let (status, error) = refusal(&world, wire, delivery).await;
                assert_eq!((status, &error["code"]), (502, &json!("upstream_unavailable")), "{wire:?}: {error}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("proxy") && !message.contains("127.0.0.1"), "{message}");
            }
            assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?}");
        }
        let log = world.amalgam.wait_for_stderr(logged).await;
        assert!(log.contains(&format!("http://{}", proxy.address())), "{log}");
        assert!(!log.contains("wr0ng"), "{log}");
    }
}

#[tokio::test]
async fn wrong_credentials_for_a_proxy_that_sends_requests_on_are_its_refusal_and_not_the_upstreams() {
    let proxy = ConnectProxy::wanting(CREDENTIALS);
    let world = behind_plain(&[("http_proxy", format!("http://{}", proxy.address()))]).await;
    for wire in WIRES {
        let (status, error) = refusal(&world, wire, Delivery::Whole).await;
        assert_eq!(status, 502, "{wire:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains("proxy"), "{wire:?}: {error}");
    }
}

#[tokio::test]
async fn the_certificate_of_an_upstream_is_checked_inside_the_tunnel() {
    let proxy = ConnectProxy::open();
    let strangers = Certificates::for_names(&format!("DNS:{NAME}"));
    let variables = [
        ("HTTPS_PROXY", format!("http://{}", proxy.address())),
        ("SSL_CERT_FILE", strangers.authority().display().to_string()),
    ];
    let (world, fronts, _certificates) = behind_tls(&variables).await;
    let (status, error) = refusal(&world, Wire::Chat, Delivery::Whole).await;
    assert_eq!((status, &error["code"]), (502, &json!("upstream_unavailable")), "{error}");
    assert_eq!((proxy.heads().len(), fronts[0].connections()), (1, 0));
    world.amalgam.wait_for_stderr("certificate").await;
}

#[tokio::test]
async fn the_doctor_names_the_proxy_on_the_way_to_an_upstream() {
    let proxy = ConnectProxy::open();
    let address = format!("http://{}", proxy.address());
    let (world, _fronts, certificates) = behind_tls(&[("HTTPS_PROXY", address.clone())]).await;
    for wire in WIRES {
        world.upstream(wire).always_for("/models", Reply::json(json!({"object": "list", "data": []})));
    }
    let findings = |proxy: &str| -> Vec<Value> {
        let cli = Cli::beside(&world.amalgam, &stores()[0])
            .env("SSL_CERT_FILE", &certificates.authority().display().to_string())
            .env("HTTPS_PROXY", proxy);
        let output = cli.run(&["doctor", "--listen", "127.0.0.1:0", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        checks.filter(|found| found["check"].as_str().unwrap().starts_with("upstream ")).cloned().collect()
    };
    for found in findings(&address) {
        assert_eq!(found["status"], "ok", "{found}");
        assert!(found["detail"].as_str().unwrap().ends_with(&format!("through the proxy {address}")), "{found}");
    }
    let refusing = ConnectProxy::refusing("403 Forbidden");
    for found in findings(&format!("http://user:s3cret@{}", refusing.address())) {
        let detail = found["detail"].as_str().unwrap();
        assert_eq!(found["status"], "fail", "{found}");
        assert!(detail.contains(&format!("through the proxy http://{}", refusing.address())), "{found}");
        assert!(
            found["hint"].as_str().unwrap().contains("NO_PROXY") && !found.to_string().contains("s3cret"),
            "{found}"
        );
    }
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_stops_the_start_and_is_named() {
    let setup = Setup::new().env("HTTPS_PROXY", "socks5://127.0.0.1:1080");
    let exit = amalgam_testkit::Amalgam::try_start(BINARY, setup).await.expect_err("it does not start");
    assert_eq!(exit.status.code(), Some(2), "{}", exit.stderr);
    assert!(exit.stderr.contains("HTTPS_PROXY") && exit.stderr.contains("http://"), "{}", exit.stderr);
}
