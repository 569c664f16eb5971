//! Turns: admission, fallback, deadline, keepalive, gathering, leaving.

use std::{sync::atomic::Ordering, time::Duration};

use amalgam_core::{Delivery, FaultKind, ModelError};
use amalgam_testkit::{check, sse};
use futures_util::StreamExt;
use serde_json::Value;

use crate::model::{Scripted, Step, candidate, engine, start};

const BODY: &str = r#"{"model":"m","input":"hi"}"#;

fn down() -> ModelError {
    ModelError::Unreachable("connection refused".into())
}

async fn all_frames(run: Box<amalgam_engine::Run>) -> Vec<u8> {
    let chunks: Vec<bytes::Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
    sse::check_writes(&chunks).unwrap();
    let bytes = chunks.concat();
    assert_eq!(check::body(&bytes), Vec::<String>::new());
    bytes
}

fn kinds(bytes: &[u8]) -> Vec<String> {
    sse::json_events(bytes).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_told_whole_or_in_frames() {
    let model = Scripted::new(vec![
        Ok(vec![Step::Say("a"), Step::Say("b"), Step::Finish]),
        Ok(vec![Step::Say("ab"), Step::Finish]),
    ]);
    let (engine, _) = engine(1);
    let whole = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.unwrap();
    assert_eq!(whole.losses().len(), 1);
    let whole: Value = serde_json::from_slice(&whole.finish().await.unwrap().response).unwrap();
    assert_eq!(whole["output"][0]["content"][0]["text"], "ab");
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    assert_eq!(kinds(&all_frames(run).await).last().unwrap(), "response.completed");
}

#[tokio::test(start_paused = true)]
async fn a_turn_beyond_the_room_is_refused_at_once_and_a_place_comes_back() {
    // P7
    let model = Scripted::new(vec![Ok(vec![Step::Hang]), Ok(vec![Step::Finish])]);
    let (engine, admission) = engine(1);
    let first = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let refused = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.err().unwrap();
    assert_eq!((refused.kind, refused.retry_after), (FaultKind::Overloaded, Some(Duration::from_secs(1))));
    drop(first);
    assert_eq!(admission.in_flight(), 0);
    assert!(start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.is_ok());
    admission.close();
    let closed = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.err().unwrap();
    assert_eq!(closed.kind, FaultKind::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn the_next_candidate_answers_when_the_first_cannot() {
    let (first, second) =
        (Scripted::new(vec![Err(down())]), Scripted::new(vec![Ok(vec![Step::Say("b"), Step::Finish])]));
    let (engine, _) = engine(4);
    let run = start(&engine, &[candidate(&first), candidate(&second)], BODY, Delivery::Whole, false).await.unwrap();
    assert!(String::from_utf8(run.finish().await.unwrap().response).unwrap().contains("\"text\":\"b\""));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_is_refused_by_every_candidate() {
    let refusal = ModelError::Refused {
        status: 400,
        retry_after: None,
        message: Some("bad".into()),
        code: None,
        param: None,
        body: String::new(),
    };
    let (first, second) = (Scripted::new(vec![Err(refusal)]), Scripted::new(vec![]));
    let (engine, _) = engine(4);
    let fault =
        start(&engine, &[candidate(&first), candidate(&second)], BODY, Delivery::Whole, false).await.err().unwrap();
    assert_eq!((fault.kind, second.asked.load(Ordering::SeqCst)), (FaultKind::UpstreamRejected, 0));
}

#[tokio::test(start_paused = true)]
async fn strict_mode_names_every_loss_instead_of_asking() {
    let model = Scripted::new(vec![]);
    let (engine, _) = engine(4);
    let fault = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, true).await.err().unwrap();
    assert_eq!((fault.kind, fault.param.as_deref()), (FaultKind::Invalid, Some("top_logprobs")));
    assert_eq!(model.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_keepalive_events_and_ended_by_the_deadline() {
    // S7, P3: a silent model yields a keepalive every 10 s, and the turn ends after 60 s.
    let model = Scripted::new(vec![Ok(vec![Step::Say("a"), Step::Hang])]);
    let (engine, _) = engine(4);
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let kinds = kinds(&all_frames(run).await);
    assert_eq!(kinds.iter().filter(|kind| *kind == "keepalive").count(), 5);
    assert_eq!(&kinds[kinds.len() - 2..], ["error", "response.failed"]);
    assert_eq!(model.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_talking_model_needs_no_keepalive() {
    let pause = Step::Wait(Duration::from_secs(7));
    let model = Scripted::new(vec![Ok(vec![
        Step::Say("a"),
        pause.clone(),
        Step::Say("b"),
        pause,
        Step::Say("c"),
        Step::Finish,
    ])]);
    let (engine, _) = engine(4);
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    assert!(!kinds(&all_frames(run).await).contains(&"keepalive".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_past_its_deadline_is_a_fault() {
    let model = Scripted::new(vec![Ok(vec![Step::Say("a"), Step::Hang])]);
    let (engine, _) = engine(4);
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.unwrap();
    assert_eq!(run.finish().await.unwrap_err().kind, FaultKind::Deadline);
    assert_eq!(model.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cut_stream_ends_as_failed_and_never_as_completed() {
    // P5
    let model = Scripted::new(vec![Ok(vec![Step::Say("half"), Step::Cut]), Ok(vec![Step::Say("half")])]);
    let (engine, _) = engine(4);
    for _ in 0..2 {
        let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
        let kinds = kinds(&all_frames(run).await);
        assert_eq!(kinds.last().unwrap(), "response.failed");
    }
}

#[tokio::test(start_paused = true)]
async fn frames_that_are_ready_together_leave_together() {
    let words = std::iter::repeat_n(Step::Say("w"), 100).chain([Step::Finish]).collect();
    let model = Scripted::new(vec![Ok(words)]);
    let (engine, _) = engine(4);
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let chunks: Vec<bytes::Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
    assert!(chunks.len() <= 2, "{} chunks", chunks.len());
}

#[tokio::test(start_paused = true)]
async fn the_first_word_of_a_burst_leaves_at_once_and_the_others_together() {
    let pause = Step::Wait(Duration::from_millis(20));
    let say = |word| [Step::Say(word), Step::Yield];
    let burst = ["one", "two", "three", "four"].into_iter().flat_map(say);
    let script = [pause.clone()].into_iter().chain(burst).chain([pause, Step::Say("alone"), Step::Hang]);
    let model = Scripted::new(vec![Ok(script.collect())]);
    let (engine, _) = engine(4);
    let begun = tokio::time::Instant::now();
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let mut events = run.into_events();
    let mut sent = Vec::new();
    while sent.len() < 4 {
        let batch = events.next().await.unwrap();
        let words: Vec<String> = batch.events().filter_map(|event| Some(event.delta?.decode().into_owned())).collect();
        sent.push((words, begun.elapsed().as_millis()));
    }
    let (words, times): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    assert_eq!(words, [&[] as &[&str], &["one"], &["two", "three", "four"], &["alone"]]);
    // No timer holds a burst back.
    assert_eq!(times[1], times[2], "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_ends_the_upstream_call() {
    let model = Scripted::new(vec![Ok(vec![Step::Say("a"), Step::Hang])]);
    let (engine, admission) = engine(4);
    let run = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let mut frames = run.into_events();
    frames.next().await.unwrap();
    drop(frames);
    assert_eq!((model.dropped.load(Ordering::SeqCst), admission.in_flight()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn turns_that_have_to_end_say_so_to_their_callers() {
    let model = Scripted::new(vec![Ok(vec![Step::Say("a"), Step::Hang]), Ok(vec![Step::Hang])]);
    let (engine, admission) = engine(4);
    let streamed = start(&engine, &[candidate(&model)], BODY, Delivery::Stream, false).await.unwrap();
    let whole = start(&engine, &[candidate(&model)], BODY, Delivery::Whole, false).await.unwrap();
    let end = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        admission.end_turns();
    };
    let (frames, whole, ()) = tokio::join!(all_frames(streamed), whole.finish(), end);
    assert_eq!(kinds(&frames).last().unwrap(), "response.failed");
    assert_eq!(whole.unwrap_err().kind, FaultKind::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn images_are_fetched_only_for_a_model_that_needs_their_bytes() {
    // S17
    let body = |url: &str| {
        format!(r#"{{"input":[{{"role":"user","content":[{{"type":"input_image","image_url":"{url}"}}]}}]}}"#)
    };
    let answer = || Ok(vec![Step::Finish]);
    let (plain, fetching) = (Scripted::new(vec![answer()]), Scripted::wanting_images(vec![answer()]));
    let (engine, _) = engine(4);
    start(&engine, &[candidate(&plain)], &body("https://forbidden/a.png"), Delivery::Whole, false).await.unwrap();
    start(&engine, &[candidate(&fetching)], &body("https://x/a.png"), Delivery::Whole, false).await.unwrap();
    assert_eq!(fetching.images.lock().unwrap().get("https://x/a.png").unwrap(), "data:image/png;base64,QQ==");
    for refused in ["https://forbidden/a.png", "https://x/text"] {
        let fault =
            start(&engine, &[candidate(&fetching)], &body(refused), Delivery::Whole, false).await.err().unwrap();
        assert_eq!(fault.kind, FaultKind::Invalid);
    }
}
