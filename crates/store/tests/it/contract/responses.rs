//! Responses: written step by step, read, cancelled, deleted.

use amalgam_core::store::{
    Base, Begin, CallBodies, CancelOutcome, Ending, ResponseState, Retention, StoredResponse, Transcript, TurnWrite,
    Within, WriteOutcome,
};
use amalgam_protocol::{ErrorObject, Json, Provenance, ReportedUsage, Status, Usage};
use bytes::Bytes;

use crate::given::*;

pub(crate) async fn a_response_is_read_back_as_it_was_written(store: Engine) {
    let turn = Turn::new("hi");
    let end = Ending {
        state: ResponseState {
            status: Status::Incomplete,
            completed_at_ms: Some(NOW + 9),
            error: Some(ErrorObject {
                message: "the \"model\" stopped".into(),
                kind: "server_error".into(),
                param: Some("input".into()),
                code: None,
            }),
            incomplete_reason: Some("max_output_tokens".into()),
            usage: Some(Usage {
                input_tokens: 10,
                cached_tokens: 4,
                cache_write_tokens: 2,
                output_tokens: 6,
                reasoning_tokens: 5,
                total_tokens: Some(17),
                estimated: true,
                reported: Some(ReportedUsage { input_tokens: 7, output_tokens: 2, total_tokens: 9 }),
            }),
            provenance: Provenance {
                model: Some("up/\"m\"".into()),
                losses: vec!["top_k: unknown".into()],
                provider_id: Some("up_1".into()),
            },
        },
        output: turn.output.clone(),
        upstream: None,
    };
    let begin = Begin { streamed: true, conversation: Some("conv_1".into()), ..turn.begin() };
    let whole = TurnWrite { end: Some(Box::new(end.clone())), ..turn.beginning(begin.clone()) };

    keep(&store, &anna(), whole).await;

    assert_eq!(
        store.response(&anna(), &turn.id).await.unwrap().unwrap(),
        StoredResponse {
            id: turn.id.clone(),
            status: end.state,
            created_at_ms: NOW,
            settings: begin.settings,
            input: turn.input.clone(),
            output: turn.output.clone(),
            background: false,
            streamed: true,
            conversation: Some("conv_1".into()),
            place: place(&store, &anna(), &turn.id).await,
        }
    );
}

// right C9
pub(crate) async fn a_response_is_found_by_the_id_of_the_models_server_within_its_tenant(store: Engine) {
    let named = |turn: &Turn, provider_id: &str| {
        let mut end = turn.completed();
        end.state.provenance.provider_id = Some(provider_id.to_owned());
        TurnWrite { end: Some(Box::new(end)), ..turn.beginning(turn.begin()) }
    };
    let (older, newer, of_bert, elsewhere) = (Turn::new("1"), Turn::new("2"), Turn::new("3"), Turn::new("4"));
    let [bert, other_tenant] = strangers();
    keep(&store, &anna(), named(&older, "up_twice")).await;
    keep(&store, &anna(), named(&newer, "up_twice")).await;
    keep(&store, &bert, named(&of_bert, "up_'bert'")).await;
    keep(&store, &other_tenant, named(&elsewhere, "up_elsewhere")).await;
    say(&store, &anna(), None, "without an id").await;

    let found = async |id: &str| store.response_of_answer_within(Within::Named(operator(), 1), id).await.unwrap();
    assert_eq!(found("up_twice").await.as_deref(), Some(&*newer.id), "the newest");
    assert_eq!(found("up_'bert'").await.as_deref(), Some(&*of_bert.id), "of any user of the tenant");
    assert_eq!(found("up_elsewhere").await, None, "of no other tenant");
    assert_eq!(found("").await, None);
    assert!(store.delete_response(&anna(), &newer.id).await.unwrap());
    assert_eq!(found("up_twice").await.as_deref(), Some(&*older.id));
}

