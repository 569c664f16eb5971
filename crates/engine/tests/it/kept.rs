//! Stored turns: what is in the store when the caller receives an event or an answer.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, FaultKind, ModelError, Operator, Rights, Scope, Store, TenantState, no_items,
    store::{Begin, CallBodies, ProcessId, StoredResponse},
};
use amalgam_engine::{Admission, AdmissionSettings, Engine, Run, TurnStorage, read_tail};
use amalgam_protocol::{ResponseSettings, Status};
use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use amalgam_testkit::{check, sse};
use bytes::Bytes;
use futures_util::StreamExt;
use tempfile::TempDir;

use crate::model::{Scripted, Step, candidate, engine_over, start_kept};

const BODY: &str = r#"{"model":"m","input":"hi"}"#;

struct World {
    store: Arc<dyn Store>,
    engine: Engine,
    #[expect(dead_code, reason = "the folder lives as long as the store in it")]
    folder: TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Sqlite::open(folder.path().join("a.db"), SqliteOptions::default()).unwrap());
        let engine = engine_over(Arc::clone(&store), Admission::new(AdmissionSettings::without_queue(8)), 1);
        Self { store, engine, folder }
    }

    async fn start(&self, steps: Vec<Step>, delivery: Delivery) -> Box<Run> {
        let keep = match delivery {
            Delivery::Stream => keep_stream,
            Delivery::Whole => keep_whole,
        };
        let model = Scripted::new(vec![Ok(steps)]);
        start_kept(&self.engine, &[candidate(&model)], BODY, delivery, false, Some(keep)).await.unwrap()
    }

    async fn stored(&self, id: &str) -> Option<StoredResponse> {
        self.store.response(&scope(), id).await.unwrap()
    }

    /// Waits until a response has ended.
    async fn ended(&self, id: &str) -> StoredResponse {
        for _ in 0..500 {
            match self.stored(id).await {
                Some(response) if response.status.status.is_final() => return response,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("response {id} did not end");
    }
}

#[expect(clippy::disallowed_methods, reason = "a caller of a test needs no credential")]
pub(crate) fn scope() -> Scope {
    Scope::authenticated(1, "user", TenantState::Stored, Rights::USE)
}

fn keep_whole(settings: &ResponseSettings) -> TurnStorage {
    keep(settings, false)
}

fn keep_stream(settings: &ResponseSettings) -> TurnStorage {
    keep(settings, true)
}

pub(crate) fn keep(settings: &ResponseSettings, streamed: bool) -> TurnStorage {
    TurnStorage {
        raw_answer: false,
        scope: scope(),
        begin: Some(Box::new(Begin {
            parent: None,
            status: Status::InProgress,
            created_at_ms: 1_700_000_000_000,
            settings: settings.bytes().clone(),
            input: no_items(),
            background: false,
            streamed,
            conversation: None,
            request: None,
        })),
        previous: None,
        idempotency_key: None,
        streamed,
        flush_after: Duration::from_millis(20),
        session: None,
    }
}

#[tokio::test]
async fn a_whole_answer_is_in_the_store_when_it_is_told() {
    // P1
    let world = World::new().await;
    let run = world.start(vec![Step::Say("ab"), Step::Finish], Delivery::Whole).await;
    let id = run.response_id().to_owned();
    assert_eq!(world.stored(&id).await, None, "its id was sent to no caller");
    let answer = run.finish().await.unwrap().response;
    let stored = world.stored(&id).await.unwrap();
    assert_eq!(String::from_utf8(stored.object()).unwrap(), String::from_utf8(answer).unwrap());
}

#[tokio::test]
async fn a_stream_is_in_the_store_before_its_first_event_and_ended_before_its_last() {
    // P1, P2
    let world = World::new().await;
    let run =
        world.start(vec![Step::Say("a"), Step::Wait(Duration::from_millis(50)), Step::Finish], Delivery::Stream).await;
    let id = run.response_id().to_owned();
    let mut frames = run.into_events();
    let mut seen = Vec::new();
    while let Some(piece) = frames.next().await {
        let stored = world.stored(&id).await.unwrap();
        let text = String::from_utf8(piece.frames().to_vec()).unwrap();
        if text.contains("event: response.completed") {
            assert_eq!(stored.status.status, Status::Completed);
            let events = sse::json_events(text.as_bytes());
            let told = events.iter().find(|event| event["type"] == "response.completed").unwrap();
            let object: serde_json::Value = serde_json::from_slice(&stored.object()).unwrap();
            assert_eq!(told["response"], object);
        }
        seen.extend_from_slice(piece.frames());
    }
    assert_eq!(check::body(&seen), Vec::<String>::new());
}

#[tokio::test]
async fn a_stream_can_be_followed_from_every_point_with_the_same_frames() {
    // P6
    let world = World::new().await;
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..12 {
        steps.extend([Step::Say("x"), Step::Wait(Duration::from_millis(7))]);
    }
    steps.push(Step::Finish);
    let run = world.start(steps, Delivery::Stream).await;
    let id = run.response_id().to_owned();
    let live: Vec<Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
    let live = live.concat();
    let frames: Vec<&[u8]> = live.split_inclusive_frames();
    let last = frames.len() - 2;
    for after in std::iter::once(None).chain((0..=last as u64 + 3).map(Some)) {
        let tail = read_tail(&*world.store, &scope(), &id, after).await.unwrap().unwrap();
        let again: Vec<Bytes> =
            world.engine.follow(scope(), tail, after).map(amalgam_protocol::EventBatch::into_frames).collect().await;
        let from = after.map_or(0, |after| after as usize + 1).min(last + 1);
        assert_eq!(
            String::from_utf8(again.concat()).unwrap(),
            String::from_utf8(frames.get(from..).unwrap().concat()).unwrap(),
            "after {after:?}"
        );
    }
}

#[tokio::test]
async fn a_follower_that_comes_while_the_turn_runs_gets_everything_once() {
    // P6
    let world = World::new().await;
    let mut steps = Vec::new();
    for _ in 0..20 {
        steps.extend([Step::Say("y"), Step::Wait(Duration::from_millis(10))]);
    }
    steps.push(Step::Finish);
    let run = world.start(steps, Delivery::Stream).await;
    let id = run.response_id().to_owned();
    let tail = read_tail(&*world.store, &scope(), &id, None).await.unwrap().unwrap();
    let follower =
        world.engine.follow(scope(), tail, None).map(amalgam_protocol::EventBatch::into_frames).collect::<Vec<Bytes>>();
    let (live, followed) = tokio::join!(
        run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect::<Vec<Bytes>>(),
        follower
    );
    assert_eq!(String::from_utf8(followed.concat()).unwrap(), String::from_utf8(live.concat()).unwrap());
}

#[tokio::test]
async fn a_caller_that_leaves_leaves_a_cancelled_response() {
    let world = World::new().await;
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let run = world.start(vec![Step::Say("a"), Step::Hang], delivery).await;
        let id = run.response_id().to_owned();
        drop(run);
        let ended = world.ended(&id).await;
        assert_eq!((ended.status.status, ended.output), (Status::Cancelled, no_items()));
    }
}

