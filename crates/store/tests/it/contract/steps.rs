//! C-11, C-13: a submission of the strict contract is worked on once, and can be sent again at any time.

use amalgam_core::store::{AgentStep, AgentTurn, Ending, NewStep, Retention, StepState, TakenStep, TurnWrite};
use amalgam_protocol::Status;
use tokio::task::JoinSet;

use super::{
    execute::{open, session},
    retention::KEEP_ALL,
};
use crate::given::*;

pub(crate) const SESSION: &str = "sess_1";

fn died(_: &[String]) -> String {
    r#"{"message":"the process died","type":"server_error","param":null,"code":null}"#.to_owned()
}

/// A user's submission.
pub(crate) fn submitted(turn_id: &str, says: u8, answer: &Turn) -> NewStep {
    NewStep {
        session_id: SESSION.into(),
        turn_id: turn_id.into(),
        fingerprint: [says; 32],
        follows: None,
        response_id: answer.id.clone(),
        process: HERE,
        mode: "general".into(),
        notes: json(r#"{"Sources":["a.rs"]}"#),
        solution_context: None,
        now_ms: NOW + 1,
    }
}

/// Results for the calls of a response.
fn results(turn_id: &str, says: u8, follows: &Turn, answer: &Turn) -> NewStep {
    NewStep { follows: Some(follows.id.clone()), ..submitted(turn_id, says, answer) }
}

async fn take(store: &Engine, step: NewStep) -> TakenStep {
    store.take_step(&anna(), step).await.unwrap()
}

fn first(parent: Option<&Turn>) -> TakenStep {
    TakenStep::First { parent: parent.map(|turn| turn.id.clone()) }
}

/// The stored step of a submission.
fn kept(step: &NewStep, state: StepState) -> AgentStep {
    AgentStep {
        fingerprint: step.fingerprint,
        response_id: step.response_id.clone(),
        mode: step.mode.clone(),
        notes: step.notes.clone(),
        created_at_ms: step.now_ms,
        state,
    }
}

/// The same request once more, under another response.
fn again(step: &NewStep) -> NewStep {
    NewStep { response_id: Turn::new("again").id, process: THERE, ..step.clone() }
}

async fn begin(store: &Engine, turn: &Turn) {
    keep(store, &anna(), turn.beginning(turn.begin())).await;
}

async fn end(store: &Engine, turn: &Turn, status: Status) {
    let ending = Ending { state: told(status), output: turn.output.clone(), upstream: None };
    keep(store, &anna(), TurnWrite { end: Some(Box::new(ending)), ..turn.step() }).await;
}

/// A turn of one step that has ended like this.
async fn ended(store: &Engine, turn_id: &str, status: Status) -> Turn {
    let answer = Turn::new(turn_id);
    let taken = take(store, submitted(turn_id, 1, &answer)).await;
    assert!(matches!(taken, TakenStep::First { .. }), "{taken:?}");
    begin(store, &answer).await;
    end(store, &answer, status).await;
    answer
}

async fn turn(store: &Engine, turn_id: &str) -> AgentTurn {
    store.agent_turn(&anna(), SESSION, turn_id).await.unwrap().unwrap()
}

/// An open session, and processes that live.
pub(crate) async fn begun(store: &Engine) {
    for process in [HERE, THERE] {
        store.beat(operator(), process, 1).await.unwrap();
    }
    open(store, &anna(), SESSION).await;
}

pub(crate) async fn a_submission_is_worked_on_once(store: Engine) {
    // C-11, R034-13
    begun(&store).await;
    let answer = Turn::new("hi");
    let step = submitted("t1", 1, &answer);
    assert_eq!(take(&store, step.clone()).await, first(None));
    let running = TakenStep::Already(kept(&step, StepState::Running));
    assert_eq!(take(&store, again(&step)).await, running, "before there is a response");
    assert_eq!(take(&store, step.clone()).await, running, "also for the process that took it");
    begin(&store, &answer).await;
    assert_eq!(take(&store, again(&step)).await, running);
    assert_eq!(take(&store, NewStep { fingerprint: [9; 32], ..again(&step) }).await, TakenStep::Different);

    end(&store, &answer, Status::Completed).await;
    let done = TakenStep::Already(kept(&step, StepState::Ended(Status::Completed)));
    assert_eq!(take(&store, again(&step)).await, done);
    assert_eq!(take(&store, NewStep { fingerprint: [9; 32], ..again(&step) }).await, TakenStep::Different);
    for status in [Status::Incomplete, Status::Cancelled] {
        let answer = ended(&store, status.name(), status).await;
        let step = submitted(status.name(), 1, &answer);
        assert_eq!(take(&store, again(&step)).await, TakenStep::Already(kept(&step, StepState::Ended(status))));
    }
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Ended(Status::Completed))]);
}

