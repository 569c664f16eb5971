//! Shared parts of this crate's tests.

use amalgam_core::Seal;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Seals in plain text, so that tests can inspect the content, but still bound to its context.
pub(crate) struct PlainSeal;

impl Seal for PlainSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("ams1.{context}|{}", String::from_utf8_lossy(plain))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let plain = sealed.strip_prefix("ams1.")?.strip_prefix(context)?.strip_prefix('|')?;
        Some(plain.as_bytes().to_vec())
    }
}

/// Item lists in which every call has one output somewhere after it, with messages anywhere. Ids are reused after their
/// output.
pub(crate) fn answered_items() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((0..8_u8, any::<prop::sample::Index>()), 0..40).prop_map(|steps| {
        let mut items = vec![json!({"role": "user", "content": "go"})];
        let mut open: Vec<(bool, String)> = Vec::new();
        let mut free: Vec<String> = Vec::new();
        let mut made = 0;
        for (step, pick) in steps {
            match step {
                0..=2 => {
                    let id = match free.is_empty() || pick.index(3) > 0 {
                        true => {
                            made += 1;
                            format!("c{made}")
                        }
                        false => free.swap_remove(pick.index(free.len())),
                    };
                    let custom = pick.index(4) == 0;
                    items.push(match custom {
                        false => json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{\"x\":1}"}),
                        true => json!({"type": "custom_tool_call", "call_id": id, "name": "g", "input": "free text"}),
                    });
                    open.push((custom, id));
                }
                3..=4 if !open.is_empty() => {
                    let (custom, id) = open.swap_remove(pick.index(open.len()));
                    items.push(answer(custom, &id));
                    free.push(id);
                }
                5 => items.push(json!({"role": "user", "content": format!("asked {}", items.len())})),
                6 => items.push(json!({"role": "assistant", "content": format!("said {}", items.len())})),
                _ => items.push(json!({"role": "developer", "content": format!("told {}", items.len())})),
            }
        }
        items.extend(open.iter().map(|(custom, id)| answer(*custom, id)));
        items
    })
}

fn answer(custom: bool, id: &str) -> Value {
    let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
    json!({"type": kind, "call_id": id, "output": "done"})
}
