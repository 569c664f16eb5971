//! Data that is deleted by age, and data that is deleted at once.

use amalgam_core::{
    BANK_LABEL, Rights, TenantState,
    store::{
        Answer, Approval, BankOf, Begin, CallBodies, Claim, Conversation, IdempotencyKey, KeyRecord, NewItem, NewKey,
        Retention, ToolRun, Transcript, TurnWrite,
    },
};
use amalgam_protocol::Status;

use crate::given::*;

pub(crate) const KEEP_ALL: Retention = Retention {
    events_before_ms: 0,
    transcripts_before_ms: 0,
    claims_before_ms: 0,
    responses_before_ms: None,
    files_before_ms: 0,
};

/// Prunes until nothing is left to go.
async fn prune(store: &Engine, retention: Retention) -> u64 {
    let mut rows = 0;
    for _ in 0..100 {
        match store.prune(operator(), retention).await.unwrap().rows {
            0 => return rows,
            pruned => rows += pruned,
        }
    }
    panic!("pruning never comes to an end");
}

/// A finished stream with a model call, of that age.
async fn aged(store: &Engine, created_at_ms: u64) -> Turn {
    let turn = Turn::new("hi");
    let mut whole = turn.whole(None);
    whole.begin = Some(Box::new(Begin { created_at_ms, streamed: true, ..turn.begin() }));
    let end = whole.end.as_mut().unwrap();
    end.state.completed_at_ms = Some(created_at_ms);
    whole.events = turn.saying(0, 4, "frames").events;
    whole.transcripts = vec![Transcript { asked_at_ms: created_at_ms, ..call(0) }];
    keep(store, &anna(), whole).await;
    turn
}

async fn events(store: &Engine, turn: &Turn) -> usize {
    store.events(&anna(), &turn.id, None, 99).await.unwrap().unwrap().chunks.len()
}

async fn calls(store: &Engine, turn: &Turn) -> usize {
    let admin = anna();
    store.turn_calls(admin.admin().unwrap(), &turn.id, CallBodies::None).await.unwrap().len()
}

pub(crate) async fn what_is_old_goes_and_what_is_young_stays(store: Engine) {
    let (old, young) = (aged(&store, NOW).await, aged(&store, NOW + 100).await);
    let idempotency_key = |key: &str| IdempotencyKey { route: "r".into(), key: key.into() };
    for (key, at) in [("old", NOW), ("young", NOW + 100)] {
        assert_eq!(
            store.claim(&anna(), &idempotency_key(key), [1; 32], "resp_1", HERE, at).await.unwrap(),
            Claim::First
        );
        store.settle(&anna(), &idempotency_key(key), "resp_1", Some(Answer::Stored)).await.unwrap();
    }
    assert_eq!(prune(&store, KEEP_ALL).await, 0);
    let limit = NOW + 100;

    assert!(prune(&store, Retention { events_before_ms: limit, ..KEEP_ALL }).await > 0);
    assert_eq!((events(&store, &old).await, events(&store, &young).await), (0, 1));
    let tail = store.events(&anna(), &old.id, None, 99).await.unwrap().unwrap();
    assert_eq!((tail.response.streamed, tail.last), (false, None), "it says so, too");

    assert!(prune(&store, Retention { transcripts_before_ms: limit, ..KEEP_ALL }).await > 0);
    assert_eq!((calls(&store, &old).await, calls(&store, &young).await), (0, 1));

    assert!(prune(&store, Retention { claims_before_ms: limit, ..KEEP_ALL }).await > 0);
    assert_eq!(
        store.claim(&anna(), &idempotency_key("old"), [1; 32], "resp_2", HERE, NOW).await.unwrap(),
        Claim::First
    );
    let done = Claim::Done { response_id: "resp_1".into(), answer: Answer::Stored };
    assert_eq!(store.claim(&anna(), &idempotency_key("young"), [1; 32], "resp_2", HERE, NOW).await.unwrap(), done);

    assert!(prune(&store, Retention { responses_before_ms: Some(limit), ..KEEP_ALL }).await > 0);
    assert_eq!(store.response(&anna(), &old.id).await.unwrap(), None);
    assert!(store.response(&anna(), &young.id).await.unwrap().is_some());
    assert_eq!((events(&store, &young).await, calls(&store, &young).await), (1, 1));
}