pub(crate) async fn what_failed_is_taken_again(store: Engine) {
    begun(&store).await;
    let failed = ended(&store, "t1", Status::Failed).await;
    let step = NewStep { notes: json("{}"), mode: "QA".into(), now_ms: NOW + 7, ..again(&submitted("t1", 1, &failed)) };
    assert_eq!(take(&store, NewStep { fingerprint: [9; 32], ..step.clone() }).await, TakenStep::Different);
    assert_eq!(take(&store, step.clone()).await, first(None));
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Running)]);
    assert_eq!(take(&store, again(&step)).await, TakenStep::Already(kept(&step, StepState::Running)));
    assert_eq!(session(&store, &anna(), SESSION).await.turns, 1);
}

pub(crate) async fn what_failed_is_said_behind_what_was_said_since(store: Engine) {
    begun(&store).await;
    let failed = ended(&store, "t1", Status::Failed).await;
    let second = ended(&store, "t2", Status::Completed).await;
    let anew = Turn::new("anew");
    let step = NewStep { response_id: anew.id.clone(), ..submitted("t1", 1, &failed) };
    assert_eq!(take(&store, step.clone()).await, first(Some(&second)));
    begin(&store, &anew).await;
    // It is not done beside another one.
    let third = submitted("t3", 1, &Turn::new("x"));
    assert_eq!(take(&store, third.clone()).await, TakenStep::Busy { turn_id: "t1".into() });
    end(&store, &anew, Status::Completed).await;
    assert_eq!(take(&store, third).await, first(Some(&anew)));
    let order: Vec<_> = store.agent_turns(&anna(), SESSION, None, 9).await.unwrap().unwrap();
    assert_eq!(order.iter().map(|turn| turn.turn_id.as_str()).collect::<Vec<_>>(), ["t3", "t1", "t2"]);
    assert_eq!(session(&store, &anna(), SESSION).await.turns, 3);
}

pub(crate) async fn a_session_works_on_one_turn_at_a_time(store: Engine) {
    begun(&store).await;
    let failed = ended(&store, "t0", Status::Failed).await;
    let answer = Turn::new("hi");
    assert_eq!(take(&store, submitted("t1", 1, &answer)).await, first(None));
    let (new, again) = (submitted("t2", 1, &Turn::new("x")), again(&submitted("t0", 1, &failed)));
    let busy = TakenStep::Busy { turn_id: "t1".into() };
    assert_eq!((take(&store, new.clone()).await, take(&store, again.clone()).await), (busy.clone(), busy.clone()));
    begin(&store, &answer).await;
    assert_eq!((take(&store, new.clone()).await, take(&store, again).await), (busy.clone(), busy));
    // Another session is another matter.
    open(&store, &anna(), "sess_2").await;
    let beside = NewStep { session_id: "sess_2".into(), ..submitted("t1", 1, &Turn::new("y")) };
    assert_eq!(take(&store, beside).await, first(None));
    end(&store, &answer, Status::Completed).await;
    assert_eq!(take(&store, new).await, first(Some(&answer)));
}

pub(crate) async fn a_turn_goes_on_from_the_last_one_that_ended_well(store: Engine) {
    begun(&store).await;
    let cut_short = ended(&store, "t1", Status::Incomplete).await;
    for (turn_id, status) in [("t2", Status::Failed), ("t3", Status::Cancelled)] {
        let answer = Turn::new(turn_id);
        assert_eq!(take(&store, submitted(turn_id, 1, &answer)).await, first(Some(&cut_short)), "{turn_id}");
        begin(&store, &answer).await;
        end(&store, &answer, status).await;
    }
    let last = Turn::new("t4");
    assert_eq!(take(&store, submitted("t4", 1, &last)).await, first(Some(&cut_short)));
}

