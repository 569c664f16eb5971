//! Upstreams, images and the doctor over TLS, with an authority that the operator has named.

use amalgam_testkit::{Certificates, Front, HttpAnswer, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{
    Cli, DELIVERIES, Delivery, Script, WIRES, Wire, World, asking, assert_calm, beside, checked_events, error_of,
    last_response, stores, text_of,
};

/// A server whose upstreams all speak TLS, and the fronts that do it for them.
struct Secure {
    world: World,
    fronts: Vec<Front>,
}

impl Secure {
    /// Upstreams that show this certificate, before a server that trusts this authority.
    async fn with(shown: &Certificates, trusted: &Certificates) -> Self {
        let mut fronts = Vec::new();
        let world = World::behind(trusting(trusted), &[], |upstream| {
            let front = Front::before(upstream.address(), shown);
            let address = front.base_url();
            fronts.push(front);
            address
        });
        Self { world: world.await, fronts }
    }

    async fn start() -> Self {
        // A server that listens has read them.
        let certificates = here();
        Self::with(&certificates, &certificates).await
    }

    async fn ask(&self, wire: Wire, delivery: Delivery, request: &Value) -> HttpAnswer {
        self.world.amalgam.client().post_json("/v1/responses", &asking(wire, delivery, request)).await
    }
}

/// Certificates for where the tests are.
fn here() -> Certificates {
    Certificates::for_names("IP:127.0.0.1")
}

fn trusting(certificates: &Certificates) -> Setup {
    Setup::new().env("SSL_CERT_FILE", &certificates.authority().display().to_string())
}

fn hello() -> Value {
    json!({"input": "Say hello."})
}

/// An answer of many small pieces, with characters of every length.
fn long_answer() -> (Script, String) {
    let words: Vec<String> = (0..300).map(|number| format!("wörd {number} 語🙂 ")).collect();
    let pieces: Vec<&str> = words.iter().map(String::as_str).collect();
    (Script::text(&pieces), words.concat())
}

#[tokio::test]
async fn an_upstream_is_asked_over_tls_whatever_it_speaks() {
    let secure = Secure::start().await;
    let (script, text) = long_answer();
    let large = json!({"input": "x".repeat(300_000)});
    for (wire, front) in WIRES.into_iter().zip(&secure.fronts) {
        for delivery in DELIVERIES {
            for request in [&hello(), &large] {
                let response = secure.world.response(wire, delivery, &script, request).await;
                assert_eq!(text_of(&response), text, "{wire:?} {delivery:?}");
            }
        }
        assert!(secure.world.sent(wire).to_string().contains(large["input"].as_str().unwrap()), "{wire:?}");
        assert_eq!(front.connections(), 1, "{wire:?}: a connection that is sound is used again");
        front.hang_up();
        secure.world.upstream(wire).wait_for_idle().await;
        secure.world.response(wire, Delivery::Whole, &script, &hello()).await;
        assert_eq!(front.connections(), 2, "{wire:?}: a new one takes the place of one that has ended");
    }
}

#[tokio::test]
async fn bursts_over_tls_arrive_whole_at_every_client() {
    let secure = Secure::start().await;
    let (script, text) = long_answer();
    for wire in WIRES {
        for piece in [1_000_000, 1_400, 61] {
            let reply = script.reply(wire, Delivery::Stream).split(piece);
            secure.world.upstream(wire).from_now_on(reply);
            let callers: Vec<_> = (0..8)
                .map(|_| {
                    let (client, request) = (secure.world.amalgam.client(), asking(wire, Delivery::Stream, &hello()));
                    beside(async move { client.post_json("/v1/responses", &request).await })
                })
                .collect();
            for caller in callers {
                let response = last_response(&checked_events(&caller.end().await));
                assert_eq!(text_of(&response), text, "{wire:?} in pieces of {piece}");
            }
        }
    }
    assert_calm(&secure.world.amalgam);
}

#[tokio::test]
async fn a_stream_that_is_cut_under_tls_is_failed_and_the_next_one_is_not() {
    // P5: with a farewell of TLS and without one.
    let secure = Secure::start().await;
    let (script, text) = long_answer();
    for wire in WIRES {
        let whole = || script.reply(wire, Delivery::Stream);
        for (what, reply) in [("cut", whole().cut_after(40)), ("reset", whole().reset_after(40))] {
            secure.world.upstream(wire).enqueue(reply);
            let answer = secure.ask(wire, Delivery::Stream, &hello()).await;
            let response = last_response(&checked_events(&answer));
            assert_eq!(response["status"], "failed", "{wire:?} {what}");
            let response = secure.world.response(wire, Delivery::Stream, &script, &hello()).await;
            assert_eq!(text_of(&response), text, "{wire:?} after a {what}");
        }
    }
}

#[tokio::test]
async fn nothing_is_said_to_an_upstream_that_cannot_prove_who_it_is() {
    let (ours, strangers) = (here(), here());
    let elsewhere = Certificates::for_names("DNS:localhost,DNS:upstream.example");
    for (case, shown, trusted) in [("a stranger", &strangers, &ours), ("another name", &elsewhere, &elsewhere)] {
        let secure = Secure::with(shown, trusted).await;
        for (wire, front) in WIRES.into_iter().zip(&secure.fronts) {
            for delivery in DELIVERIES {
                let answer = secure.ask(wire, delivery, &hello()).await;
                let error = error_of(&answer);
                let told = (answer.status.as_u16(), error["code"].as_str());
                assert_eq!(told, (502, Some("upstream_unavailable")), "{wire:?} {case}: {error}");
            }
            assert_eq!((front.connections(), secure.world.upstream(wire).requests().len()), (0, 0), "{wire:?} {case}");
        }
        let log = secure.world.amalgam.stderr();
        assert!(log.contains("certificate"), "{case}: {log}");
        assert_calm(&secure.world.amalgam);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_tls_is_not_talked_to_without() {
    let at_once = [("connect_timeout", "\"300ms\"")];
    let reach = |upstream: &Upstream| upstream.base_url().replace("http://", "https://");
    let world = World::behind(Setup::new(), &at_once, reach).await;
    for wire in WIRES {
        let answer = world.amalgam.client().post_json("/v1/responses", &asking(wire, Delivery::Whole, &hello())).await;
        assert_eq!((answer.status.as_u16(), &error_of(&answer)["code"]), (502, &json!("upstream_unavailable")));
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?}");
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn an_image_is_fetched_over_tls() {
    let gallery = Upstream::start();
    gallery.always_for(".png", Reply::bytes("image/png", &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..]));
    let certificates = here();
    let front = Front::before(gallery.address(), &certificates);
    let image = format!("{}/a.png", front.base_url());
    for (trusted, status) in [(true, 200), (false, 400)] {
        let setup = if trusted { trusting(&certificates) } else { Setup::new() };
        let setup = setup.extra(&format!("[egress]\nallow_private = [\"{}\"]", front.address()));
        let world = World::with(setup, &[("image_urls", "\"fetch\"")]).await;
        world.upstream(Wire::Chat).enqueue(Script::text(&["A picture."]).reply(Wire::Chat, Delivery::Whole));
        let content = json!([{"type": "input_image", "image_url": image}]);
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": [{"role": "user", "content": content}]}));
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(world.upstream(Wire::Chat).requests().len(), usize::from(trusted));
    }
    assert_eq!(gallery.requests().len(), 1);
}

#[tokio::test]
async fn the_doctor_says_whose_certificate_is_not_believed() {
    let certificates = here();
    let secure = Secure::with(&certificates, &certificates).await;
    let store = &stores()[0];
    let listing = Reply::json(json!({"object": "list", "data": []}));
    for wire in WIRES {
        secure.world.upstream(wire).always_for("/models", listing.clone());
    }
    let cli = || Cli::beside(&secure.world.amalgam, store);
    let authority = certificates.authority().display().to_string();
    let findings = |cli: Cli| -> Vec<(String, String)> {
        let output = cli.run(&["doctor", "--listen", "127.0.0.1:0", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let upstreams = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|found| found["check"].as_str().unwrap().starts_with("upstream "));
        upstreams.map(|found| (found["status"].as_str().unwrap().to_owned(), found.to_string())).collect()
    };
    for (level, told) in findings(cli().env("SSL_CERT_FILE", &authority)) {
        assert_eq!(level, "ok", "{told}");
    }
    let strange = findings(cli());
    assert_eq!(strange.len(), WIRES.len());
    for (level, told) in strange {
        assert!(level == "fail" && told.contains("certificate"), "{told}");
    }
}