pub(crate) async fn what_has_not_ended_stays(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(Begin { streamed: true, ..turn.begin() })).await;
    keep(&store, &anna(), turn.saying(0, 3, "x")).await;
    let waiting = Turn::new("waiting");
    keep(&store, &anna(), waiting.beginning(waiting.queued())).await;
    let idempotency_key = IdempotencyKey { route: "r".into(), key: "k".into() };
    assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], &turn.id, HERE, NOW).await.unwrap(), Claim::First);
    let later = NOW + 1_000_000;
    let all = Retention {
        events_before_ms: later,
        transcripts_before_ms: later,
        claims_before_ms: later,
        responses_before_ms: Some(later),
        files_before_ms: later,
    };
    assert_eq!(prune(&store, all).await, 0);
    assert_eq!(events(&store, &turn).await, 1);
    let running = Claim::Running { response_id: turn.id.clone() };
    assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], "resp_x", HERE, NOW).await.unwrap(), running);
    keep(&store, &anna(), turn.ending()).await;
    assert_eq!(store.take_queued(operator(), HERE, 9).await.unwrap().len(), 1);
}

pub(crate) async fn young_turns_keep_what_they_build_on(store: Engine) {
    let mut old = Vec::new();
    for number in 0..120 {
        old.push(say(&store, &anna(), old.last(), &format!("old {number}")).await);
    }
    let young = Turn::new("young");
    let parent = Some(place(&store, &anna(), &old[119].id).await);
    let mut whole = young.whole(None);
    whole.begin = Some(Box::new(Begin { parent, created_at_ms: NOW + 100, ..young.begin() }));
    keep(&store, &anna(), whole).await;

    assert!(prune(&store, Retention { responses_before_ms: Some(NOW + 50), ..KEEP_ALL }).await >= 120);
    for gone in [&old[0], &old[60], &old[119]] {
        assert_eq!(store.response(&anna(), &gone.id).await.unwrap(), None);
    }
    let all: Vec<&Turn> = old.iter().chain([&young]).collect();
    assert!(line(&store, &anna(), &young.id).await == line_of(&all), "the line of a young turn is not whole");
}

pub(crate) async fn tool_calls_and_approvals_go_with_the_model_calls(store: Engine) {
    let limit = NOW + 100;
    let tools = async |turn: &Turn| {
        let admin = anna();
        let turn = store.turn(admin.admin().unwrap(), &turn.id).await.unwrap().unwrap();
        turn.tools.into_iter().map(|run| run.number).collect::<Vec<_>>()
    };
    let (ended, running) = (Turn::new("ended"), Turn::new("running"));
    // One that was abandoned in the middle, too: its outcome stays unknown.
    let runs = vec![ran(0), run(1), ToolRun { started_at_ms: limit, ..ran(2) }];
    keep(&store, &anna(), TurnWrite { tools: runs, ..ended.whole(None) }).await;
    keep(&store, &anna(), TurnWrite { tools: vec![ran(0), run(1)], ..running.beginning(running.begin()) }).await;
    let old = ask(&store, Approval { expires_at_ms: limit - 1, ..asked(&ended, "mcpr_old") }).await;
    let young = ask(&store, Approval { expires_at_ms: limit, ..asked(&ended, "mcpr_young") }).await;

    assert_eq!(prune(&store, KEEP_ALL).await, 0);
    assert_eq!(prune(&store, Retention { transcripts_before_ms: limit, ..KEEP_ALL }).await, 4);
    assert_eq!((tools(&ended).await, tools(&running).await), (vec![2], vec![1]));
    assert_eq!(store.approval(&anna(), &old.id).await.unwrap(), None);
    assert_eq!(store.approval(&anna(), &young.id).await.unwrap(), Some(young.clone()));
    // With their response they go in any case.
    assert!(prune(&store, Retention { responses_before_ms: Some(limit), ..KEEP_ALL }).await > 0);
    assert_eq!(store.approval(&anna(), &young.id).await.unwrap(), None);
}