pub(crate) async fn results_go_on_with_the_turn_that_waits_for_them(store: Engine) {
    // C-13
    begun(&store).await;
    let called = ended(&store, "t1", Status::Completed).await;
    let (second, third) = (Turn::new("second"), Turn::new("third"));
    let step = results("t1", 2, &called, &second);
    assert_eq!(take(&store, NewStep { turn_id: "t9".into(), ..step.clone() }).await, TakenStep::Missing);
    let elsewhere = results("t1", 2, &Turn::new("other"), &second);
    assert_eq!(take(&store, elsewhere).await, TakenStep::Different, "they are for something else");

    assert_eq!(take(&store, step.clone()).await, first(Some(&called)));
    let running = TakenStep::Already(kept(&step, StepState::Running));
    assert_eq!(take(&store, again(&step)).await, running);
    let other = NewStep { fingerprint: [3; 32], ..again(&step) };
    assert_eq!(take(&store, other.clone()).await, TakenStep::Different, "other results come too late");
    let next = results("t1", 4, &second, &third);
    assert_eq!(take(&store, next.clone()).await, TakenStep::Different, "there is nothing to go on with yet");
    begin(&store, &second).await;
    assert_eq!(take(&store, again(&step)).await, running);
    end(&store, &second, Status::Completed).await;
    let done = TakenStep::Already(kept(&step, StepState::Ended(Status::Completed)));
    assert_eq!((take(&store, again(&step)).await, take(&store, other).await), (done.clone(), TakenStep::Different));

    assert_eq!(take(&store, next.clone()).await, first(Some(&second)));
    begin(&store, &third).await;
    end(&store, &third, Status::Completed).await;
    // An answered step stays answered, whatever was submitted after it.
    assert_eq!(take(&store, again(&step)).await, done);
    let user = submitted("t1", 1, &called);
    let user_done = TakenStep::Already(kept(&user, StepState::Ended(Status::Completed)));
    assert_eq!(take(&store, again(&user)).await, user_done);
    let told = turn(&store, "t1").await;
    let ended = StepState::Ended(Status::Completed);
    let steps = vec![kept(&user, ended), kept(&step, ended), kept(&next, ended)];
    assert_eq!(told, AgentTurn { turn_id: "t1".into(), number: 1, steps });
    assert_eq!(take(&store, submitted("t2", 1, &Turn::new("x"))).await, first(Some(&third)));
    assert_eq!(session(&store, &anna(), SESSION).await.turns, 2);
}

pub(crate) async fn results_that_failed_are_taken_again(store: Engine) {
    begun(&store).await;
    let called = ended(&store, "t1", Status::Completed).await;
    let second = Turn::new("second");
    let step = results("t1", 2, &called, &second);
    assert_eq!(take(&store, step.clone()).await, first(Some(&called)));
    begin(&store, &second).await;
    end(&store, &second, Status::Failed).await;
    // Neither other results nor what the failed step would have been followed by.
    assert_eq!(take(&store, results("t1", 3, &called, &Turn::new("x"))).await, TakenStep::Different);
    assert_eq!(take(&store, results("t1", 2, &second, &Turn::new("x"))).await, TakenStep::Different);
    let third = Turn::new("third");
    let anew = NewStep { response_id: third.id.clone(), ..step };
    assert_eq!(take(&store, anew.clone()).await, first(Some(&called)));
    assert_eq!(turn(&store, "t1").await.steps[1..], [kept(&anew, StepState::Running)]);
    begin(&store, &third).await;
    end(&store, &third, Status::Completed).await;
    assert_eq!(take(&store, results("t1", 5, &third, &Turn::new("x"))).await, first(Some(&third)));
}

pub(crate) async fn a_turn_that_was_given_up_takes_no_results(store: Engine) {
    begun(&store).await;
    let called = ended(&store, "t1", Status::Completed).await;
    let waiting = results("t1", 2, &called, &Turn::new("late"));
    assert_eq!(take(&store, submitted("t2", 1, &Turn::new("x"))).await, first(Some(&called)));
    assert_eq!(take(&store, waiting).await, TakenStep::Different);
}

pub(crate) async fn a_dead_processs_step_is_taken_again(store: Engine) {
    // P3: before there was a response, and after.
    begun(&store).await;
    let answer = Turn::new("hi");
    let step = submitted("t1", 1, &answer);
    assert_eq!(take(&store, step.clone()).await, first(None));
    store.end_dead_process(operator(), HERE, 1, died, NOW).await.unwrap().unwrap();
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Gone)]);
    let anew = Turn::new("anew");
    let step = NewStep { process: THERE, response_id: anew.id.clone(), ..step };
    assert_eq!(take(&store, step.clone()).await, first(None));
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Running)]);
    keep(&store, &anna(), TurnWrite { process: THERE, ..anew.beginning(anew.begin()) }).await;
    store.end_dead_process(operator(), THERE, 1, died, NOW).await.unwrap().unwrap();
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Ended(Status::Failed))]);
    store.beat(operator(), HERE, 2).await.unwrap();
    let third = Turn::new("third");
    let step = NewStep { process: HERE, response_id: third.id.clone(), ..step };
    assert_eq!(take(&store, step).await, first(None));
    begin(&store, &third).await;
    end(&store, &third, Status::Completed).await;

    let results = results("t1", 2, &third, &Turn::new("x"));
    assert_eq!(take(&store, results.clone()).await, first(Some(&third)));
    store.end_dead_process(operator(), HERE, 2, died, NOW).await.unwrap().unwrap();
    store.beat(operator(), THERE, 2).await.unwrap();
    assert_eq!(take(&store, again(&results)).await, first(Some(&third)));
}

