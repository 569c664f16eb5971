//! How much of a thread the model receives, for threads of any length.

use std::fs;

use amalgam_testkit::{Amalgam, Reply, Setup};
use serde_json::json;

use super::campus::{ALPHA, Campus, said, whole};
use crate::support::{Said, Script, say, stores};

fn heard(campus: &Campus<'_>) -> Vec<String> {
    said(&campus.last_asked()).into_iter().map(|(role, text)| format!("{role} {text}")).collect()
}

#[tokio::test]
async fn either_limit_ends_what_the_model_is_reminded_of_and_no_message_is_split() {
    // RNCC-28, RNCC-40: AI_AGENT_HISTORY_MAX_MESSAGES, AI_AGENT_HISTORY_MAX_CHARS
    for store in stores() {
        let setup = Setup::new().env("AI_AGENT_HISTORY_MAX_MESSAGES", "4").env("AI_AGENT_HISTORY_MAX_CHARS", "12");
        let campus = Campus::with(&store, setup).await;
        let ana = campus.user(ALPHA, "ana");
        for (words, answer, expected) in [
            ("u1", "a1", vec!["user u1"]),
            ("u2", "a2", vec!["user u1", "assistant a1", "user u2"]),
            ("u3", "a3", vec!["user u1", "assistant a1", "user u2", "assistant a2", "user u3"]),
            // Four messages at most, whole turns or not.
            ("ééééé", "a4", vec!["user u2", "assistant a2", "user u3", "assistant a3", "user ééééé"]),
            // Characters, not bytes: 2 + 5 + 2 + 2 = 11.
            ("u5", "a5", vec!["user u3", "assistant a3", "user ééééé", "assistant a4", "user u5"]),
            ("u6", "123456789", vec!["user ééééé", "assistant a4", "user u5", "assistant a5", "user u6"]),
            // 9 + 2 = 11; the one before would be the thirteenth character.
            ("u7", "a7", vec!["user u6", "assistant 123456789", "user u7"]),
        ] {
            campus.chat(&ana, json!({"message": words}), answer).await;
            assert_eq!(heard(&campus), expected, "{words}");
        }
        // A tenant may want none of it, or all.
        campus.configure(ALPHA, json!({"history_max_messages": 0})).await;
        campus.chat(&ana, json!({"message": "u8"}), "a8").await;
        assert_eq!(heard(&campus), ["user u8"]);
        campus.configure(ALPHA, json!({"history_max_messages": 100, "history_max_chars": 100_000})).await;
        campus.chat(&ana, json!({"message": "u9"}), "a9").await;
        assert_eq!(heard(&campus).len(), 17);
    }
}

#[tokio::test]
async fn what_tools_did_in_earlier_turns_is_not_repeated_to_the_model() {
    // RNCC-28: no result without its call, since there is neither
    for store in stores() {
        let campus = Campus::on(&store).await;
        let ana = campus.user(ALPHA, "ana");
        let call = Said::call("call_1", "get_course_detail", &["{\"course_id\":28}"]);
        campus.says(&[Script::new([Said::text(&["Wait."]), call]), Script::text(&["Leading."])]);
        campus.told(&ana, json!({"agent": "course-assistant", "message": "What is it?"})).await;
        campus.chat(&ana, json!({"agent": "course-assistant", "message": "And?"}), "More.").await;
        assert_eq!(heard(&campus), ["user What is it?", "assistant Leading.", "user And?"]);
        let items = campus.last_asked()["input"].as_array().map(Vec::len);
        assert_eq!(items, Some(3), "{}", campus.last_asked());
    }
}

/// Hundredths of a second of processor time that a process has used.
fn cpu(amalgam: &Amalgam) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", amalgam.pid())).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// A thread of this many messages, made by turns of the door itself.
async fn talk(campus: &Campus<'_>, user: &str, turns: usize) {
    let client = campus.user(ALPHA, user);
    for _ in 0..turns {
        let answer = super::campus::respond(&client, &json!({"message": "Something to say"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_long_thread_costs_no_more_than_a_short_one() {
    // RNCC-28; `AMALGAM_SOAK_CYCLES` makes it as long as threads get.
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.upstream.answer_for("/responses", |_| whole(&Script::text(&["Something to answer"]), "resp_up_1"));
        campus.upstream.always_for("/models", Reply::json(json!({"data": []})));
        talk(&campus, "short", 10).await;
        talk(&campus, "long", turns_of_a_long_thread()).await;
        let mut spent = Vec::new();
        let mut sizes = Vec::new();
        for user in ["short", "long"] {
            let before = cpu(&campus.amalgam);
            talk(&campus, user, 100).await;
            spent.push(cpu(&campus.amalgam) - before);
            sizes.push(campus.last_asked().to_string().len());
        }
        say(&format!(
            "{}: 100 turns took {} ticks in a short thread and {} in a long one",
            store.name, spent[0], spent[1]
        ));
        assert_eq!(sizes[0], sizes[1], "the model is asked the same");
        assert_eq!(said(&campus.last_asked()).len(), 21);
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment of the test run says how many")]
fn turns_of_a_long_thread() -> usize {
    std::env::var("AMALGAM_SOAK_CYCLES").map_or(400, |_| 5_000)
}
