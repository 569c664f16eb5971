use amalgam_protocol::ResponseParameters;
use serde_json::{Value, json};

use super::*;
use crate::history::normalise;

/// Seals in the clear, so that tests can look inside; bound to its context all the same.
struct PlainSeal;

impl Seal for PlainSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("ams1.{context}|{}", String::from_utf8_lossy(plain))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let plain = sealed.strip_prefix("ams1.")?.strip_prefix(context)?.strip_prefix('|')?;
        Some(plain.as_bytes().to_vec())
    }
}

const TENANT: &str = "tenant:1";

fn summary() -> Summary {
    Summary { text: "Wants \"a cake\".\nHas flour.".to_owned(), model: "m".to_owned(), created_at: 1_700_000_000 }
}

fn with_history<T>(items: &Value, check: impl FnOnce(&mut History<'_>) -> T) -> T {
    let body = json!({"instructions": "Be brief.", "input": items}).to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    check(&mut normalise(request.instructions.as_ref(), request.input.as_ref()))
}

fn compaction(sealed: &str) -> Value {
    json!({"type": "compaction", "id": "cmp_1", "encrypted_content": sealed})
}

#[test]
fn a_sealed_summary_opens_to_itself_and_for_its_own_tenant_only() {
    // P10
    let sealed = summary().seal(&PlainSeal, TENANT);
    assert_eq!(Summary::open(&sealed, &PlainSeal, TENANT), Some(summary()));
    assert_eq!(Summary::open(&sealed, &PlainSeal, "tenant:2"), None);
    let thoughts = PlainSeal.seal(TENANT, br#"{"version":1,"summary":"x"}"#);
    assert_eq!(Summary::open(&thoughts, &PlainSeal, TENANT), None, "sealed for another purpose");
    let newer = PlainSeal.seal("tenant:1/compaction", br#"{"version":2,"summary":"x"}"#);
    assert_eq!(Summary::open(&newer, &PlainSeal, TENANT), None);
}

#[test]
fn our_own_item_becomes_a_framed_summary_and_a_foreign_one_stays() {
    for kind in ["compaction", "compaction_summary"] {
        let ours = json!({"type": kind, "encrypted_content": summary().seal(&PlainSeal, TENANT)});
        let items =
            json!([ours, compaction("gAAAAAB"), {"type": "compaction"}, {"role": "user", "content": "and now?"}]);
        with_history(&items, |history| {
            open_all(history, &PlainSeal, TENANT).unwrap();
            let [Entry::Summary(text), Entry::Opaque(_), Entry::Opaque(_), Entry::Message { .. }] =
                history.entries.as_slice()
            else {
                panic!("{history:?}")
            };
            assert!(text.starts_with("[Summary of the conversation so far]\n"), "{text}");
            assert!(text.contains("\n\nWants \"a cake\".\nHas flour.\n[End of the summary]"), "{text}");
        });
    }
}

#[test]
fn a_summary_of_another_tenant_or_a_damaged_one_is_told_with_its_place() {
    // P10
    let others = summary().seal(&PlainSeal, "tenant:2");
    for sealed in [&others, "ams1.tenant:1/compaction|{", "ams1.", "ams2.7.garbage"] {
        let items = json!([{"role": "user", "content": "x"}, compaction(sealed)]);
        let fault =
            with_history(&items, |history| open_all(history, &PlainSeal, TENANT).unwrap_err().fault("input[1]"));
        assert_eq!(fault.param.as_deref(), Some("input[1].encrypted_content"), "{sealed}");
        assert_eq!(fault.code.as_deref(), Some("invalid_encrypted_content"), "{sealed}");
    }
}

#[test]
fn an_item_between_a_call_and_its_output_does_not_tear_them_apart() {
    // right A1
    let items = json!([
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        compaction(&summary().seal(&PlainSeal, TENANT)),
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]);
    with_history(&items, |history| {
        open_all(history, &PlainSeal, TENANT).unwrap();
        assert_eq!(history.losses, []);
        let entries = history.in_tool_turns();
        assert!(matches!(*entries, [Entry::Call(_), Entry::Output(_), Entry::Summary(_)]), "{history:?}");
    });
}

/// The retained items, with every message weighing one; ids of this program are replaced.
fn kept(items: &Value, budget: u64) -> (Vec<Value>, Vec<String>) {
    with_history(items, |history| {
        let kept = keep(history, &mut Ids::seeded(1), budget, |_| 1);
        let items = kept.items.iter().map(|item| {
            let mut item: Value = serde_json::from_slice(item.bytes()).unwrap();
            let id = item["id"].as_str().expect("every item has an id").to_owned();
            if id.contains("_AM-") {
                item["id"] = json!("ours");
            }
            item
        });
        (items.collect(), kept.losses.iter().map(ToString::to_string).collect())
    })
}

#[test]
fn the_latest_messages_of_the_user_stay_word_for_word_and_instructions_all_of_them() {
    let items = json!([
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": "oldest"},
        {"role": "user", "id": "msg_own", "content": [{"type": "input_text", "text": "older"},
            {"type": "input_image", "image_url": "https://example.com/a.png"}]},
        {"role": "assistant", "content": "hm"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "reasoning", "summary": []},
        compaction(&summary().seal(&PlainSeal, TENANT)),
        {"type": "message", "role": "user", "content": "newest"},
    ]);
    let message = |id: &str, role: &str, content: Value| json!({"id": id, "type": "message", "status": "completed", "role": role, "content": content});
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let expected = [
        message("ours", "developer", json!([text("rules")])),
        message(
            "msg_own",
            "user",
            json!([text("older"), {"type": "input_image", "image_url": "https://example.com/a.png"}]),
        ),
        message("ours", "user", json!([text("newest")])),
    ];
    assert_eq!(
        kept(&items, 2),
        (expected.to_vec(), vec!["output: one message of the user stands in the summary only".to_owned()])
    );
}

#[test]
fn a_bare_text_stays_as_a_message_and_a_message_that_is_too_long_ends_the_list() {
    let text = json!({"id": "ours", "type": "message", "status": "completed", "role": "user",
        "content": [{"type": "input_text", "text": "hi"}]});
    assert_eq!(kept(&json!("hi"), 1), (vec![text], vec![]));
    let two = json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]);
    assert_eq!(
        kept(&two, 0),
        (vec![], vec!["output: 2 older messages of the user stand in the summary only".to_owned()])
    );
}
