//! Prompts and context windows: what is dropped, what is refused, and when nothing is counted.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use amalgam_core::{
    AnswerContext, BoxFuture, CallMap, Candidate, Delivery, Fault, FaultKind, Finish, Model, ModelError, ModelEvent,
    ModelRequest, ModelStream, PreparedRequest, TokenCount, window::CountableText,
};
use futures_util::stream;
use serde_json::json;

use crate::{
    kept::scope,
    model::{engine, start},
};

/// A model with a window of this number of words, which refuses longer prompts. The body is the words themselves.
struct Narrow {
    takes: usize,
    sent: Mutex<Vec<String>>,
    counts: AtomicUsize,
}

impl Narrow {
    fn taking(takes: usize) -> Arc<Self> {
        Arc::new(Self { takes, sent: Mutex::default(), counts: AtomicUsize::new(0) })
    }

    fn candidate(self: &Arc<Self>, context_window: Option<u64>) -> Candidate {
        let model = Arc::clone(self) as Arc<dyn Model>;
        Candidate { upstream: "u".to_owned(), model, name: "m".to_owned(), alias: None, context_window, price: None }
    }

    /// The first word of every message of every prompt that it was sent.
    fn sent(&self) -> Vec<Vec<String>> {
        let first = |message: &str| message.split(' ').next().unwrap_or_default().to_owned();
        self.sent.lock().unwrap().iter().map(|prompt| prompt.lines().map(first).collect()).collect()
    }
}

impl Model for Narrow {
    fn prepare(&self, request: &ModelRequest<'_>) -> Result<PreparedRequest, Fault> {
        let said: Vec<String> = request.history.entries.iter().map(|entry| CountableText::of(entry).text).collect();
        let (losses, delivery) = (Vec::new(), request.delivery);
        Ok(PreparedRequest {
            body: said.join("\n").into_bytes().into(),
            losses,
            delivery,
            calls: CallMap::default(),
            answer_context: AnswerContext::default(),
        })
    }

    fn count(&self, prepared: &PreparedRequest) -> TokenCount {
        self.counts.fetch_add(1, Ordering::SeqCst);
        TokenCount { text: self.count_text("", &String::from_utf8_lossy(&prepared.body)), media: 0 }
    }