pub(crate) async fn a_step_that_was_given_back_is_free(store: Engine) {
    begun(&store).await;
    let answer = Turn::new("hi");
    let step = submitted("t1", 1, &answer);
    assert_eq!(take(&store, step.clone()).await, first(None));
    let drop_step = async |id: &str| store.drop_step(&anna(), SESSION, id).await.unwrap();
    drop_step(&Turn::new("other").id).await;
    for stranger in strangers() {
        store.drop_step(&stranger, SESSION, &answer.id).await.unwrap();
    }
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Running)]);
    let mut called = store.changed(&answer.id);
    drop_step(&answer.id).await;
    assert!(is_called(&mut called), "waiting requests look again");
    assert_eq!(store.agent_turn(&anna(), SESSION, "t1").await.unwrap(), None);
    assert_eq!(session(&store, &anna(), SESSION).await.turns, 0);

    // Also by another request of that name; and what has a response is not given back.
    let step = NewStep { fingerprint: [9; 32], ..step };
    assert_eq!(take(&store, step.clone()).await, first(None));
    begin(&store, &answer).await;
    drop_step(&answer.id).await;
    end(&store, &answer, Status::Completed).await;
    drop_step(&answer.id).await;
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Ended(Status::Completed))]);

    let second = Turn::new("second");
    let more = results("t1", 2, &answer, &second);
    assert_eq!(take(&store, more.clone()).await, first(Some(&answer)));
    drop_step(&second.id).await;
    assert_eq!((turn(&store, "t1").await.steps.len(), session(&store, &anna(), SESSION).await.turns), (1, 1));
    let other = NewStep { fingerprint: [3; 32], ..more };
    assert_eq!(take(&store, other).await, first(Some(&answer)));
}

pub(crate) async fn a_caller_that_disconnects_while_taking_a_step_does_not_block(store: Engine) {
    begun(&store).await;
    let answer = Turn::new("hi");
    drop(store.take_step(&anna(), submitted("t1", 1, &answer)));
    // The requested step may still be written, and is released with the next heartbeat.
    store.beat(operator(), HERE, 2).await.unwrap();
    assert_eq!(take(&store, submitted("t2", 1, &Turn::new("x"))).await, first(None));
    assert_eq!(store.agent_turn(&anna(), SESSION, "t1").await.unwrap(), None);
}

pub(crate) async fn a_step_whose_response_was_deleted_is_gone(store: Engine) {
    begun(&store).await;
    let answer = ended(&store, "t1", Status::Completed).await;
    assert!(store.delete_response(&anna(), &answer.id).await.unwrap());
    let step = submitted("t1", 1, &answer);
    assert_eq!(turn(&store, "t1").await.steps, [kept(&step, StepState::Gone)], "its process still lives");
    let anew = Turn::new("anew");
    assert_eq!(take(&store, NewStep { response_id: anew.id.clone(), ..step.clone() }).await, first(None));
    begin(&store, &anew).await;
    end(&store, &anew, Status::Completed).await;
    assert_eq!(take(&store, results("t1", 2, &anew, &Turn::new("x"))).await, first(Some(&anew)));

    // A step that was continued is not taken again: the step after it would have no predecessor.
    let all = Retention { responses_before_ms: Some(NOW + 1000), ..KEEP_ALL };
    assert!(store.prune(operator(), all).await.unwrap().rows > 0);
    let first_step = NewStep { response_id: anew.id.clone(), ..step };
    assert_eq!(take(&store, again(&first_step)).await, TakenStep::Already(kept(&first_step, StepState::Gone)));
}

