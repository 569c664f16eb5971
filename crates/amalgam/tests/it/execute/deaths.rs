//! Processes that die while a turn waits or runs, and several processes that receive the same submission.

use amalgam_testkit::{Gate, Setup};
use serde_json::{Value, json};

use super::desk::{Desk, both, execute, open, results, session, status, taken, turn};
use crate::support::{FINAL, Script, WIRES, Wire, assert_calm, beside, eventually, shared_store, stores, told};

#[tokio::test]
async fn a_turn_that_waits_survives_the_death_of_its_process() {
    // P1, R034-27
    for store in stores() {
        let mut desk = Desk::on(&store).await;
        for wire in WIRES {
            let id = open(&desk.user("ana"), wire).await;
            desk.says(wire, [both()]);
            let waiting = taken(&desk.user("ana"), &turn(&id, "t1", "Check it")).await;
            desk.world.amalgam.kill();
            desk.world.start_again().await;
            let ana = desk.user("ana");
            assert_eq!(status(&ana, &id, "t1").await, ("pending".to_owned(), 1), "{} {wire:?}", store.name);
            assert_eq!(session(&ana, &id).await["PendingTurnId"], "t1");
            assert_eq!(taken(&ana, &turn(&id, "t1", "Check it")).await, waiting);
            desk.says(wire, [Script::text(&["All is well."])]);
            let done = taken(&ana, &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
            assert_eq!(
                (&done["Text"], &done["TurnId"]),
                (&json!("All is well."), &json!("t1")),
                "{} {wire:?}",
                store.name
            );
            let outputs = told(desk.asked(wire).last().unwrap()).into_iter().filter(|(who, _)| who == "output").count();
            assert_eq!(outputs, 2);
            desk.assert_asked(wire, 2, store.name);
        }
        assert_calm(&desk.world.amalgam);
    }
}

#[tokio::test]
async fn a_turn_whose_process_died_while_it_ran_is_run_anew_when_it_is_sent_again() {
    // P3, C-11
    for store in stores() {
        let mut desk = Desk::on(&store).await;
        let wire = Wire::Chat;
        let ana = desk.user("ana");
        let id = open(&ana, wire).await;
        let gate = Gate::new();
        desk.says_behind(wire, Script::text(&["Too ", "late."]), &gate);
        let body = turn(&id, "t1", "Hello");
        let (client, sent) = (ana.clone(), body.clone());
        let caller = beside(async move {
            let headers = [("content-type", "application/json")];
            client.try_request(http::Method::POST, super::desk::EXECUTE, &headers, sent.to_string().into()).await
        });
        desk.world.upstream(wire).wait_for_requests(1).await;
        desk.world.amalgam.kill();
        assert!(caller.end().await.is_err(), "the answer went down with its process");
        desk.world.start_again().await;
        let ana = desk.user("ana");
        desk.says(wire, [Script::text(&["Here I am."])]);
        // Until the death is noticed the turn counts as running, and is waited for.
        let envelope = eventually("the turn to be run anew", FINAL, async || {
            let envelope = execute(&ana, &body).await.json();
            (envelope["Kind"] == "ok").then_some(envelope)
        })
        .await;
        assert_eq!(envelope["Text"], "Here I am.", "{}", store.name);
        assert_eq!(status(&ana, &id, "t1").await, ("completed".to_owned(), 1));
        desk.assert_asked(wire, 2, store.name);
        assert_calm(&desk.world.amalgam);
    }
}

#[tokio::test]
async fn identical_submissions_at_once_on_two_processes_are_one_model_call() {
    // P6, C-11, C-13
    let Some(store) = shared_store() else { return };
    let desk = Desk::with(&store, Setup::new()).await;
    let second = desk.world.another().await;
    for (round, wire) in WIRES.into_iter().cycle().take(12).enumerate() {
        let here = desk.user("ana");
        let there = Desk::user_at(&second, "ana");
        let id = open(&here, wire).await;
        let asked = desk.asked(wire).len();
        desk.says(wire, [both()]);
        let begun = at_once(&[&here, &there, &here, &there], &turn(&id, "t1", "Check it")).await;
        desk.assert_asked(wire, asked + 1, &format!("turn {round}"));
        desk.says(wire, [Script::text(&["Once."])]);
        let done =
            at_once(&[&here, &there, &there, &here], &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
        desk.assert_asked(wire, asked + 2, &format!("continuation {round}"));
        assert_eq!((&begun["Kind"], &done["Text"]), (&json!("tool-only"), &json!("Once.")), "{wire:?}");
        assert_eq!(status(&there, &id, "t1").await, ("completed".to_owned(), 2));
    }
    assert_calm(&desk.world.amalgam);
    assert_calm(&second);
}

/// Sends the same from everywhere at once; all get the same answer.
async fn at_once(clients: &[&amalgam_testkit::Client], body: &Value) -> Value {
    let callers: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, body) = ((*client).clone(), body.clone());
            beside(async move { taken(&client, &body).await })
        })
        .collect();
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.end().await);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    answers.swap_remove(0)
}

#[tokio::test]
async fn what_waits_at_one_process_goes_on_at_another_after_its_death() {
    // P1, P3
    let Some(store) = shared_store() else { return };
    let mut desk = Desk::with(&store, Setup::new()).await;
    let second = desk.world.another().await;
    let there = Desk::user_at(&second, "ana");
    let id = open(&desk.user("ana"), Wire::Responses).await;
    desk.says(Wire::Responses, [both(), Script::text(&["Carried on."])]);
    taken(&desk.user("ana"), &turn(&id, "t1", "Check it")).await;
    desk.world.amalgam.kill();
    let done = taken(&there, &results(&id, "t1", &[("call_a", "1"), ("call_b", "2")])).await;
    assert_eq!(done["Text"], "Carried on.");
    // One that was running when its process died is failed in time, and the session is free again.
    desk.world.start_again().await;
    let gate = Gate::new();
    desk.says_behind(Wire::Responses, Script::text(&["Too ", "late."]), &gate);
    let first = desk.user("ana");
    let (client, body) = (first.clone(), turn(&id, "t2", "Go on"));
    let caller = beside(async move {
        let headers = [("content-type", "application/json")];
        client.try_request(http::Method::POST, super::desk::EXECUTE, &headers, body.to_string().into()).await
    });
    desk.world.upstream(Wire::Responses).wait_for_requests(3).await;
    desk.world.amalgam.kill();
    assert!(caller.end().await.is_err());
    desk.says(Wire::Responses, [Script::text(&["Free again."])]);
    let next = eventually("the session to be free", FINAL, async || {
        let answer = execute(&there, &turn(&id, "t3", "Are you there?")).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(next["Text"], "Free again.");
    assert_eq!(status(&there, &id, "t2").await.0, "failed");
    assert_calm(&second);
}