#[tokio::test]
async fn a_failure_is_in_the_store_as_the_caller_heard_it() {
    // P5
    let world = World::new().await;
    let run = world.start(vec![Step::Say("a"), Step::Cut], Delivery::Stream).await;
    let id = run.response_id().to_owned();
    let frames: Vec<Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
    let events = sse::json_events(&frames.concat());
    let told = &events.last().unwrap()["response"];
    let stored: serde_json::Value = serde_json::from_slice(&world.stored(&id).await.unwrap().object()).unwrap();
    assert_eq!((&stored["status"], &stored["error"]["code"]), (&"failed".into(), &"server_error".into()));
    assert_eq!(told, &stored);
    let tail = read_tail(&*world.store, &scope(), &id, None).await.unwrap().unwrap();
    let again: Vec<Bytes> =
        world.engine.follow(scope(), tail, None).map(amalgam_protocol::EventBatch::into_frames).collect().await;
    assert_eq!(again.concat(), frames.concat());
}

#[expect(clippy::disallowed_methods, reason = "a caller of a test needs no credential")]
#[tokio::test]
async fn every_model_call_is_kept_exactly_also_those_that_failed() {
    let world = World::new().await;
    let first = Scripted::new(vec![Err(ModelError::Unreachable("connection refused".into()))]);
    let second = Scripted::new(vec![Ok(vec![Step::Say("b"), Step::Finish])]);
    let candidates = [candidate(&first), candidate(&second)];
    let run = start_kept(&world.engine, &candidates, BODY, Delivery::Whole, false, Some(keep_whole)).await.unwrap();
    let id = run.response_id().to_owned();
    run.finish().await.unwrap();
    let admin = Scope::authenticated(1, "boss", TenantState::Stored, Rights::ADMIN);
    let turn = world.store.turn(admin.admin().unwrap(), &id).await.unwrap().unwrap();
    let calls = world.store.turn_calls(admin.admin().unwrap(), &id, CallBodies::All).await.unwrap();
    assert_eq!(calls.len(), 2);
    assert!(calls[0].call.error.as_deref().unwrap().contains("could not be reached"));
    assert_eq!((calls[1].call.error.as_deref(), calls[1].call.number), (None, 1));
    assert_eq!(turn.user, "user");
}

#[tokio::test]
async fn a_turn_that_no_model_accepts_is_not_left_running() {
    // P3
    let world = World::new().await;
    let model = Scripted::new(vec![Err(ModelError::Unreachable("connection refused".into()))]);
    let refused =
        start_kept(&world.engine, &[candidate(&model)], BODY, Delivery::Stream, false, Some(keep_stream)).await;
    assert_eq!(refused.err().unwrap().kind, FaultKind::UpstreamDown);
    assert_eq!(world.store.held(Operator::of_this_process(), ProcessId(1)).await.unwrap(), Vec::new());
}

/// Splits a stream into its frames.
trait SplitFrames {
    fn split_inclusive_frames(&self) -> Vec<&[u8]>;
}

impl SplitFrames for Vec<u8> {
    fn split_inclusive_frames(&self) -> Vec<&[u8]> {
        let mut frames = Vec::new();
        let mut rest = self.as_slice();
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
            let (frame, after) = rest.split_at(end + 2);
            frames.push(frame);
            rest = after;
        }
        frames
    }
}
