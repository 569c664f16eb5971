//! Processes that die, stop and continue, and the other processes on the same store. P1 to P6
//!
//! `AMALGAM_SOAK_CYCLES` makes the tests with many deaths go on for longer; `make soak` sets it.

mod load;
mod records;

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use amalgam_testkit::{Amalgam, Gate, Reply, Setup, check, sse};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::{
    load::{Calls, Promise, TOOL, assert_kept, assert_once, load, prepare, repeat, settle},
    records::{Change, Deaths, Records, assert_audited, assert_balanced, assert_booked, change, count_all},
};
use crate::support::{
    BINARY, Beside, Cli, Delivery, SOON, Script, TestStore, Wire, World, asking, beside, cancel, embedded_store, ended,
    final_after_a_death, id_of, last_response, put_tool, retrieved, say, shared_store, standing, text_of, types,
};

#[expect(clippy::disallowed_methods, reason = "the environment of the test run says how many cycles")]
fn cycles() -> usize {
    std::env::var("AMALGAM_SOAK_CYCLES").ok().and_then(|cycles| cycles.parse().ok()).unwrap_or(20)
}

fn say_how_far(what: &str, cycle: usize, promises: usize) {
    if cycle.is_multiple_of(10) {
        say(&format!("{what}: {cycle} of {} deaths, {promises} promises kept", cycles()));
    }
}

/// A moment between 40 ms and half a second, another one for every cycle.
fn some_time(cycle: usize) -> Duration {
    Duration::from_millis(40 + (cycle as u64 * 7919) % 460)
}

