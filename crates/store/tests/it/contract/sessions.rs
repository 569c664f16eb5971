//! The queue of a session: one request after the other, in the order of arrival, also when processes die or callers disconnect.

use std::time::Duration;

use amalgam_core::{
    Scope,
    store::{
        Begin, MessageRecord, MetadataRecord, NewUserMessage, ProcessId, SessionEnd, SessionHistory, Ticket, TurnWrite,
        Within, WriteOutcome, session_topic,
    },
};
use amalgam_protocol::Status;
use tokio::{task::JoinSet, time::timeout};

use crate::given::*;

const ERROR: &str = r#"{"message":"the process died","type":"server_error","param":null,"code":"process_died"}"#;

fn died(tools: &[String]) -> String {
    ERROR.replace("the process died", &["the process died", &tools.join(" ")].concat())
}

pub(crate) fn known(kind: &str, value: &str) -> MetadataRecord {
    MetadataRecord { kind: kind.into(), value: json(value) }
}

pub(crate) fn words(turn: &Turn, content: &str) -> NewUserMessage {
    NewUserMessage {
        response_id: turn.id.clone(),
        content: content.into(),
        metadata: Vec::new(),
        history_messages: 100,
        starts_session: false,
        now_ms: NOW,
    }
}

pub(crate) async fn join_queue(store: &Engine, scope: &Scope, profile: Option<&str>) -> Ticket {
    store.join_queue(scope, profile, HERE, NOW, None).await.unwrap().ticket
}

pub(crate) async fn is_next(store: &Engine, scope: &Scope, ticket: Ticket) -> Option<bool> {
    store.is_next(scope, ticket).await.unwrap()
}

