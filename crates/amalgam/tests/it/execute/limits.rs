//! Turns that come to a bound: of output, and of tools.

use amalgam_testkit::Setup;
use serde_json::json;

use super::desk::{Desk, open, taken, turn};
use crate::support::{Said, Script, WIRES, stores};

fn clock(id: &str) -> Script {
    Script::new([Said::call(id, "clock", &["{}"])])
}

// right C6
#[tokio::test]
async fn the_limit_of_output_bounds_each_call_of_the_model_and_a_cut_turn_is_not_empty() {
    for store in stores() {
        let desk = Desk::with(&store, Setup::new().env("AI_AGENT_MAX_OUTPUT_TOKENS", "8")).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [clock("call_1"), clock("call_2"), Script::text(&["It is late."])]);
            let envelope = taken(&ana, &turn(&id, "t1", "What time is it?")).await;
            assert_eq!(
                (&envelope["Text"], &envelope["FinishReason"]),
                (&json!("It is late."), &json!("stop")),
                "{wire:?}"
            );
            for asked in desk.asked(wire) {
                let limit =
                    [&asked["max_output_tokens"], &asked["max_tokens"]].into_iter().find(|limit| !limit.is_null());
                assert_eq!(limit, Some(&json!(8)), "{wire:?}: {asked}");
            }
            let mut cut = Script::new([Said::reasoning(&["Let me see"])]);
            cut.cut_by_length = true;
            desk.says(wire, [cut]);
            let envelope = taken(&ana, &turn(&id, "t2", "And now?")).await;
            let told = (&envelope["Kind"], &envelope["FinishReason"], &envelope["Text"]);
            assert_eq!(told, (&json!("ok"), &json!("length"), &json!(null)), "{wire:?}");
            assert_eq!(envelope["Warnings"], json!(["the answer is incomplete: max_output_tokens"]), "{wire:?}");
        }
    }
}

// right B4
#[tokio::test]
async fn a_turn_that_the_bound_of_tools_ends_says_so_as_its_finish_reason() {
    for store in stores() {
        let desk = Desk::with(&store, Setup::new().env("AI_AGENT_MAX_TOOL_ITERATIONS", "1")).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [clock("call_1"), Script::text(&["As far as I came."])]);
            let envelope = taken(&ana, &turn(&id, "t1", "What time is it?")).await;
            let told = (&envelope["FinishReason"], &envelope["Text"]);
            assert_eq!(told, (&json!("tool_iterations"), &json!("As far as I came.")), "{wire:?}");
        }
    }
}