#[tokio::test]
async fn what_one_process_began_another_polls_follows_cancels_and_continues() {
    let Some(store) = shared_store() else { return };
    let world = World::with(store.setup(Setup::new()), &[]).await;
    let second = world.another().await;
    let (here, there) = (world.amalgam.client(), second.client());

    // Polls and continues.
    let first = world.whole(Wire::Chat, &Script::text(&["first answer"]), &json!({"input": "first"})).await;
    assert_eq!(retrieved(&there, id_of(&first)).await, first);
    world.upstream(Wire::Chat).enqueue(Script::text(&["second answer"]).reply(Wire::Chat, Delivery::Whole));
    let going_on = json!({"input": "second", "previous_response_id": id_of(&first)});
    let answer = there.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &going_on)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = world.sent(Wire::Chat)["messages"].clone();
    let texts: Vec<&str> =
        sent.as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["first", "first answer", "second"]);
    assert_eq!(retrieved(&here, id_of(&answer.json())).await, answer.json());

    // Cancels on either process: the upstream's connection is closed at once.
    for round in 0..4 {
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let asked = world.upstream(Wire::Chat).requests().len();
        let (beginning, ending) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let queued = beginning.post_json("/v1/responses", &request).await.json();
        world.upstream(Wire::Chat).wait_for_requests(asked + 1).await;
        assert_eq!(cancel(ending, id_of(&queued)).await.json()["status"], "cancelled");
        let started = Instant::now();
        world.upstream(Wire::Chat).wait_for_disconnect(asked).await;
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        assert_eq!(retrieved(beginning, id_of(&queued)).await["status"], "cancelled");
    }

    // Follows from the beginning, while it runs.
    let gate = Gate::new();
    let reply = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
    world.upstream(Wire::Chat).enqueue(reply);
    let mut own =
        here.post_stream("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}))).await;
    let created = own.next_of_type("response.created").await;
    let path = format!("/v1/responses/{}?stream=true", id_of(&created["response"]));
    let mut followed = there.try_stream(http::Method::GET, &path, &[], bytes::Bytes::new()).await.unwrap();
    let mut events = vec![followed.next_of_type("response.created").await];
    while types(&events).last() != Some(&"response.output_text.delta") {
        events.push(followed.next_event().await.expect("the model speaks").json());
    }
    gate.open();
    let rest = followed.rest().await;
    events.extend(rest.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
    assert_eq!(check::stream(&events), Vec::<String>::new());
    assert_eq!(own.next_of_type("response.completed").await, events[events.len() - 1]);
}

#[tokio::test]
async fn deaths_under_load_beside_a_process_that_lives() {
    let Some(store) = shared_store() else { return };
    let records = Arc::new(Records::new());
    let mut world = World::with(store.setup(records.setup()), &[]).await;
    records.listen(&world.amalgam).await;
    let cli = Cli::beside(&world.amalgam, &store);
    count_all(&cli, &[]);
    // A server knows the limits that it finds at its start.
    world.amalgam.kill();
    world.start_again().await;
    let world = Arc::new(world);
    store.note_hands();
    let store = Arc::new(store);
    prepare(world.upstream(Wire::Chat), world.upstream(Wire::Responses));
    let tool = put_tool(&world.amalgam.client(), TOOL, &json!({"kind": "builtin"})).await;
    assert!(tool.status.is_success(), "{}", tool.text());
    let calls = Calls::new();
    // What died is looked after while the next one is already under load.
    let mut checks: VecDeque<Beside<Vec<String>>> = VecDeque::new();
    let mut settled = HashSet::new();
    let mut deaths = Deaths::default();
    for cycle in 0..cycles() {
        let mut victim = world.another().await;
        let (stopping, stop) = watch::channel(false);
        let client = victim.client();
        let callers = beside(async move { load(&client, cycle, stop).await });
        let administrator = beside(change(victim.client(), cycle));
        tokio::time::sleep(some_time(cycle)).await;
        victim.kill();
        let killed = Instant::now();
        stopping.send_replace(true);
        let acknowledged = Acknowledged { promised: callers.end().await, change: administrator.end().await, killed };
        deaths.count(&acknowledged.promised);
        let (world, store, calls) = (Arc::clone(&world), Arc::clone(&store), Arc::clone(&calls));
        let records = Arc::clone(&records);
        checks.push_back(beside(async move { check_beside(&world, &store, &calls, &records, acknowledged).await }));
        if checks.len() > 12
            && let Some(check) = checks.pop_front()
        {
            settled.extend(check.end().await);
        }
        say_how_far("beside a process that lives", cycle, settled.len());
    }
    for check in checks {
        settled.extend(check.end().await);
    }
    // All turns wait for the row of one limit, and the processes have just started.
    assert!(settled.len() > cycles() * 2, "there was hardly any load: {} promises", settled.len());
    assert_eq!(store.unfinished(), 0, "nothing is stuck");
    let served = served(&world, &calls);
    assert_balanced(&world.amalgam, &store, &settled, served, deaths).await;
    assert_booked(&cli, cycles()).await;
}

/// All calls that the upstreams have received.
fn served(world: &World, calls: &Mutex<Calls>) -> usize {
    let mut calls = calls.lock().expect("no task panicked");
    calls.count([world.upstream(Wire::Chat), world.upstream(Wire::Responses)]);
    calls.served()
}

/// What a process had acknowledged when it was killed.
struct Acknowledged {
    promised: Vec<Promise>,
    change: Option<Change>,
    killed: Instant,
}

fn ids(settled: &[(Promise, Value)]) -> Vec<String> {
    settled.iter().map(|(_, response)| id_of(response).to_owned()).collect()
}

async fn check_beside(
    world: &World,
    store: &TestStore,
    calls: &Mutex<Calls>,
    records: &Records,
    Acknowledged { promised, change, killed }: Acknowledged,
) -> Vec<String> {
    let client = world.amalgam.client();
    let upstreams = [world.upstream(Wire::Chat), world.upstream(Wire::Responses)];
    let settled = settle(&client, &promised, killed, || Some(store.in_hand())).await;
    {
        let mut calls = calls.lock().expect("no task panicked");
        calls.count(upstreams);
        assert_kept(&settled, &calls);
    }
    repeat(&client, &promised).await;
    {
        let mut calls = calls.lock().expect("no task panicked");
        calls.count(upstreams);
        assert_once(&promised, &calls);
    }
    records.assert_delivered(&settled).await;
    if let Some(change) = change {
        assert_audited(&world.amalgam, &change).await;
    }
    ids(&settled)
}

#[tokio::test]
async fn deaths_under_load_and_a_restart_on_the_same_file() {
    let records = Records::new();
    let mut world = World::with(records.setup(), &[]).await;
    records.listen(&world.amalgam).await;
    let cli = Cli::within(world.amalgam.folder());
    count_all(&cli, &["--in-flight", "100000"]);
    // A server knows the limits that it finds at its start.
    world.amalgam.kill();
    world.start_again().await;
    prepare(world.upstream(Wire::Chat), world.upstream(Wire::Responses));
    let tool = put_tool(&world.amalgam.client(), TOOL, &json!({"kind": "builtin"})).await;
    assert!(tool.status.is_success(), "{}", tool.text());
    let calls = Calls::new();
    let mut kept: Vec<(Promise, Value)> = Vec::new();
    let mut all_settled = HashSet::new();
    let mut deaths = Deaths::default();
    for cycle in 0..cycles() {
        let (stopping, stop) = watch::channel(false);
        let client = world.amalgam.client();
        let callers = beside(async move { load(&client, cycle, stop).await });
        let administrator = beside(change(world.amalgam.client(), cycle));
        tokio::time::sleep(some_time(cycle)).await;
        world.amalgam.kill();
        let killed = Instant::now();
        stopping.send_replace(true);
        let (promised, change) = (callers.end().await, administrator.end().await);
        deaths.count(&promised);
        world.start_again().await;
        let client = world.amalgam.client();
        let settled = settle(&client, &promised, killed, || None).await;
        {
            let mut calls = calls.lock().expect("no task panicked");
            calls.count([world.upstream(Wire::Chat), world.upstream(Wire::Responses)]);
            assert_kept(&settled, &calls);
        }
        repeat(&client, &promised).await;
        {
            let mut calls = calls.lock().expect("no task panicked");
            calls.count([world.upstream(Wire::Chat), world.upstream(Wire::Responses)]);
            assert_once(&promised, &calls);
        }
        records.assert_delivered(&settled).await;
        if let Some(change) = change {
            assert_audited(&world.amalgam, &change).await;
        }
        all_settled.extend(ids(&settled));
        // A few of each life are looked at again in the next one.
        kept.truncate(20);
        for (promise, response) in &kept {
            assert_eq!(&retrieved(&client, id_of(response)).await, response, "{promise:?}");
        }
        kept.splice(0..0, settled.into_iter().take(20));
        say_how_far("restarts on one file", cycle, all_settled.len());
        if cycle.is_multiple_of(10) {
            let served = served(&world, &calls);
            assert_balanced(&world.amalgam, &embedded_store(), &all_settled, served, deaths).await;
        }
        assert_booked(&cli, cycle + 1).await;
    }
    assert!(all_settled.len() > cycles() * 4, "there was hardly any load: {} promises", all_settled.len());
    let served = served(&world, &calls);
    assert_balanced(&world.amalgam, &embedded_store(), &all_settled, served, deaths).await;
}

#[tokio::test]
async fn what_a_dead_process_was_doing_fails_and_what_it_had_not_begun_runs() {
    // P3
    let Some(store) = shared_store() else { return };
    let mut world = World::with(store.setup(Setup::new().extra("[limits]\nmax_in_flight = 2")), &[]).await;
    let client = world.amalgam.client();
    // Two streams fill the process: one in the middle of its text, one before it.
    let words = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream);
    world.upstream(Wire::Chat).enqueue(words.clone().hang_after(3));
    world.upstream(Wire::Chat).enqueue(words.hang_after(1));
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let mut streams = Vec::new();
    for event in ["response.output_text.delta", "response.in_progress"] {
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
        stream.next_of_type(event).await;
        streams.push((id, stream));
    }
    let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
    let queued = client.post_json("/v1/responses", &request).await.json();
    let second = world.another().await;
    // The other one has room, and takes what waits as soon as it is there.
    world.upstream(Wire::Chat).from_now_on(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole));
    world.amalgam.kill();
    let killed = Instant::now();
    for (id, _) in &streams {
        let failed = ended(&second.client(), id).await;
        assert_eq!(
            (&failed["status"], &failed["error"]["code"]),
            (&json!("failed"), &json!("server_error")),
            "{failed}"
        );
        assert!(failed["error"]["message"].as_str().unwrap().contains("stopped"), "{failed}");
        assert!(killed.elapsed() < final_after_a_death(), "{:?}", killed.elapsed());
        // Its stream can be read from the beginning, and to the end after any event.
        let told = second.client().get(&format!("/v1/responses/{id}?stream=true")).await;
        assert_eq!(check::body(&told.body), Vec::<String>::new(), "{}", told.text());
        assert_eq!(last_response(&told.json_events()), failed);
        let told = second.client().get(&format!("/v1/responses/{id}?stream=true&starting_after=40")).await;
        let events = told.json_events();
        assert_eq!(types(&events), ["error", "response.failed"]);
        assert_eq!(events[0]["sequence_number"], 41);
        assert_eq!(last_response(&events), failed);
    }
    let completed = standing(&second.client(), id_of(&queued), "completed").await;
    assert_eq!(text_of(&completed), "done");
}

