//! Images that a caller names by address, where an upstream is set to need their bytes.

use amalgam_testkit::{HttpAnswer, Reply, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{Delivery, Script, WIRES, Wire, World, asking, assert_refused, error_of};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
const AS_DATA: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==";

/// A place for images on this machine.
fn gallery() -> Upstream {
    let gallery = Upstream::start();
    gallery.always_for(".png", Reply::bytes("image/png", PNG));
    gallery.always_for(".html", Reply::bytes("text/html", &b"<p>"[..]));
    gallery
}

async fn fetching(extra: &str) -> World {
    World::with(Setup::new().extra(extra), &[("image_urls", "\"fetch\"")]).await
}

fn reaching(gallery: &Upstream, limits: &str) -> String {
    format!("[egress]\nallow_private = [\"{}\"]\n{limits}", gallery.address())
}

fn looking(urls: &[String]) -> Value {
    let images = urls.iter().map(|url| json!({"type": "input_image", "image_url": url}));
    let content: Vec<Value> =
        [json!({"type": "input_text", "text": "What is it?"})].into_iter().chain(images).collect();
    json!({"input": [null, {"role": "user", "content": content}]})
}

async fn asked(world: &World, wire: Wire, request: &Value) -> HttpAnswer {
    world.amalgam.client().post_json("/v1/responses", &asking(wire, Delivery::Whole, request)).await
}

#[tokio::test]
async fn an_image_on_a_private_address_is_refused_by_its_place_without_a_connection() {
    let gallery = gallery();
    let world = fetching("").await;
    for wire in WIRES {
        for url in [
            format!("{}/a.png", gallery.url()),
            format!("http://localhost:{}/a.png", gallery.address().port()),
            format!("https://{}/a.png", gallery.address()),
        ] {
            let request = looking(&["data:image/png;base64,AA==".to_owned(), url]);
            let answer = asked(&world, wire, &request).await;
            assert_refused(&answer, 400, Some("input[1].content[2].image_url"), "invalid_url");
        }
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?}");
    }
    assert_eq!(gallery.connections(), 0);
}

#[tokio::test]
async fn an_image_that_may_be_fetched_reaches_the_model_as_bytes() {
    let gallery = gallery();
    let world = fetching(&reaching(&gallery, "")).await;
    for wire in WIRES {
        let request = looking(&[format!("{}/a.png", gallery.url()), format!("{}/a.png", gallery.url())]);
        world.whole(wire, &Script::text(&["A picture."]), &request).await;
        let sent = world.sent(wire).to_string();
        let expected = if wire == Wire::Anthropic { AS_DATA.rsplit(',').next().unwrap() } else { AS_DATA };
        assert_eq!(sent.matches(expected).count(), 2, "{wire:?}: {sent}");
        assert!(!sent.contains(&gallery.url()), "{wire:?}: {sent}");
    }
    assert_eq!(gallery.requests().len(), WIRES.len(), "an address that is named twice is fetched once");
    let answer = asked(&world, Wire::Chat, &looking(&[format!("{}/a.html", gallery.url())])).await;
    assert_eq!((answer.status.as_u16(), &error_of(&answer)["param"]), (400, &json!("input[1].content[1].image_url")));
}

#[tokio::test]
async fn a_screenshot_of_a_computer_is_fetched_like_any_other_image() {
    let gallery = gallery();
    let world = fetching(&reaching(&gallery, "")).await;
    let shot = |url: String| {
        json!({"input": [
            {"role": "user", "content": "Look."},
            {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "screenshot"}, "status": "completed"},
            {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}},
        ]})
    };
    for wire in WIRES {
        world.whole(wire, &Script::text(&["A window."]), &shot(format!("{}/a.png", gallery.url()))).await;
        let sent = world.sent(wire).to_string();
        assert!(sent.contains(AS_DATA.rsplit(',').next().unwrap()), "{wire:?}: {sent}");
        assert!(!sent.contains(&gallery.url()), "{wire:?}: {sent}");
        let answer = asked(&world, wire, &shot("http://127.0.0.1:9/a.png".to_owned())).await;
        assert_refused(&answer, 400, Some("input[2].output.image_url"), "invalid_url");
    }
}

#[tokio::test]
async fn fetched_images_share_the_bytes_that_a_turn_may_have() {
    let gallery = gallery();
    let world = fetching(&reaching(&gallery, &format!("[limits]\nmedia_bytes = \"{}B\"", 2 * PNG.len()))).await;
    let urls = |count: usize| (0..count).map(|n| format!("{}/{n}.png", gallery.url())).collect::<Vec<_>>();
    world.whole(Wire::Chat, &Script::text(&["Two."]), &looking(&urls(2))).await;
    let answer = asked(&world, Wire::Chat, &looking(&urls(3))).await;
    assert_refused(&answer, 413, Some("input[1].content[3].image_url"), "request_too_large");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 1);
}

/// Addresses that no upstream may be sent to.
fn private(port: u16) -> [String; 12] {
    [
        "file:///etc/passwd".to_owned(),
        "FILE:///etc/passwd".to_owned(),
        "/etc/passwd".to_owned(),
        "gopher://example.com/a".to_owned(),
        format!("http://127.0.0.1:{port}/a.png"),
        format!("http://localhost:{port}/a.png"),
        format!("http://0x7f000001:{port}/a.png"),
        format!("http://[::ffff:127.0.0.1]:{port}/a.png"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "https://10.1.2.3/a.png".to_owned(),
        "https://wiki/a.png".to_owned(),
        "https://wiki.internal/a.png".to_owned(),
    ]
}

#[tokio::test]
async fn a_file_or_a_private_address_is_never_handed_to_an_upstream() {
    // right E5
    let gallery = gallery();
    let world = World::start().await;
    for wire in WIRES {
        for url in private(gallery.address().port()) {
            let answer = asked(&world, wire, &looking(&["data:image/png;base64,AA==".to_owned(), url.clone()])).await;
            assert_refused(&answer, 400, Some("input[1].content[2].image_url"), "invalid_url");
            let file = json!({"type": "input_file", "file_url": url});
            let answer = asked(&world, wire, &json!({"input": [{"role": "user", "content": [file]}]})).await;
            assert_refused(&answer, 400, Some("input[0].content[0].file_url"), "invalid_url");
            let output = json!([{"type": "input_image", "image_url": url}]);
            let answer = asked(
                &world,
                wire,
                &json!({"input": [
                    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": output},
                ]}),
            )
            .await;
            assert_refused(&answer, 400, Some("input[1].output[0].image_url"), "invalid_url");
        }
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?}");
    }
    assert_eq!(gallery.connections(), 0);
}

#[tokio::test]
async fn a_public_address_and_an_allowed_private_one_are_handed_to_the_upstream_as_they_are() {
    // right E5
    let gallery = gallery();
    let world = World::with(Setup::new().extra(&reaching(&gallery, "")), &[]).await;
    let urls = [format!("{}/a.png", gallery.url()), "https://images.example.com/a.png".to_owned()];
    for wire in WIRES {
        world.whole(wire, &Script::text(&["A picture."]), &looking(&urls)).await;
        let sent = world.sent(wire).to_string();
        assert!(urls.iter().all(|url| sent.contains(url)), "{wire:?}: {sent}");
    }
    let other = format!("http://127.0.0.1:{}/a.png", Upstream::start().address().port());
    assert_refused(
        &asked(&world, Wire::Chat, &looking(&[other])).await,
        400,
        Some("input[1].content[1].image_url"),
        "invalid_url",
    );
    assert_eq!(gallery.connections(), 0, "the upstream fetches it, not this server");
}
