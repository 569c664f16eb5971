//! Many users at once, several messages of one user at once, processes that die: no message is lost, doubled or crossed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, Gate, HttpAnswer, Reply, Request};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::campus::{ALPHA, BETA, Campus, GAMMA, known, respond, said, user_of, whole};
use crate::support::{FINAL, Said, Script, assert_calm, beside, eventually, shared_store, stores};

/// What a message meets at the model, by what it says.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Answered,
    Slow,
    Refused,
    Cut,
}

/// Users and tenants do not meet the same at once: an upstream that fails ten times in a row is left alone for a while.
fn fate(text: &str) -> Fate {
    let mut digits = text.chars().filter_map(|c| c.to_digit(10)).peekable();
    if digits.peek().is_none() {
        return Fate::Answered;
    }
    let tenant = [ALPHA, BETA, GAMMA].iter().position(|key| text.starts_with(key)).unwrap_or_default();
    match digits.sum::<u32>() as usize + 4 * tenant {
        number if number % 10 == 3 => Fate::Refused,
        number if number % 10 == 6 => Fate::Cut,
        number if number % 4 == 0 => Fate::Slow,
        _ => Fate::Answered,
    }
}

/// Answers every message with its own text, unless it is planned to fail.
fn model(request: &Request) -> Reply {
    let (_, text) = said(&request.json()).pop().expect("something was said");
    let answer = whole(&Script::text(&[&format!("re: {text}")]), &format!("resp_{text}"));
    match fate(&text) {
        Fate::Answered => answer,
        Fate::Slow => answer.after(Duration::from_millis(40)),
        Fate::Refused => Reply::status(400).with_json(json!({"error": {"message": "no", "code": "invalid_prompt"}})),
        Fate::Cut => Reply::json(json!({"id": "resp_cut"})).cut_after(1),
    }
}