pub(crate) async fn a_response_is_there_from_its_first_step_on(store: Engine) {
    // P2
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    let begun = store.response(&anna(), &turn.id).await.unwrap().unwrap();
    assert_eq!(begun.status, told(Status::InProgress));
    assert_eq!((&begun.input, &begun.output), (&turn.input, &json("[]")));

    keep(&store, &anna(), turn.saying(0, 1, "a")).await;
    keep(&store, &anna(), turn.ending()).await;
    let ended = store.response(&anna(), &turn.id).await.unwrap().unwrap();
    let expected = StoredResponse { status: told(Status::Completed), output: turn.output.clone(), ..begun };
    assert_eq!(ended, expected);
}

pub(crate) async fn a_write_that_comes_twice_is_kept_once(store: Engine) {
    // The answer to a write may get lost: a writer that repeats it learns that it is there, and nothing is doubled.
    let root = say(&store, &anna(), None, "root").await;
    let parent = place(&store, &anna(), &root.id).await;
    let (first, fork, alone) = (Turn::new("first"), Turn::new("fork"), Turn::new("alone"));
    let writes = [first.whole(Some(parent.clone())), fork.whole(Some(parent)), alone.whole(None)];
    for write in &writes {
        keep(&store, &anna(), write.clone()).await;
    }
    for write in &writes {
        assert_eq!(store.write(&anna(), write.clone().into()).await.unwrap(), WriteOutcome::Lost);
    }
    assert_eq!(line(&store, &anna(), &first.id).await, line_of(&[&root, &first]));
    assert_eq!(line(&store, &anna(), &fork.id).await, line_of(&[&root, &fork]));
    assert_eq!(line(&store, &anna(), &alone.id).await, line_of(&[&alone]));
}

pub(crate) async fn a_response_that_has_ended_takes_no_more(store: Engine) {
    let turn = say(&store, &anna(), None, "hi").await;
    let before = store.response(&anna(), &turn.id).await.unwrap();
    let other = Ending { state: told(Status::Failed), output: json("[]"), upstream: None };
    let again = TurnWrite { end: Some(Box::new(other)), transcripts: vec![call(0)], ..turn.step() };
    for write in [again, turn.saying(5, 6, "late"), turn.starting()] {
        assert_eq!(store.write(&anna(), write.into()).await.unwrap(), WriteOutcome::Lost);
    }
    assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), before);
    assert_eq!(store.events(&anna(), &turn.id, None, 9).await.unwrap().unwrap().chunks, []);
    assert_eq!(requests_of(&store, &turn).await, []);
}

pub(crate) async fn a_response_of_another_process_takes_nothing(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    let elsewhere = TurnWrite { process: THERE, ..turn.ending() };
    assert_eq!(store.write(&anna(), elsewhere.into()).await.unwrap(), WriteOutcome::Lost);
    let kept = store.response(&anna(), &turn.id).await.unwrap().unwrap();
    assert_eq!((kept.status, kept.output), (told(Status::InProgress), json("[]")));
    keep(&store, &anna(), turn.ending()).await;
}

pub(crate) async fn a_response_that_is_not_there_takes_nothing(store: Engine) {
    let turn = Turn::new("hi");
    assert_eq!(store.write(&anna(), turn.ending().into()).await.unwrap(), WriteOutcome::Lost);
    for id in [turn.id.as_str(), "", "resp_1", "resp_AM-1-short"] {
        assert_eq!(store.response(&anna(), id).await.unwrap(), None);
        assert_eq!(store.lineage(&anna(), id).await.unwrap(), None);
        assert_eq!(store.events(&anna(), id, None, 9).await.unwrap(), None);
        assert_eq!(store.cancel_response(&anna(), id, NOW).await.unwrap(), None);
        assert!(!store.delete_response(&anna(), id).await.unwrap());
    }
}

