use amalgam_core::TokenCount;
use futures_util::{StreamExt, stream};

use super::*;

fn prepared(body: Bytes) -> PreparedRequest {
    PreparedRequest {
        body,
        losses: Vec::new(),
        delivery: amalgam_core::Delivery::Whole,
        calls: Default::default(),
        answer_context: Default::default(),
    }
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(text), logprobs: None }
}

async fn counted_events(batches: Vec<Result<Vec<ModelEvent>, ModelError>>, prompt: &str) -> Vec<ModelEvent> {
    let stream =
        with_usage(Box::pin(stream::iter(batches)), &prepared(prompt.as_bytes().to_vec().into()), &Arc::default());
    stream.map(|batch| batch.expect("no batch fails")).collect::<Vec<_>>().await.concat()
}

#[tokio::test]
async fn an_answer_without_usage_gets_an_estimate_before_its_end() {
    let prompt = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hello world"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#;
    let thought = ModelEvent::ReasoningSummary(Literal::from_text("hello"));
    let batches =
        vec![Ok(vec![thought.clone(), text("hello")]), Ok(vec![text(" world"), ModelEvent::Finish(Finish::Length)])];

    let events = counted_events(batches, prompt).await;

    let usage = Usage {
        input_tokens: 2 + TokenCount::PER_MESSAGE + TokenCount::PER_MEDIA,
        output_tokens: 3,
        reasoning_tokens: 1,
        estimated: true,
        ..Usage::default()
    };
    let expected =
        [thought, text("hello"), text(" world"), ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Length)];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn usage_of_the_upstreams_own_passes_as_it_is_and_so_does_an_error() {
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    let events = vec![text("a"), ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)];
    assert_eq!(counted_events(vec![Ok(events.clone())], "{}").await, events);

    let batches = vec![Ok(vec![text("a")]), Err(ModelError::CutShort)];
    let mut stream = with_usage(Box::pin(stream::iter(batches)), &prepared(Bytes::new()), &Arc::default());
    assert_eq!(stream.next().await.unwrap().unwrap(), [text("a")]);
    assert!(matches!(stream.next().await, Some(Err(ModelError::CutShort))));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn an_answer_that_failed_or_was_cut_before_it_began_is_not_counted() {
    let fault = amalgam_core::Fault::internal("down");
    let begun = ModelEvent::Begun { id: None, model: None };
    for finish in [Finish::Length, Finish::ContentFilter, Finish::Failed(fault)] {
        let events = vec![begun.clone(), ModelEvent::Finish(finish)];
        assert_eq!(counted_events(vec![Ok(events.clone())], "{}").await, events);
    }
}

#[test]
fn a_long_text_is_counted_by_its_beginning() {
    let mut all = Text::default();
    let word = b"hello ";
    let times = COUNTED_BYTES / word.len() * 3;
    (0..times).for_each(|_| all.push(word));
    assert_eq!(all.beginning.len(), COUNTED_BYTES);
    let expected = times as u64;
    assert!(all.count().abs_diff(expected) < expected / 100, "{} for {expected}", all.count());
}