#[tokio::test]
async fn a_process_that_slept_tells_its_callers_what_the_store_says() {
    // P5
    let Some(store) = shared_store() else { return };
    let world = World::with(store.setup(Setup::new()), &[]).await;
    let second = world.another().await;
    let client = world.amalgam.client();
    let gate = Gate::new();
    let words = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream);
    // One turn whose model continues when the process resumes, and one whose model stays silent.
    world.upstream(Wire::Chat).enqueue(words.clone().hold_after(3, &gate));
    world.upstream(Wire::Chat).enqueue(words.hang_after(3));
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let mut events = vec![stream.next_of_type("response.created").await];
        while types(&events).last() != Some(&"response.output_text.delta") {
            events.push(stream.next_event().await.expect("the model speaks").json());
        }
        streams.push((events, stream));
    }
    world.upstream(Wire::Chat).enqueue(Reply::hang());
    let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
    let mut background = Vec::new();
    for client in [&client, &second.client()] {
        background.push(client.post_json("/v1/responses", &request).await.json());
        world.upstream(Wire::Chat).enqueue(Reply::hang());
    }
    world.upstream(Wire::Chat).wait_for_requests(4).await;

    world.amalgam.put_to_sleep();
    let asleep = Instant::now();
    let mut stored = Vec::new();
    for (events, _) in &streams {
        stored.push(ended(&second.client(), id_of(&events[0]["response"])).await);
    }
    assert!(asleep.elapsed() < final_after_a_death(), "{:?}", asleep.elapsed());
    // Long enough for every process to be sure.
    tokio::time::sleep(Duration::from_secs(15).saturating_sub(asleep.elapsed())).await;
    world.amalgam.wake();
    gate.open();
    for ((mut events, stream), stored) in streams.into_iter().zip(stored) {
        let rest = stream.rest().await;
        events.extend(rest.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
        let problems = check::stream(&events);
        assert_eq!(problems, Vec::<String>::new(), "{events:#?}");
        assert_eq!(last_response(&events), stored);
        assert_eq!(retrieved(&client, id_of(&stored)).await, stored, "awake or not, it stays");
    }
    // The process works again. A background turn has failed if it ran here; the process that runs the others cancels them.
    let response = world.whole(Wire::Responses, &Script::text(&["fine"]), &json!({"input": "Hi"})).await;
    assert_eq!(retrieved(&second.client(), id_of(&response)).await, response);
    for response in &background {
        let ended = cancel(&client, id_of(response)).await.json();
        assert!(ended["status"] == "failed" || ended["status"] == "cancelled", "{ended}");
    }
    for silent in 1..4 {
        world.upstream(Wire::Chat).wait_for_disconnect(silent).await;
    }
}

#[tokio::test]
async fn a_second_process_on_an_embedded_store_does_not_start() {
    let world = World::start().await;
    let exit = Amalgam::try_start(BINARY, Setup::new().home(&world.amalgam.home()))
        .await
        .expect_err("one process serves from a file");
    assert!(!exit.status.success() && exit.stderr.contains("another server uses this database"), "{}", exit.stderr);
    world.amalgam.client().get("/healthz").await;
}