pub(crate) async fn text_of_any_kind_survives(store: Engine) {
    let long = "ü\u{1F980}\u{0}\u{7f}\"\\ \r\n\t'); DROP TABLE items; --".repeat(20_000);
    let user = scope(1, "Zoë 🦀 'quoted' \\ %_");
    let turn = Turn::new(&long);
    let mut whole = turn.whole(None);
    whole.transcripts = vec![call(0)];
    keep(&store, &user, whole).await;
    let kept = store.response(&user, &turn.id).await.unwrap().unwrap();
    assert!(kept.input == turn.input && kept.output == turn.output, "the text came back changed");
    let found = store.items(&user, std::slice::from_ref(&turn.output_id)).await.unwrap().remove(0).unwrap();
    assert_eq!(found.raw().get_str("content").unwrap(), long);
}

pub(crate) async fn an_item_is_found_by_its_id(store: Engine) {
    let first = say(&store, &anna(), None, "one").await;
    let second = say(&store, &anna(), Some(&first), "two").await;
    let running = Turn::new("three");
    keep(&store, &anna(), running.beginning(running.begin())).await;
    let missing = Turn::new("never written");
    let ids = [
        &second.output_id,
        &first.input_id,
        &missing.input_id,
        &running.input_id,
        &running.output_id,
        &first.id,
        &first.output_id,
    ];
    let inner = |array: &Json| array.raw().elements().next().map(Json::from);
    assert_eq!(
        store.items(&anna(), &ids.map(String::clone)).await.unwrap(),
        [inner(&second.output), inner(&first.input), None, inner(&running.input), None, None, inner(&first.output)]
    );
    assert_eq!(store.items(&anna(), &["".into(), "msg_1".into(), "%".into()]).await.unwrap(), [None, None, None]);
    assert_eq!(store.items(&anna(), &[]).await.unwrap(), []);
}

pub(crate) async fn events_come_in_order_and_in_bounded_pieces(store: Engine) {
    // P6
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(Begin { streamed: true, ..turn.begin() })).await;
    let empty = store.events(&anna(), &turn.id, None, 100).await.unwrap().unwrap();
    assert_eq!((empty.chunks, empty.last), (vec![], None));

    for (first, last, frames) in [(0, 3, "aaaa"), (4, 4, "bb"), (5, 19, "cccccc")] {
        keep(&store, &anna(), turn.saying(first, last, frames)).await;
    }
    let after = async |after, bytes| {
        let tail = store.events(&anna(), &turn.id, after, bytes).await.unwrap().unwrap();
        assert_eq!((tail.last, tail.response.id), (Some(19), turn.id.clone()));
        let text = |frames: Bytes| String::from_utf8(frames.to_vec()).unwrap();
        tail.chunks.into_iter().map(|chunk| (chunk.first, chunk.last, text(chunk.frames))).collect::<Vec<_>>()
    };
    let (a, b, c) = ((0, 3, "aaaa".to_owned()), (4, 4, "bb".to_owned()), (5, 19, "cccccc".to_owned()));
    assert_eq!(after(None, 100).await, [a.clone(), b.clone(), c.clone()]);
    assert_eq!(after(Some(0), 100).await, [a.clone(), b.clone(), c.clone()]);
    assert_eq!(after(Some(3), 100).await, [b.clone(), c.clone()]);
    assert_eq!(after(Some(7), 100).await, std::slice::from_ref(&c));
    assert_eq!(after(Some(19), 100).await, []);
    assert_eq!(after(None, 5).await, [a.clone(), b.clone()], "about so many bytes");
    assert_eq!(after(None, 1).await, [a], "at least one chunk, or no reader makes progress");
}