/// Checks one session: all its messages, and their answers.
async fn assert_thread(
    campus: &Campus<'_>,
    key: &str,
    user: &str,
    sent: &[String],
    answers: &BTreeMap<String, HttpAnswer>,
) {
    let client = campus.user(key, user);
    let sessions = client.get("/api/v2/ai-agent/sessions/").await.json();
    assert_eq!(sessions["results"].as_array().map(Vec::len), Some(1), "{user} has one thread: {sessions}");
    let thread = campus.thread(key, &sessions["results"][0]["id"]).await;
    let lines: Vec<(String, String)> =
        thread.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect();
    let mut said_by_user: Vec<String> =
        lines.iter().filter(|(role, _)| role == "user").map(|(_, content)| content.clone()).collect();
    said_by_user.sort_unstable();
    let mut expected = sent.to_vec();
    expected.sort_unstable();
    let refused: Vec<String> =
        sent.iter().filter(|message| !said_by_user.contains(message)).map(|message| answers[message].text()).collect();
    assert_eq!(
        said_by_user,
        expected,
        "{user}: nothing is lost, nothing doubled; {refused:?} {}",
        campus.amalgam.stderr()
    );
    for (place, (role, content)) in lines.iter().enumerate() {
        if role == "assistant" {
            // Each answer is right behind its own question.
            assert_eq!(*content, format!("re: {}", lines[place - 1].1), "{user}: {lines:?}");
            continue;
        }
        let answer = &answers[content];
        let answered = lines.get(place + 1).is_some_and(|(role, _)| role == "assistant");
        let well = !matches!(fate(content), Fate::Refused | Fate::Cut);
        assert_eq!(
            (answered, answer.status.as_u16()),
            (well, if well { 200 } else { 503 }),
            "{content}: {}",
            answer.text()
        );
        assert_eq!(known(&thread[place], "error").len(), usize::from(!well), "{content}");
        if well {
            let body = answer.json();
            assert_eq!(body["message"], format!("re: {content}"));
            assert_eq!(body["session_id"], sessions["results"][0]["id"]);
            assert_eq!(
                (&body["user_message_id"], &body["assistant_message_id"]),
                (&thread[place]["id"], &thread[place + 1]["id"])
            );
            assert_eq!(body["response_id"], format!("resp_{content}"));
        }
        // The model received the thread up to here: in order, and no other user's messages.
        let heard: Vec<Vec<(String, String)>> = campus
            .asked()
            .iter()
            .map(said)
            .filter(|heard| heard.last().is_some_and(|(_, last)| last == content))
            .collect();
        assert!(!heard.is_empty(), "{content} reached the model");
        for heard in heard {
            assert_eq!(heard, lines[..=place], "{content}");
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn send_all(messages: Vec<(Client, String)>) -> BTreeMap<String, HttpAnswer> {
    let mut callers = JoinSet::new();
    for (client, message) in messages {
        callers.spawn(async move {
            let answer = respond(&client, &json!({"message": message})).await;
            (message, answer)
        });
    }
    callers.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn two_hundred_messages_of_twenty_users_and_three_tenants_at_once() {
    // RNCC-26, RNCC-28, RNCC-29
    for store in stores() {
        let campus = Campus::on(&store).await;
        campus.upstream.answer_for("/responses", model);
        // The same names in all three tenants.
        let users: Vec<(&str, String)> =
            (0..20).map(|place| ([ALPHA, BETA, GAMMA][place % 3], format!("user{}", place / 3))).collect();
        let sent =
            |key: &str, user: &str| -> Vec<String> { (0..10).map(|number| format!("{key}-{user}-{number}")).collect() };
        let messages = (0..10).flat_map(|number| users.iter().map(move |(key, user)| (*key, user, number)));
        let messages = messages.map(|(key, user, number)| (campus.user(key, user), sent(key, user)[number].clone()));
        let answers = send_all(messages.collect()).await;
        assert_eq!(answers.len(), 200);
        for (key, user) in &users {
            assert_thread(&campus, key, user, &sent(key, user), &answers).await;
        }
        assert_calm(&campus.amalgam);
    }
}

#[tokio::test]
async fn two_processes_that_race_on_one_thread_make_one_and_take_turns() {
    // RNCC-26
    let Some(store) = shared_store() else { return };
    let campus = Campus::on(&store).await;
    let other = campus.another().await;
    campus.upstream.answer_for("/responses", model);
    for round in 0..5 {
        let user = format!("user{round}");
        // Few enough for the model to receive all of them.
        let sent: Vec<String> = (0..10).map(|number| format!("{user}-{}", number + round)).collect();
        let at = |place: usize| if place.is_multiple_of(2) { &campus.amalgam } else { &other };
        let messages =
            sent.iter().enumerate().map(|(place, message)| (user_of(at(place), ALPHA, &user), message.clone()));
        let answers = send_all(messages.collect()).await;
        assert_thread(&campus, ALPHA, &user, &sent, &answers).await;
    }
    assert_calm(&campus.amalgam);
    assert_calm(&other);
}

/// Returns when this number of requests wait in the queues of a server.
async fn until_waiting(amalgam: &Amalgam, count: u64) {
    let client = Client::new(amalgam.url());
    eventually("a place in line", FINAL, async || {
        (client.get("/readyz").await.json()["turns_waiting"] == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn messages_of_one_user_are_answered_in_the_order_in_which_they_came() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let gate = Gate::new();
        campus.upstream.enqueue_for("/responses", whole(&Script::text(&["re: 0"]), "resp_0").behind(&gate));
        campus.upstream.answer_for("/responses", model);
        let mut waiting = Vec::new();
        for number in 0..5 {
            let client = campus.user(ALPHA, "ana");
            waiting.push(beside(async move { respond(&client, &json!({"message": number.to_string()})).await }));
            // Each has its place before the next one comes: the first is with the model, the others wait in the queue.
            match number {
                0 => drop(campus.upstream.wait_for_requests(1).await),
                _ => until_waiting(&campus.amalgam, number).await,
            }
        }
        assert_eq!(campus.asked().len(), 1, "the first is alone");
        gate.open();
        let mut session = Value::Null;
        for (number, answer) in waiting.into_iter().enumerate() {
            let answer = answer.end().await;
            assert_eq!(
                (answer.status.as_u16(), &answer.json()["message"]),
                (
                    if number == 3 { 503 } else { 200 },
                    &match number {
                        3 => Value::Null,
                        _ => json!(format!("re: {number}")),
                    }
                )
            );
            if number != 3 {
                session = answer.json()["session_id"].clone();
            }
        }
        let thread = campus.thread(ALPHA, &session).await;
        let contents: Vec<&str> = thread.iter().filter_map(|message| message["content"].as_str()).collect();
        assert_eq!(contents, ["0", "re: 0", "1", "re: 1", "2", "re: 2", "3", "4", "re: 4"]);
    }
}

#[tokio::test]
async fn a_caller_that_disconnects_while_it_waits_leaves_the_queue_and_adds_no_message() {
    for store in stores() {
        let campus = Campus::on(&store).await;
        let gate = Gate::new();
        campus.upstream.enqueue_for("/responses", whole(&Script::text(&["re: first"]), "resp_0").behind(&gate));
        campus.upstream.answer_for("/responses", model);
        let say = |message: &'static str| {
            let client = campus.user(ALPHA, "ana");
            beside(async move { respond(&client, &json!({"message": message})).await })
        };
        let first = say("first");
        campus.upstream.wait_for_requests(1).await;
        let second = say("second");
        until_waiting(&campus.amalgam, 1).await;
        let third = say("third");
        until_waiting(&campus.amalgam, 2).await;
        second.leave().await;
        until_waiting(&campus.amalgam, 1).await;
        gate.open();
        assert_eq!(first.end().await.status, 200);
        let third = third.end().await;
        assert_eq!(third.status, 200, "{}", third.text());
        let thread = campus.thread(ALPHA, &third.json()["session_id"]).await;
        let contents: Vec<&str> = thread.iter().filter_map(|message| message["content"].as_str()).collect();
        assert_eq!(contents, ["first", "re: first", "third", "re: third"]);
    }
}

/// A turn that has run a tool and waits for the model's next word.
async fn in_the_middle_of_its_tools(
    campus: &Campus<'_>,
    amalgam: &Amalgam,
) -> crate::support::Beside<Result<HttpAnswer, String>> {
    let call = Script::new([Said::call("call_1", "get_course_detail", &["{\"course_id\":28}"])]);
    campus.upstream.enqueue_for("/responses", whole(&call, "resp_1"));
    campus.upstream.enqueue_for("/responses", Reply::hang());
    let turn = say_at(amalgam, "before the end");
    campus.upstream.wait_for_requests(2).await;
    turn
}

/// Says something at a process that may go away.
fn say_at(amalgam: &Amalgam, message: &str) -> crate::support::Beside<Result<HttpAnswer, String>> {
    let client = user_of(amalgam, ALPHA, "ana");
    let body = json!({"agent": "course-assistant", "message": message}).to_string();
    beside(async move {
        let headers = [("content-type", "application/json")];
        client.try_request(http::Method::POST, super::campus::RESPOND, &headers, body.into()).await
    })
}

async fn assert_usable(campus: &Campus<'_>, amalgam: &Amalgam) {
    let client = user_of(amalgam, ALPHA, "ana");
    campus.upstream.answer_for("/responses", model);
    let body = json!({"agent": "course-assistant", "message": "after it"});
    let answer = tokio::time::timeout(FINAL * 2, respond(&client, &body)).await.expect("the line moves on");
    assert_eq!((answer.status.as_u16(), &answer.json()["message"]), (200, &json!("re: after it")), "{}", answer.text());
    let session = answer.json()["session_id"].clone();
    let thread = eventually("what was cut off to be marked", FINAL, async || {
        let reader = Client::new(amalgam.url()).with_key(ALPHA);
        let shown = reader.get(&format!("/admin/sessions/{session}")).await.json();
        let mut thread = shown["messages"].as_array().cloned().unwrap_or_default();
        thread.reverse();
        (!known(thread.first()?, "error").is_empty()).then_some(thread)
    })
    .await;
    let lines: Vec<(&str, &str)> =
        thread.iter().filter_map(|message| Some((message["role"].as_str()?, message["content"].as_str()?))).collect();
    assert_eq!(lines, [("user", "before the end"), ("user", "after it"), ("assistant", "re: after it")]);
    let heard: Vec<String> = said(&campus.last_asked()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(heard, ["before the end", "after it"]);
}

#[tokio::test]
async fn a_process_that_is_killed_between_two_tools_leaves_a_thread_that_goes_on() {
    // P3
    for store in stores() {
        let mut campus = Campus::on(&store).await;
        let turn = in_the_middle_of_its_tools(&campus, &campus.amalgam).await;
        campus.amalgam.kill();
        assert!(turn.end().await.is_err(), "no answer is sent");
        campus.start_again().await;
        assert_usable(&campus, &campus.amalgam).await;
    }
}

#[tokio::test]
async fn a_thread_goes_on_at_another_process_when_its_own_is_killed() {
    // P3
    let Some(store) = shared_store() else { return };
    let campus = Arc::new(Campus::on(&store).await);
    let mut victim = campus.another().await;
    let turn = in_the_middle_of_its_tools(&campus, &victim).await;
    // Two more wait in the queue behind it, at the process that dies.
    let waiting = [1, 2].map(|_| say_at(&victim, "never said"));
    until_waiting(&victim, 2).await;
    victim.kill();
    assert!(turn.end().await.is_err(), "no answer is sent");
    for waiting in waiting {
        assert!(waiting.end().await.is_err(), "nor to those that waited");
    }
    assert_usable(&campus, &campus.amalgam).await;
}