    fn count_text(&self, _model: &str, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    fn ask<'a>(&'a self, prepared: &'a PreparedRequest) -> BoxFuture<'a, Result<ModelStream, ModelError>> {
        let prompt = String::from_utf8_lossy(&prepared.body).into_owned();
        let words = prompt.split_whitespace().count();
        self.sent.lock().unwrap().push(prompt);
        let answer = match words > self.takes {
            true => Err(ModelError::Refused {
                status: 400,
                retry_after: None,
                message: Some("This model's maximum context length is smaller.".to_owned()),
                code: None,
                param: None,
                body: String::new(),
            }),
            false => Ok(Box::pin(stream::iter([Ok(vec![ModelEvent::Finish(Finish::Stop)])])) as ModelStream),
        };
        Box::pin(async move { answer })
    }
}

/// A conversation of this number of turns of twenty words, the number of the turn before each.
fn conversation(turns: usize, truncation: &str) -> String {
    let turn = |n: usize| json!({"role": "user", "content": format!("{n} {}", ["word"; 19].join(" "))});
    json!({"model": "m", "truncation": truncation, "input": (0..turns).map(turn).collect::<Vec<_>>()}).to_string()
}

async fn asked(model: &Arc<Narrow>, window: Option<u64>, body: &str) -> Result<Vec<String>, Fault> {
    let (engine, _) = engine(1);
    let run = start(&engine, &[model.candidate(window)], body, Delivery::Whole, false).await?;
    let losses = run.losses().iter().map(ToString::to_string).collect();
    run.finish().await?;
    Ok(losses)
}

#[tokio::test]
async fn a_prompt_that_fits_by_its_bytes_is_not_even_counted() {
    let model = Narrow::taking(1000);
    let losses = asked(&model, Some(10_000), &conversation(5, "auto")).await.unwrap();
    assert_eq!((losses.len(), model.counts.load(Ordering::SeqCst)), (0, 0));
    let losses = asked(&model, Some(150), &conversation(5, "auto")).await.unwrap();
    assert_eq!((losses.len(), model.counts.load(Ordering::SeqCst)), (0, 1), "counted, and it fits");
}

#[tokio::test]
async fn the_oldest_turns_are_left_out_before_the_model_is_asked() {
    let model = Narrow::taking(100);
    // 85 of 100 are there for the prompt: three turns of 20 words and what a message costs.
    let losses = asked(&model, Some(100), &conversation(9, "auto")).await.unwrap();
    assert_eq!(model.sent(), [["6", "7", "8"]]);
    assert_eq!(losses, ["input: the 6 oldest turns (6 items) were left out to fit the context window"]);
}

#[tokio::test]
async fn without_leave_to_shorten_a_prompt_beyond_doubt_is_refused_unasked() {
    let model = Narrow::taking(100);
    let fault = asked(&model, Some(100), &conversation(9, "disabled")).await.unwrap_err();
    assert_eq!((fault.kind, fault.code.as_deref()), (FaultKind::ContextLength, Some("context_length_exceeded")));
    assert_eq!(model.sent().len(), 0);

    let fault = asked(&model, Some(100), &conversation(6, "disabled")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::ContextLength, "in doubt the model decides");
    assert_eq!(model.sent().len(), 1);
}

#[tokio::test]
async fn a_last_turn_that_is_too_long_alone_is_refused_unasked() {
    let model = Narrow::taking(10);
    let fault = asked(&model, Some(10), &conversation(3, "auto")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::ContextLength);
    assert_eq!(model.sent().len(), 0);
}

#[tokio::test]
async fn an_unknown_window_is_found_by_halves() {
    let model = Narrow::taking(45);
    let losses = asked(&model, None, &conversation(11, "auto")).await.unwrap();
    let prompts: Vec<usize> = model.sent().iter().map(Vec::len).collect();
    assert_eq!(prompts, [11, 5, 2]);
    assert_eq!(model.sent().last().unwrap(), &["9", "10"]);
    assert_eq!(losses, ["input: the 9 oldest turns (9 items) were left out to fit the context window"]);
    assert_eq!(model.counts.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn halving_ends_after_four_times_or_at_the_last_turn_and_needs_leave() {
    let deaf = Narrow::taking(0);
    let fault = asked(&deaf, None, &conversation(100, "auto")).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::ContextLength);
    assert_eq!(deaf.sent().iter().map(Vec::len).collect::<Vec<_>>(), [100, 50, 25, 12, 6]);

    let deaf = Narrow::taking(0);
    asked(&deaf, None, &conversation(3, "auto")).await.unwrap_err();
    assert_eq!(deaf.sent().iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);

    let deaf = Narrow::taking(0);
    asked(&deaf, None, &conversation(3, "disabled")).await.unwrap_err();
    assert_eq!(deaf.sent().len(), 1);
}

#[tokio::test]
async fn in_strict_mode_what_would_be_left_out_is_a_fault() {
    let model = Narrow::taking(100);
    let (engine, _) = engine(1);
    let candidates = [model.candidate(Some(100))];
    let fault = start(&engine, &candidates, &conversation(9, "auto"), Delivery::Whole, true).await.err().unwrap();
    assert_eq!((fault.kind, fault.param.as_deref()), (FaultKind::Invalid, Some("input")));
    assert_eq!(model.sent().len(), 0);
}

#[tokio::test]
async fn counting_takes_a_place_as_a_turn_does() {
    // P7
    let model = Narrow::taking(100);
    let (engine, admission) = engine(1);
    let candidate = model.candidate(None);
    let spoken = vec![CountableText { text: "two words".to_owned(), media: 1 }];
    let weight = 2 + TokenCount::PER_MEDIA + TokenCount::PER_MESSAGE;
    assert_eq!(engine.weigh(&scope(), &candidate, spoken.clone()).await.unwrap(), [weight]);
    assert_eq!(admission.in_flight(), 0);
    admission.close();
    assert_eq!(engine.weigh(&scope(), &candidate, spoken).await.unwrap_err().kind, FaultKind::ShuttingDown);
}