pub(crate) async fn a_background_response_can_be_cancelled_once(store: Engine) {
    for begin in [Turn::queued, |turn: &Turn| Begin { background: true, ..turn.begin() }] {
        let turn = Turn::new("hi");
        keep(&store, &anna(), turn.beginning(begin(&turn))).await;
        let Some(CancelOutcome::Ended(ended)) = store.cancel_response(&anna(), &turn.id, NOW + 1).await.unwrap() else {
            panic!("it runs in the background");
        };
        assert_eq!((ended.status.clone(), ended.output.clone()), (told(Status::Cancelled), json("[]")));
        // Idempotent, and nothing that comes later changes it.
        let again = store.cancel_response(&anna(), &turn.id, NOW + 2).await.unwrap();
        assert_eq!(again, Some(CancelOutcome::Ended(ended.clone())));
        for write in [turn.starting(), turn.saying(0, 1, "x"), turn.ending()] {
            assert_eq!(store.write(&anna(), write.into()).await.unwrap(), WriteOutcome::Lost);
        }
        assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), Some(*ended));
        assert_eq!(store.take_queued(operator(), THERE, 9).await.unwrap(), []);
    }
    let done = Turn::new("done");
    keep(&store, &anna(), done.beginning(Begin { background: true, ..done.begin() })).await;
    keep(&store, &anna(), done.ending()).await;
    let stands = store.response(&anna(), &done.id).await.unwrap().unwrap();
    let asked = store.cancel_response(&anna(), &done.id, NOW + 1).await.unwrap();
    assert_eq!(asked, Some(CancelOutcome::Ended(Box::new(stands))));
}

pub(crate) async fn a_foreground_response_cannot_be_cancelled(store: Engine) {
    let running = Turn::new("hi");
    keep(&store, &anna(), running.beginning(running.begin())).await;
    let ended = say(&store, &anna(), None, "done").await;
    for id in [&running.id, &ended.id] {
        assert_eq!(store.cancel_response(&anna(), id, NOW).await.unwrap(), Some(CancelOutcome::Foreground));
    }
    keep(&store, &anna(), running.ending()).await;
}

pub(crate) async fn every_response_can_be_ended_once(store: Engine) {
    let running = Turn::new("hi");
    keep(&store, &anna(), running.beginning(running.begin())).await;
    assert_eq!(store.end_response(&scope(1, "bert"), &running.id, NOW).await.unwrap(), None);
    assert_eq!(store.end_response(&scope(2, "anna"), &running.id, NOW).await.unwrap(), None);
    let ended = store.end_response(&anna(), &running.id, NOW + 1).await.unwrap().expect("it is there");
    assert_eq!((ended.status.status, ended.background), (Status::Cancelled, false));
    assert_eq!(store.end_response(&anna(), &running.id, NOW + 2).await.unwrap(), Some(ended));
    // The process that runs it cannot write any more.
    assert_eq!(store.write(&anna(), running.ending().into()).await.unwrap(), WriteOutcome::Lost);
    let done = say(&store, &anna(), None, "done").await;
    let stands = store.response(&anna(), &done.id).await.unwrap();
    assert_eq!(store.end_response(&anna(), &done.id, NOW + 1).await.unwrap(), stands);
    assert_eq!(store.end_response(&anna(), "resp_absent", NOW).await.unwrap(), None);
}

pub(crate) async fn a_deleted_response_is_gone_with_its_events_and_calls(store: Engine) {
    let turn = Turn::new("hi");
    let begin = Begin { streamed: true, ..turn.begin() };
    keep(&store, &anna(), turn.beginning(begin.clone())).await;
    keep(&store, &anna(), TurnWrite { transcripts: vec![call(0)], ..turn.saying(0, 3, "abc") }).await;

    assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
    assert!(!store.delete_response(&anna(), &turn.id).await.unwrap());

    assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), None);
    assert_eq!(store.events(&anna(), &turn.id, None, 9).await.unwrap(), None);
    assert_eq!(store.items(&anna(), std::slice::from_ref(&turn.input_id)).await.unwrap(), [None]);
    let admin = anna();
    assert_eq!(store.turn(admin.admin().unwrap(), &turn.id).await.unwrap(), None);
    assert_eq!(store.write(&anna(), turn.ending().into()).await.unwrap(), WriteOutcome::Lost);

    // Were the same id ever made again, nothing of the old response would be in it.
    keep(&store, &anna(), turn.beginning(begin)).await;
    assert_eq!(store.events(&anna(), &turn.id, None, 9).await.unwrap().unwrap().chunks, []);
    assert_eq!(requests_of(&store, &turn).await, []);
}