pub(crate) async fn a_session_keeps_what_its_turns_say(store: Engine) {
    begun(&store).await;
    let before = session(&store, &anna(), SESSION).await;
    let answer = Turn::new("hi");
    let step = NewStep { solution_context: Some("a\u{0}b".into()), ..submitted("t1", 1, &answer) };
    assert_eq!(take(&store, step.clone()).await, first(None));
    let mut expected = before;
    (expected.turns, expected.updated_at_ms) = (1, NOW + 1);
    expected.solution_context = Some("a\u{fffd}b".into());
    assert_eq!(session(&store, &anna(), SESSION).await, expected);
    // What is not taken says nothing.
    let refused = NewStep { solution_context: Some("other".into()), now_ms: NOW + 50, ..again(&step) };
    assert!(matches!(take(&store, refused).await, TakenStep::Already(_)));
    assert_eq!(session(&store, &anna(), SESSION).await, expected);
    begin(&store, &answer).await;
    end(&store, &answer, Status::Completed).await;
    let late = NewStep { now_ms: NOW, ..results("t1", 2, &answer, &Turn::new("x")) };
    assert_eq!(take(&store, late).await, first(Some(&answer)));
    assert_eq!(session(&store, &anna(), SESSION).await, expected, "and nothing is nothing");
}

pub(crate) async fn steps_of_others_look_missing(store: Engine) {
    // S10
    begun(&store).await;
    let answer = ended(&store, "t1", Status::Completed).await;
    for stranger in strangers() {
        let asked = async |step: NewStep| store.take_step(&stranger, step).await.unwrap();
        assert_eq!(asked(submitted("t1", 1, &answer)).await, TakenStep::Missing);
        assert_eq!(asked(submitted("t2", 1, &Turn::new("x"))).await, TakenStep::Missing);
        assert_eq!(asked(results("t1", 2, &answer, &Turn::new("x"))).await, TakenStep::Missing);
        assert_eq!(store.agent_turn(&stranger, SESSION, "t1").await.unwrap(), None);
        // Sessions of the same name stay apart.
        open(&store, &stranger, SESSION).await;
        assert_eq!(asked(results("t1", 2, &answer, &Turn::new("x"))).await, TakenStep::Missing);
        assert_eq!(asked(submitted("t1", 1, &Turn::new("theirs"))).await, first(None));
    }
    assert_eq!(take(&store, submitted("t2", 1, &Turn::new("x"))).await, first(Some(&answer)));
}

pub(crate) async fn racing_submissions_have_one_first(store: Engine) {
    race(&[store]).await;
}

/// The same submission, and the same results, many times at once; then turns of different names.
pub(crate) async fn race(stores: &[Engine]) {
    let store = &stores[0];
    begun(store).await;
    let answer = one_of_many(stores, |_, answer| submitted("t1", 1, answer)).await;
    begin(store, &answer).await;
    end(store, &answer, Status::Completed).await;
    let second = one_of_many(stores, |_, second| results("t1", 2, &answer, second)).await;
    begin(store, &second).await;
    end(store, &second, Status::Failed).await;
    let third = one_of_many(stores, |_, third| results("t1", 2, &answer, third)).await;
    begin(store, &third).await;
    end(store, &third, Status::Completed).await;
    one_of_many(stores, |number, turn| submitted(&format!("other {number}"), 1, turn)).await;
    let told = session(store, &anna(), SESSION).await;
    assert_eq!(told.turns, 2);
    let turns = store.agent_turns(&anna(), SESSION, None, 9).await.unwrap().unwrap();
    assert_eq!(turns.iter().map(|turn| (turn.number, turn.steps.len())).collect::<Vec<_>>(), [(2, 1), (1, 2)]);
    assert_eq!(store.delete_session(&anna(), SESSION).await.unwrap().map(|responses| responses.len()), Some(3));
}

/// Takes a step many times at once, each for an answer of its own; the one that is worked on.
async fn one_of_many(stores: &[Engine], step: impl Fn(usize, &Turn) -> NewStep) -> Turn {
    let mut racing = JoinSet::new();
    for number in 0..16 {
        let (store, answer) = (stores[number % stores.len()].clone(), Turn::new("racing"));
        let step = NewStep { process: [HERE, THERE][number % 2], ..step(number, &answer) };
        racing.spawn(async move { (store.take_step(&anna(), step).await.unwrap(), answer) });
    }
    let taken = racing.join_all().await;
    let (first, others): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|(taken, _)| matches!(taken, TakenStep::First { .. }));
    assert_eq!(first.len(), 1, "{first:?}");
    let (_, answer) = first.into_iter().next().unwrap();
    for (taken, _) in others {
        match taken {
            TakenStep::Already(step) => {
                assert_eq!((&step.response_id, step.state), (&answer.id, StepState::Running));
            }
            TakenStep::Busy { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    answer
}