pub(crate) async fn reset_forgets_turns_and_with_all_everything(store: Engine) {
    let fill = async || {
        store.create_tenant(operator(), Some(1), "t", TenantState::Stored, NOW, audit()).await.unwrap();
        let record = KeyRecord {
            id: "key_1".into(),
            tenant_id: 1,
            prefix: "am_".into(),
            label: None,
            rights: Rights::USE,
            user: None,
            created_at_ms: NOW,
            expires_at_ms: None,
            revoked_at_ms: None,
            last_used_at_ms: None,
        };
        store.create_key(operator(), NewKey { record, hash: [1; 32] }, audit()).await.unwrap();
        store.remember(operator(), "name", "text", true).await.unwrap();
        let conversation = Conversation { id: "conv_1".into(), created_at_ms: NOW, metadata: json("{}") };
        let item = NewItem { id: "msg_1".into(), item: json(r#"{"id":"msg_1"}"#) };
        store.create_conversation(&anna(), &conversation, vec![item]).await.unwrap();
        let idempotency_key = IdempotencyKey { route: "r".into(), key: "k".into() };
        assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], "resp_1", HERE, NOW).await.unwrap(), Claim::First);
        let turn = Turn::new("hi");
        let whole = TurnWrite {
            transcripts: vec![call(0)],
            events: turn.saying(0, 1, "x").events,
            tools: vec![ran(0)],
            approvals: vec![asked(&turn, "mcpr_1")],
            ..turn.whole(None)
        };
        keep(&store, &anna(), whole).await;
        store.put_tool(BankOf::Common(operator()), tool("common"), audit()).await.unwrap();
        store.put_tool(BankOf::Tenant(anna().admin().unwrap()), tool("own"), audit()).await.unwrap();
        turn
    };
    let is_empty = async |turn: &Turn| {
        assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), None);
        assert_eq!(store.conversation(&anna(), "conv_1").await.unwrap(), None);
        assert_eq!(store.items(&anna(), &["msg_1".into(), turn.input_id.clone()]).await.unwrap(), [None, None]);
        assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), None);
        let calls = store.tool_statistics(anna().admin().unwrap(), BANK_LABEL, "book_room", 0).await.unwrap().calls;
        assert_eq!(calls, 0);
    };
    let turn = fill().await;
    store.reset(operator(), amalgam_core::store::Reset::Runtime(Vec::new())).await.unwrap();
    is_empty(&turn).await;
    assert!(store.key_by_hash(operator(), [1; 32]).await.unwrap().is_some());
    assert_eq!(store.remembered(operator(), "name").await.unwrap().as_deref(), Some("text"));
    assert_eq!(store.tools_for(&anna(), None).await.unwrap().len(), 2);

    let turn = fill().await;
    store.reset(operator(), amalgam_core::store::Reset::Everything).await.unwrap();
    is_empty(&turn).await;
    assert_eq!(store.tenants(operator(), None, 9).await.unwrap(), []);
    assert_eq!(store.keys(operator(), None, None, 9).await.unwrap(), []);
    assert_eq!(store.remembered(operator(), "name").await.unwrap(), None);
    assert_eq!(store.tools_for(&anna(), None).await.unwrap(), []);
    // And everything can be made again.
    let turn = fill().await;
    assert_eq!(store.response(&anna(), &turn.id).await.unwrap().unwrap().status.status, Status::Completed);
}

pub(crate) async fn a_store_that_can_be_used_says_so(store: Engine) {
    store.ping().await.unwrap();
    say(&store, &anna(), None, "hi").await;
    store.ping().await.unwrap();
}