pub(crate) async fn model_calls_are_kept_exactly(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    let plain = Transcript {
        first_token_ms: None,
        cut: false,
        usage: None,
        losses: vec![],
        error: None,
        response: Bytes::new(),
        ..call(1)
    };
    keep(&store, &anna(), TurnWrite { transcripts: vec![call(0)], ..turn.step() }).await;
    keep(&store, &anna(), TurnWrite { transcripts: vec![plain.clone()], ..turn.ending() }).await;
    // An administrator sees what every user of the tenant has.
    let boss = scope(1, "boss");
    let seen = store.turn(boss.admin().unwrap(), &turn.id).await.unwrap().unwrap();
    let calls = requests_of(&store, &turn).await;
    assert_eq!(calls, [call(0), plain]);
    let admin = boss.admin().unwrap();
    let second = store.turn_calls(admin, &turn.id, CallBodies::Of(1)).await.unwrap();
    assert_eq!(second.into_iter().map(|stored| stored.call).collect::<Vec<_>>(), calls[1..]);
    let lengths: Vec<_> = calls.iter().map(|call| (call.request.len() as u64, call.response.len() as u64)).collect();
    let heads = store.turn_calls(admin, &turn.id, CallBodies::None).await.unwrap();
    assert_eq!(heads.iter().map(|head| (head.request_bytes, head.response_bytes)).collect::<Vec<_>>(), lengths);
    let without = |call: &Transcript| Transcript { request: Bytes::new(), response: Bytes::new(), ..call.clone() };
    assert_eq!(
        heads.into_iter().map(|head| head.call).collect::<Vec<_>>(),
        calls.iter().map(without).collect::<Vec<_>>()
    );
    assert_eq!(seen.user, "anna");
    assert_eq!(Some(seen.response), store.response(&anna(), &turn.id).await.unwrap());
    let elsewhere = scope(2, "anna");
    assert_eq!(store.turn(elsewhere.admin().unwrap(), &turn.id).await.unwrap(), None);
    for bodies in [CallBodies::None, CallBodies::All, CallBodies::Of(0)] {
        assert_eq!(store.turn_calls(elsewhere.admin().unwrap(), &turn.id, bodies).await.unwrap(), []);
    }
}

/// A finished turn whose one call shares the first `shared` bytes of `earlier`'s.
async fn going_on(store: &Engine, earlier: Option<(&Turn, u64)>, request: &'static str, asked_at_ms: u64) -> Turn {
    let turn = Turn::new("hi");
    let base = earlier.map(|(earlier, shared)| Base { response_id: earlier.id.clone(), number: 0, shared });
    let call = Transcript { base, asked_at_ms, request: Bytes::from_static(request.as_bytes()), ..call(0) };
    keep(store, &anna(), TurnWrite { transcripts: vec![call], ..turn.whole(None) }).await;
    turn
}

async fn requests_of(store: &Engine, turn: &Turn) -> Vec<Transcript> {
    let admin = anna();
    let calls = store.turn_calls(admin.admin().unwrap(), &turn.id, CallBodies::All).await.unwrap();
    calls.into_iter().map(|stored| stored.call).collect()
}

fn whole(request: &'static str, asked_at_ms: u64) -> Vec<Transcript> {
    vec![Transcript { asked_at_ms, request: Bytes::from_static(request.as_bytes()), ..call(0) }]
}