/// The last step of a turn in a thread.
pub(crate) fn answering(turn: &Turn, ticket: Ticket, heard: &SessionHistory, text: &str) -> TurnWrite {
    let session = SessionEnd {
        ticket,
        answer: Some((heard.assistant_message_id, text.into())),
        metadata: vec![(heard.assistant_message_id, known("model_usage", r#"{"total_tokens":7}"#))],
        now_ms: NOW + 1,
    };
    TurnWrite { session: Some(Box::new(session)), ..turn.ending() }
}

/// A whole turn in the session with a profile: waits until it is first, appends its message, and writes the answer.
pub(crate) async fn talk(
    store: &Engine,
    scope: &Scope,
    profile: Option<&str>,
    process: ProcessId,
    text: &str,
) -> Ticket {
    let ticket = store.join_queue(scope, profile, process, NOW, None).await.unwrap().ticket;
    loop {
        let changed = store.changed(&session_topic(ticket.session_id));
        match store.is_next(scope, ticket).await.unwrap() {
            Some(true) => break,
            Some(false) => timeout(Duration::from_secs(60), changed).await.expect("waiting requests are notified"),
            None => panic!("the place is gone"),
        }
    }
    let turn = Turn::new(text);
    let heard = store.append_message(scope, ticket, words(&turn, text)).await.unwrap().expect("it is this one's time");
    keep(store, scope, TurnWrite { process, ..turn.beginning(turn.begin()) }).await;
    tokio::task::yield_now().await;
    keep(store, scope, TurnWrite { process, ..answering(&turn, ticket, &heard, &format!("re {text}")) }).await;
    ticket
}

/// What was said in a thread, oldest first.
pub(crate) async fn said(store: &Engine, scope: &Scope, session_id: i64) -> Vec<(String, String)> {
    let mut messages = store.messages(scope, session_id, None, 1000).await.unwrap().unwrap();
    messages.reverse();
    messages.into_iter().map(|message| (message.role, message.content)).collect()
}

pub(crate) fn dialogue(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(role, content)| ((*role).to_owned(), (*content).to_owned())).collect()
}

pub(crate) async fn metadata(store: &Engine, scope: &Scope, id: i64) -> Vec<MetadataRecord> {
    store.message(scope, id).await.unwrap().unwrap().metadata
}

pub(crate) async fn the_user_speaks_when_its_place_has_come(store: Engine) {
    let anna = anna();
    let (first, second) = (join_queue(&store, &anna, None).await, join_queue(&store, &anna, None).await);
    assert!(first.number < second.number);
    assert_eq!(is_next(&store, &anna, first).await, Some(true));
    assert_eq!(is_next(&store, &anna, second).await, Some(false));
    let (one, two) = (Turn::new("one"), Turn::new("two"));
    assert_eq!(store.append_message(&anna, second, words(&two, "two")).await.unwrap(), None, "not yet");

    let about = vec![known("system_prompt", r#"{"version":"v1"}"#), known("context", r#"{"course_id":28}"#)];
    let asked = NewUserMessage { metadata: about.clone(), ..words(&one, "satu \u{1F980}") };
    let heard = store.append_message(&anna, first, asked.clone()).await.unwrap().unwrap();
    assert!(heard.user_message_id < heard.assistant_message_id);
    assert_eq!(heard.history, []);
    assert_eq!(
        store.append_message(&anna, first, asked).await.unwrap(),
        Some(heard.clone()),
        "the same once more is the same"
    );
    assert_eq!(store.append_message(&anna, first, words(&two, "two")).await.unwrap(), None, "a place speaks once");

    let expected = MessageRecord {
        id: heard.user_message_id,
        session_id: first.session_id,
        role: "user".into(),
        content: "satu \u{1F980}".into(),
        response_id: Some(one.id.clone()),
        created_at_ms: NOW,
        metadata: about,
    };
    assert_eq!(store.message(&anna, heard.user_message_id).await.unwrap(), Some(expected.clone()));
    let listed = MessageRecord { metadata: Vec::new(), ..expected };
    assert_eq!(store.messages(&anna, first.session_id, None, 9).await.unwrap(), Some(vec![listed]));
    assert_eq!(store.message(&anna, heard.assistant_message_id).await.unwrap(), None, "it has no answer yet");
    assert_eq!(is_next(&store, &anna, second).await, Some(false), "the first one is not done");
    let elsewhere = Ticket { session_id: first.session_id + 1, number: first.number };
    assert_eq!(is_next(&store, &anna, elsewhere).await, None);
}

pub(crate) async fn the_end_of_a_turn_answers_and_lets_the_next_one_speak(store: Engine) {
    let anna = anna();
    let (first, second) = (join_queue(&store, &anna, None).await, join_queue(&store, &anna, None).await);
    let turn = Turn::new("one");
    let asked = NewUserMessage { metadata: vec![known("context", r#"{"course_id":28}"#)], ..words(&turn, "one") };
    let heard = store.append_message(&anna, first, asked).await.unwrap().unwrap();
    keep(&store, &anna, turn.beginning(turn.begin())).await;
    let told = store.changed(&session_topic(first.session_id));
    let (question, answer) = (heard.user_message_id, heard.assistant_message_id);
    let metadata = vec![
        (answer, known("model_usage", r#"{"total_tokens":7}"#)),
        (question, known("tool_call", r#"{"name":"get_course_detail"}"#)),
        (answer, known("tool_call", r#"{"name":"x"}"#)),
        // Not of this turn.
        (answer + 1, known("error", "{}")),
    ];
    let end = SessionEnd { ticket: first, answer: Some((answer, "re one".into())), metadata, now_ms: NOW + 5 };
    keep(&store, &anna, TurnWrite { session: Some(Box::new(end)), ..turn.ending() }).await;
    timeout(Duration::from_secs(60), told).await.expect("waiting requests are notified");
    assert_eq!(is_next(&store, &anna, first).await, None);
    assert_eq!(is_next(&store, &anna, second).await, Some(true));

    let expected = MessageRecord {
        id: answer,
        session_id: first.session_id,
        role: "assistant".into(),
        content: "re one".into(),
        response_id: Some(turn.id.clone()),
        created_at_ms: NOW + 5,
        metadata: vec![known("model_usage", r#"{"total_tokens":7}"#), known("tool_call", r#"{"name":"x"}"#)],
    };
    assert_eq!(store.message(&anna, answer).await.unwrap(), Some(expected.clone()));
    let about = vec![known("context", r#"{"course_id":28}"#), known("tool_call", r#"{"name":"get_course_detail"}"#)];
    assert_eq!(self::metadata(&store, &anna, question).await, about);
    let record = store.sessions(&anna, None, 9).await.unwrap().remove(0);
    assert_eq!((record.messages, record.created_at_ms, record.updated_at_ms), (2, NOW, NOW + 5));
    let (told, messages) =
        store.session_within(Within::Named(operator(), 1), first.session_id, None, 1).await.unwrap().unwrap();
    assert_eq!((told, messages), (record, vec![expected]));

    let next = Turn::new("two");
    let heard = store.append_message(&anna, second, words(&next, "two")).await.unwrap().unwrap();
    assert_eq!(heard.history, dialogue(&[("user", "one"), ("assistant", "re one")]));
    assert!(heard.user_message_id > answer);
}

pub(crate) async fn a_turn_that_failed_leaves_the_question_and_an_error(store: Engine) {
    // RNCC-20
    let anna = anna();
    let (first, second) = (join_queue(&store, &anna, None).await, join_queue(&store, &anna, None).await);
    let turn = Turn::new("one");
    let heard = store.append_message(&anna, first, words(&turn, "one")).await.unwrap().unwrap();
    keep(&store, &anna, turn.beginning(turn.begin())).await;
    let error = known("error", r#"{"code":"upstream"}"#);
    let metadata = vec![(heard.user_message_id, error.clone()), (heard.assistant_message_id, error.clone())];
    let end = SessionEnd { ticket: first, answer: None, metadata, now_ms: NOW };
    keep(&store, &anna, TurnWrite { session: Some(Box::new(end)), ..turn.ending() }).await;
    assert_eq!(said(&store, &anna, first.session_id).await, dialogue(&[("user", "one")]));
    assert_eq!(self::metadata(&store, &anna, heard.user_message_id).await, [error]);
    assert_eq!(store.sessions(&anna, None, 9).await.unwrap()[0].messages, 1);
    assert_eq!(is_next(&store, &anna, second).await, Some(true));
}

pub(crate) async fn a_lost_write_says_nothing_in_the_thread(store: Engine) {
    let anna = anna();
    let (ticket, next) = (join_queue(&store, &anna, None).await, join_queue(&store, &anna, None).await);
    let turn = Turn::new("one");
    let heard = store.append_message(&anna, ticket, words(&turn, "one")).await.unwrap().unwrap();
    let unknown = answering(&turn, ticket, &heard, "re one");
    assert_eq!(store.write(&anna, unknown.into()).await.unwrap(), WriteOutcome::Lost, "it has not begun");
    keep(&store, &anna, turn.beginning(turn.begin())).await;
    let foreign = TurnWrite { process: THERE, ..answering(&turn, ticket, &heard, "re one") };
    assert_eq!(store.write(&anna, foreign.into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(said(&store, &anna, ticket.session_id).await, dialogue(&[("user", "one")]));
    assert_eq!(is_next(&store, &anna, next).await, Some(false));

    keep(&store, &anna, answering(&turn, ticket, &heard, "re one")).await;
    let twice = answering(&turn, ticket, &heard, "again");
    assert_eq!(store.write(&anna, twice.into()).await.unwrap(), WriteOutcome::Lost);
    let expected = dialogue(&[("user", "one"), ("assistant", "re one")]);
    assert_eq!(said(&store, &anna, ticket.session_id).await, expected);
    assert_eq!(store.sessions(&anna, None, 9).await.unwrap()[0].messages, 2);
}

pub(crate) async fn only_the_turn_that_spoke_ends_its_place(store: Engine) {
    // S10: a ticket is only a number.
    let anna = anna();
    let ticket = join_queue(&store, &anna, None).await;
    let turn = Turn::new("one");
    let heard = store.append_message(&anna, ticket, words(&turn, "one")).await.unwrap().unwrap();
    for other in [anna.clone(), scope(1, "bert"), scope(2, "anna")] {
        let intruder = Turn::new("intruder");
        keep(&store, &other, intruder.beginning(intruder.begin())).await;
        keep(&store, &other, answering(&intruder, ticket, &heard, "not asked")).await;
    }
    assert_eq!(said(&store, &anna, ticket.session_id).await, dialogue(&[("user", "one")]));
    assert_eq!(is_next(&store, &anna, ticket).await, Some(true));
    keep(&store, &anna, turn.beginning(turn.begin())).await;
    let wrong = SessionHistory { assistant_message_id: heard.assistant_message_id + 40, ..heard.clone() };
    keep(&store, &anna, answering(&turn, ticket, &wrong, "under another number")).await;
    assert_eq!(said(&store, &anna, ticket.session_id).await, dialogue(&[("user", "one")]));
}

pub(crate) async fn a_request_that_leaves_the_queue_lets_the_next_one_run(store: Engine) {
    let anna = anna();
    let tickets = [
        join_queue(&store, &anna, None).await,
        join_queue(&store, &anna, None).await,
        join_queue(&store, &anna, None).await,
    ];
    let session = tickets[0].session_id;
    let error = known("error", r#"{"code":"cancelled"}"#);
    for stranger in strangers() {
        store.leave_queue(&stranger, tickets[0], Some(error.clone())).await.unwrap();
    }
    assert_eq!(is_next(&store, &anna, tickets[1]).await, Some(false));
    let told = store.changed(&session_topic(session));
    store.leave_queue(&anna, tickets[0], Some(error.clone())).await.unwrap();
    timeout(Duration::from_secs(60), told).await.expect("waiting requests are notified");
    store.leave_queue(&anna, tickets[0], None).await.unwrap();
    assert_eq!(is_next(&store, &anna, tickets[0]).await, None);
    assert_eq!(is_next(&store, &anna, tickets[1]).await, Some(true));
    assert_eq!(said(&store, &anna, session).await, [], "nothing was said");

    let turn = Turn::new("one");
    let heard = store.append_message(&anna, tickets[1], words(&turn, "one")).await.unwrap().unwrap();
    store.leave_queue(&anna, tickets[1], Some(error.clone())).await.unwrap();
    assert_eq!(metadata(&store, &anna, heard.user_message_id).await, [error]);
    let turn = Turn::new("two");
    let heard = store.append_message(&anna, tickets[2], words(&turn, "two")).await.unwrap().unwrap();
    store.leave_queue(&anna, tickets[2], None).await.unwrap();
    assert_eq!(metadata(&store, &anna, heard.user_message_id).await, []);
    assert_eq!(said(&store, &anna, session).await, dialogue(&[("user", "one"), ("user", "two")]));
}

pub(crate) async fn history_is_what_was_said_last_in_order(store: Engine) {
    let anna = anna();
    for number in 0..6 {
        talk(&store, &anna, None, HERE, &format!("q{number}")).await;
        talk(&store, &anna, Some("home"), HERE, "elsewhere").await;
    }
    let heard = async |history_messages| {
        let (ticket, turn) = (join_queue(&store, &anna, None).await, Turn::new("last"));
        let asked = NewUserMessage { history_messages, ..words(&turn, "last") };
        let heard = store.append_message(&anna, ticket, asked).await.unwrap().unwrap();
        store.leave_queue(&anna, ticket, None).await.unwrap();
        heard.history
    };
    assert_eq!(heard(3).await, dialogue(&[("assistant", "re q4"), ("user", "q5"), ("assistant", "re q5")]));
    assert_eq!(heard(0).await, []);
    let all = heard(1000).await;
    assert_eq!(all.len(), 14, "messages without an answer are included");
    assert_eq!(all[..3], dialogue(&[("user", "q0"), ("assistant", "re q0"), ("user", "q1")]));
    assert_eq!(all[12..], dialogue(&[("user", "last"), ("user", "last")]));
}

pub(crate) async fn racing_callers_share_one_thread_and_never_interleave(store: Engine) {
    race(&[store]).await;
}

/// Callers of two users and two tenants speak at once, through several processes.
pub(crate) async fn race(stores: &[Engine]) {
    let mut racing = JoinSet::new();
    let callers = [scope(1, "anna"), scope(1, "bert"), scope(2, "anna")];
    for number in 0..36 {
        let at = number % stores.len();
        let (store, caller) = (stores[at].clone(), callers[number % 3].clone());
        let (profile, process) = ((number % 2 == 0).then_some("home"), ProcessId(at as u128));
        racing.spawn(async move {
            let text = format!("{} {} {number}", caller.tenant_id(), caller.user());
            let ticket = talk(&store, &caller, profile, process, &text).await;
            (caller, profile, ticket, text)
        });
    }
    let mut talks = racing.join_all().await;
    talks.sort_by_key(|(_, _, ticket, _)| ticket.number);
    for caller in &callers {
        let sessions = stores[0].sessions(caller, None, 99).await.unwrap();
        assert_eq!(sessions.len(), 2, "one thread with each profile");
        for session in sessions {
            // In the order in which they lined up, each question followed by its answer.
            let of = |talk: &&(Scope, Option<&str>, Ticket, String)| talk.2.session_id == session.id;
            let expected: Vec<(String, String)> = talks
                .iter()
                .filter(of)
                .inspect(|talk| assert_eq!((&talk.0, talk.1), (caller, session.profile.as_deref())))
                .flat_map(|(.., text)| dialogue(&[("user", text), ("assistant", &format!("re {text}"))]))
                .collect();
            assert_eq!(expected.len(), 12);
            assert_eq!(said(&stores[0], caller, session.id).await, expected);
            assert_eq!(session.messages, 12);
        }
    }
}

pub(crate) async fn a_dead_process_leaves_the_thread_usable(store: Engine) {
    let anna = anna();
    let dead = join_queue(&store, &anna, None).await;
    let waiting = join_queue(&store, &anna, None).await;
    let other = join_queue(&store, &scope(2, "anna"), None).await;
    let elsewhere = store.join_queue(&anna, None, THERE, NOW, None).await.unwrap().ticket;
    let turn = Turn::new("one");
    let heard = store.append_message(&anna, dead, words(&turn, "one")).await.unwrap().unwrap();
    keep(&store, &anna, turn.beginning(turn.begin())).await;
    keep(&store, &anna, TurnWrite { tools: vec![run(0)], ..turn.step() }).await;
    store.beat(operator(), HERE, 1).await.unwrap();
    let told = store.changed(&session_topic(dead.session_id));
    assert!(store.end_dead_process(operator(), HERE, 1, died, NOW).await.unwrap().is_some());
    timeout(Duration::from_secs(60), told).await.expect("waiting requests are notified");

    for (scope, gone) in [(&anna, dead), (&anna, waiting), (&scope(2, "anna"), other)] {
        assert_eq!(is_next(&store, scope, gone).await, None);
    }
    let error = known("error", r#"{"code":"process_died","message":"the process diedbook_room"}"#);
    assert_eq!(metadata(&store, &anna, heard.user_message_id).await, [error]);
    // What it does after it was recovered says nothing.
    let late = answering(&turn, dead, &heard, "re one");
    assert_eq!(store.write(&anna, late.into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(is_next(&store, &anna, elsewhere).await, Some(true));
    store.leave_queue(&anna, elsewhere, None).await.unwrap();
    let next = talk(&store, &anna, None, THERE, "two").await;
    assert_eq!(next.session_id, dead.session_id);
    let expected = dialogue(&[("user", "one"), ("user", "two"), ("assistant", "re two")]);
    assert_eq!(said(&store, &anna, dead.session_id).await, expected);
}

pub(crate) async fn a_response_that_ended_otherwise_does_not_block(store: Engine) {
    let anna = anna();
    let speak = async |background| {
        let (ticket, turn) = (join_queue(&store, &anna, None).await, Turn::new("one"));
        let next = join_queue(&store, &anna, None).await;
        let heard = store.append_message(&anna, ticket, words(&turn, "one")).await.unwrap().unwrap();
        keep(&store, &anna, turn.beginning(Begin { background, ..turn.begin() })).await;
        assert_eq!(is_next(&store, &anna, next).await, Some(false));
        (turn, next, heard.user_message_id)
    };
    let message = "The turn did not come to its end.";
    let told =
        |code: &str, message: &str| vec![known("error", &format!(r#"{{"code":"{code}","message":"{message}"}}"#))];

    let (turn, next, question) = speak(true).await;
    let rung = store.changed(&session_topic(next.session_id));
    store.cancel_response(&anna, &turn.id, NOW).await.unwrap().unwrap();
    timeout(Duration::from_secs(60), rung).await.expect("waiting requests are notified");
    assert_eq!(is_next(&store, &anna, next).await, Some(true));
    assert_eq!(metadata(&store, &anna, question).await, told("cancelled", message));
    store.leave_queue(&anna, next, None).await.unwrap();

    let (turn, next, question) = speak(false).await;
    let rung = store.changed(&session_topic(next.session_id));
    assert!(store.delete_response(&anna, &turn.id).await.unwrap());
    timeout(Duration::from_secs(60), rung).await.expect("waiting requests are notified");
    assert_eq!(is_next(&store, &anna, next).await, Some(true));
    let deleted = told("deleted", "The response was deleted before it came to its end.");
    assert_eq!(metadata(&store, &anna, question).await, deleted);
    store.leave_queue(&anna, next, None).await.unwrap();

    // Ends that were not added to the session.
    for (status, expected) in [(Status::Failed, told("failed", message)), (Status::Completed, Vec::new())] {
        let (turn, next, question) = speak(false).await;
        let mut end = turn.completed();
        end.state = self::told(status);
        keep(&store, &anna, TurnWrite { end: Some(Box::new(end)), ..turn.step() }).await;
        assert_eq!(is_next(&store, &anna, next).await, Some(true));
        assert_eq!(metadata(&store, &anna, question).await, expected);
        store.leave_queue(&anna, next, None).await.unwrap();
    }
}

pub(crate) async fn a_caller_that_disconnects_while_joining_the_queue_does_not_block(store: Engine) {
    let anna = anna();
    // At once, and after having looked for a moment whether it is done.
    for patience in [None, Some(0), Some(50), Some(200)] {
        let getting = store.join_queue(&anna, None, HERE, NOW, None);
        let Some(patience) = patience else { continue };
        if let Ok(told) = timeout(Duration::from_micros(patience), getting).await {
            store.leave_queue(&anna, told.unwrap().ticket, None).await.unwrap();
        }
    }
    let ticket = join_queue(&store, &anna, None).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while is_next(&store, &anna, ticket).await != Some(true) {
        assert!(tokio::time::Instant::now() < deadline, "a position without an owner is in the way");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.sessions(&anna, None, 9).await.unwrap().len(), 1);
}

pub(crate) async fn a_message_that_begins_a_session_closes_the_active_one(store: Engine) {
    let anna = anna();
    let join = async |profile: &'static str, starts_session: bool| {
        let turn = Turn::new("hi");
        let message = NewUserMessage { starts_session, ..words(&turn, "hi") };
        store.join_queue(&anna, Some(profile), HERE, NOW, Some(message)).await.unwrap()
    };
    let (first, other) = (join("home", false).await, join("course", false).await);
    // It does not wait for the turns of the session before.
    let second = join("home", true).await;
    assert_ne!(first.ticket.session_id, second.ticket.session_id);
    assert_eq!(second.history.map(|history| history.history), Some(Vec::new()));
    assert_eq!(join("home", false).await.ticket.session_id, second.ticket.session_id);
    assert_eq!(is_next(&store, &anna, first.ticket).await, Some(true), "the turn of the closed session goes on");
    let sessions = store.sessions(&anna, None, 9).await.unwrap();
    let active: Vec<i64> = sessions.iter().filter(|session| session.active).map(|session| session.id).collect();
    assert_eq!(active, [second.ticket.session_id, other.ticket.session_id]);
}

pub(crate) async fn messages_of_browsers_are_counted_for_each_user_and_day(store: Engine) {
    let anna = anna();
    let count = async |scope: &Scope, day, limit| store.count_client_message(scope, day, limit).await.unwrap();
    assert_eq!([count(&anna, 7, 2).await, count(&anna, 7, 2).await, count(&anna, 7, 2).await], [true, true, false]);
    assert!(count(&anna, 7, 3).await, "another limit for the same count");
    assert!(!count(&anna, 6, 3).await, "a clock that is behind does not begin the day again");
    for other in [scope(1, "bert"), scope(2, "anna")] {
        assert!(count(&other, 7, 1).await);
    }
    assert!(count(&anna, 8, 1).await);
    assert!(!count(&anna, 8, 1).await);
}