pub(crate) async fn requests_that_go_on_from_others_are_told_whole(store: Engine) {
    let first = going_on(&store, None, "[one]", NOW).await;
    let second = going_on(&store, Some((&first, 4)), ",two]", NOW).await;
    let third = going_on(&store, Some((&second, 8)), ",three]", NOW).await;
    let other = going_on(&store, Some((&first, 0)), "else", NOW).await;
    assert_eq!(requests_of(&store, &first).await, whole("[one]", NOW));
    assert_eq!(requests_of(&store, &second).await, whole("[one,two]", NOW));
    assert_eq!(requests_of(&store, &third).await, whole("[one,two,three]", NOW));
    assert_eq!(requests_of(&store, &other).await, whole("else", NOW));

    // Also from one call to the next of the same turn.
    let turn = Turn::new("tools");
    let base = Some(Base { response_id: turn.id.clone(), number: 0, shared: 2 });
    let again = Transcript { base, number: 1, request: Bytes::from_static(b"zz"), ..call(1) };
    let calls = vec![Transcript { request: Bytes::from_static(b"abc"), ..call(0) }, again];
    keep(&store, &anna(), TurnWrite { transcripts: calls, ..turn.whole(None) }).await;
    let told = requests_of(&store, &turn).await;
    assert_eq!(told.iter().map(|call| &call.request[..]).collect::<Vec<_>>(), [&b"abc"[..], b"abzz"]);
}

pub(crate) async fn a_call_that_others_build_on_stays_as_long_as_they_do(store: Engine) {
    let first = going_on(&store, None, "[one]", NOW).await;
    let second = going_on(&store, Some((&first, 4)), ",two]", NOW + 1).await;
    let third = going_on(&store, Some((&second, 8)), ",three]", NOW + 500).await;
    assert!(store.delete_response(&anna(), &first.id).await.unwrap());
    assert_eq!(requests_of(&store, &second).await, whole("[one,two]", NOW + 1));
    let retention = Retention {
        events_before_ms: 0,
        transcripts_before_ms: NOW + 100,
        claims_before_ms: 0,
        responses_before_ms: None,
        files_before_ms: 0,
    };
    for _ in 0..3 {
        store.prune(operator(), retention).await.unwrap();
    }
    assert_eq!(requests_of(&store, &third).await, whole("[one,two,three]", NOW + 500));
}

pub(crate) async fn a_call_that_a_running_turn_may_build_on_stays_when_its_response_is_deleted(store: Engine) {
    let asked = |text: &'static str, base: Option<&Turn>| {
        let base = base.map(|turn| Base { response_id: turn.id.clone(), number: 0, shared: 4 });
        vec![Transcript { base, request: Bytes::from_static(text.as_bytes()), ..call(0) }]
    };
    let parent = Turn::new("parent");
    keep(&store, &anna(), TurnWrite { transcripts: asked("[one]", None), ..parent.whole(None) }).await;
    let place = store.response(&anna(), &parent.id).await.unwrap().unwrap().place;
    let children = ["a", "b", "c"].map(Turn::new);
    for child in &children {
        let begin = Begin { parent: Some(place.clone()), ..child.begin() };
        keep(&store, &anna(), child.beginning(begin)).await;
    }
    assert!(store.delete_response(&anna(), &parent.id).await.unwrap());
    // Also if another response that continued it is added and deleted meanwhile.
    for child in &children {
        keep(&store, &anna(), TurnWrite { transcripts: asked(",two]", Some(&parent)), ..child.ending() }).await;
        assert_eq!(requests_of(&store, child).await, whole("[one,two]", NOW));
        assert!(store.delete_response(&anna(), &child.id).await.unwrap());
    }
    // With the last of them it is deleted, too.
    let late = Turn::new("late");
    keep(&store, &anna(), TurnWrite { transcripts: asked(",two]", Some(&parent)), ..late.whole(None) }).await;
    assert_eq!(requests_of(&store, &late).await, asked(",two]", Some(&parent)));
}

pub(crate) async fn a_request_whose_beginning_is_missing_says_so(store: Engine) {
    // What is missing is what only the call had that is not there.
    let never = Turn::new("never");
    let missing = |request: &'static str, shared: u64| {
        let base = Some(Base { response_id: never.id.clone(), number: 0, shared });
        vec![Transcript { base, request: Bytes::from_static(request.as_bytes()), ..call(0) }]
    };
    let first = going_on(&store, Some((&never, 4)), ",two]", NOW).await;
    let second = going_on(&store, Some((&first, 8)), ",three]", NOW).await;
    let shorter = going_on(&store, Some((&second, 3)), "?", NOW).await;
    let another = going_on(&store, Some((&second, 0)), "else", NOW).await;
    assert_eq!(requests_of(&store, &first).await, missing(",two]", 4));
    assert_eq!(requests_of(&store, &second).await, missing(",two,three]", 4));
    assert_eq!(requests_of(&store, &shorter).await, missing("?", 3));
    assert_eq!(requests_of(&store, &another).await, whole("else", NOW));
}

pub(crate) async fn calls_and_words_of_a_turn_that_was_cancelled_from_outside_are_kept_once(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.queued())).await;
    keep(&store, &anna(), turn.starting()).await;
    let late = |number| std::sync::Arc::new(TurnWrite { transcripts: vec![call(number)], ..turn.ending() });
    store.add_unfinished(&anna(), late(0)).await.unwrap();
    assert_eq!(requests_of(&store, &turn).await, [], "it has not ended");

    store.cancel_response(&anna(), &turn.id, NOW).await.unwrap().unwrap();
    let cancelled = store.response(&anna(), &turn.id).await.unwrap().unwrap();
    assert_eq!(store.write(&anna(), late(0)).await.unwrap(), WriteOutcome::Lost);
    for stranger in strangers() {
        store.add_unfinished(&stranger, late(0)).await.unwrap();
    }
    assert_eq!(requests_of(&store, &turn).await, []);
    assert_eq!(store.response(&anna(), &turn.id).await.unwrap().unwrap(), cancelled);
    store.add_unfinished(&anna(), late(0)).await.unwrap();
    store.add_unfinished(&anna(), late(0)).await.unwrap();
    store.add_unfinished(&anna(), late(1)).await.unwrap();
    assert_eq!(requests_of(&store, &turn).await, [call(0)]);
    // right A4: what had been said stays with the response.
    let told = told(Status::Completed);
    let status = ResponseState { usage: told.usage, provenance: told.provenance, ..cancelled.status.clone() };
    let completed = StoredResponse { status, output: turn.output.clone(), ..cancelled };
    assert_eq!(store.response(&anna(), &turn.id).await.unwrap().unwrap(), completed);

    assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
    store.add_unfinished(&anna(), late(0)).await.unwrap();
    assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), None);
}

pub(crate) async fn settings_of_responses_are_read_alone_and_replaced_once_they_have_ended(store: Engine) {
    let (ended, running) = (Turn::new("hi"), Turn::new("ho"));
    keep(&store, &anna(), ended.whole(None)).await;
    keep(&store, &anna(), running.beginning(running.begin())).await;
    let ids = vec![ended.id.clone(), "resp_1".to_owned(), Turn::new("missing").id, running.id.clone()];
    let read = store.response_settings(&anna(), ids.clone()).await.unwrap();
    assert_eq!(read, [Some(ended.begin().settings), None, None, Some(running.begin().settings)]);
    let nothing: [Option<Bytes>; 4] = [None, None, None, None];
    for stranger in strangers() {
        assert_eq!(store.response_settings(&stranger, ids.clone()).await.unwrap(), nothing);
    }

    let changed = Bytes::from_static("\"model\":\"é\",\"metadata\":{}".as_bytes());
    for stranger in strangers() {
        assert!(!store.replace_response_settings(&stranger, &ended.id, changed.clone()).await.unwrap());
    }
    assert!(!store.replace_response_settings(&anna(), &running.id, changed.clone()).await.unwrap());
    assert!(!store.replace_response_settings(&anna(), "resp_1", changed.clone()).await.unwrap());
    assert!(store.replace_response_settings(&anna(), &ended.id, changed.clone()).await.unwrap());
    assert_eq!(store.response(&anna(), &ended.id).await.unwrap().unwrap().settings, changed);
    assert_eq!(store.response_settings(&anna(), ids).await.unwrap()[0], Some(changed));
}
