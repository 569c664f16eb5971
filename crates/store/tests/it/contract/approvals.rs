//! Calls that wait for an approval: one decision, by a caller with the right to it, in time, and used once.

use amalgam_core::{
    Decider, Scope,
    store::{Approval, Decision, DecisionOutcome, TurnWrite},
};
use tokio::task::JoinSet;

use crate::given::*;

fn decision(approve: bool, at_ms: u64) -> Decision {
    Decision { approve, reason: None, by: "anna".into(), at_ms }
}

fn decided(approval: &Approval, decision: &Decision) -> Box<Approval> {
    Box::new(Approval { decision: Some(decision.clone()), ..approval.clone() })
}

fn boss() -> Scope {
    scope(1, "boss")
}

pub(crate) async fn an_approval_is_read_back_as_it_was_asked(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    let first = Approval { arguments: r#"{ "x" : "ü '; -- \u{1F980}" }"#.into(), ..asked(&turn, "mcpr_1") };
    let second = Approval { decider: Decider::Admin, call_id: "call_2".into(), ..asked(&turn, "mcpr_2") };
    let approvals = vec![first.clone(), second.clone()];
    keep(&store, &anna(), TurnWrite { approvals, tools: vec![ran(0)], ..turn.ending() }).await;
    for approval in [first, second] {
        assert_eq!(store.approval(&anna(), &approval.id).await.unwrap(), Some(approval.clone()));
        let seen = store.approval_of_tenant(boss().admin().unwrap(), &approval.id).await.unwrap();
        assert_eq!(seen, Some(approval));
    }
    // The requesting turn determines the owner and the response of an approval.
    let turn = Turn::new("hi");
    let claims = Approval { user: "bert".into(), response_id: "resp_x".into(), ..asked(&turn, "mcpr_3") };
    keep(&store, &anna(), TurnWrite { approvals: vec![claims], ..turn.whole(None) }).await;
    assert_eq!(store.approval(&anna(), "mcpr_3").await.unwrap(), Some(asked(&turn, "mcpr_3")));
    assert_eq!(store.approval(&scope(1, "bert"), "mcpr_3").await.unwrap(), None);
}

pub(crate) async fn the_first_decision_stands(store: Engine) {
    for (number, approve) in [true, false].into_iter().enumerate() {
        let turn = Turn::new("hi");
        let approval = ask(&store, asked(&turn, &format!("mcpr_{number}"))).await;
        let id = approval.id.as_str();
        let first = Decision { reason: Some("weil „ja“".into()), ..decision(approve, NOW + 1) };
        let stands = decided(&approval, &first);
        let answer = store.decide(&anna(), id, first).await.unwrap();
        assert_eq!(answer, Some(DecisionOutcome::Stands(stands.clone())));
        assert_eq!(store.approval(&anna(), id).await.unwrap().as_ref(), Some(&*stands));

        // The same decision again, by any user and at any time, changes nothing; the opposite one comes too late.
        let again = Decision { by: "boss".into(), ..decision(approve, NOW + 9_999) };
        let answer = store.decide_as_admin(boss().admin().unwrap(), id, again, audit()).await.unwrap();
        assert_eq!(answer, Some(DecisionOutcome::Stands(stands.clone())));
        let answer = store.decide(&anna(), id, decision(!approve, NOW + 2)).await.unwrap();
        assert_eq!(answer, Some(DecisionOutcome::TooLate(stands.clone())));
        assert_eq!(store.approval(&anna(), id).await.unwrap().as_ref(), Some(&*stands));
    }
}

pub(crate) async fn what_has_run_out_is_not_decided_any_more(store: Engine) {
    let approval = ask(&store, asked(&Turn::new("hi"), "mcpr_1")).await;
    for approve in [true, false] {
        let late = decision(approve, approval.expires_at_ms);
        let answer = store.decide(&anna(), "mcpr_1", late.clone()).await.unwrap();
        assert_eq!(answer, Some(DecisionOutcome::TooLate(Box::new(approval.clone()))));
        let answer = store.decide_as_admin(boss().admin().unwrap(), "mcpr_1", late, audit()).await.unwrap();
        assert_eq!(answer, Some(DecisionOutcome::TooLate(Box::new(approval.clone()))));
    }
    assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(approval.clone()));
    let in_time = decision(true, approval.expires_at_ms - 1);
    let answer = store.decide(&anna(), "mcpr_1", in_time.clone()).await.unwrap();
    assert_eq!(answer, Some(DecisionOutcome::Stands(decided(&approval, &in_time))));
}

pub(crate) async fn a_caller_does_not_decide_in_the_administrators_place(store: Engine) {
    let approval = ask(&store, Approval { decider: Decider::Admin, ..asked(&Turn::new("hi"), "mcpr_1") }).await;
    let yes = decision(true, NOW + 1);
    let answer = store.decide(&anna(), "mcpr_1", yes.clone()).await.unwrap();
    assert_eq!(answer, Some(DecisionOutcome::NotYours(Box::new(approval.clone()))));
    assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(approval.clone()));

    let by_boss = Decision { by: "boss".into(), ..yes.clone() };
    let stands = decided(&approval, &by_boss);
    let answer = store.decide_as_admin(boss().admin().unwrap(), "mcpr_1", by_boss, audit()).await.unwrap();
    assert_eq!(answer, Some(DecisionOutcome::Stands(stands.clone())));
    let answer = store.decide(&anna(), "mcpr_1", yes).await.unwrap();
    assert_eq!(answer, Some(DecisionOutcome::NotYours(stands)));
}

pub(crate) async fn approvals_of_others_look_missing(store: Engine) {
    // P10, S10
    let approval = ask(&store, asked(&Turn::new("hi"), "mcpr_1")).await;
    for stranger in strangers() {
        assert_eq!(store.approval(&stranger, "mcpr_1").await.unwrap(), None);
        assert_eq!(store.decide(&stranger, "mcpr_1", decision(true, NOW)).await.unwrap(), None);
        assert!(!store.use_approval(&stranger, "mcpr_1", "resp_1").await.unwrap());
    }
    let elsewhere = scope(2, "anna");
    let elsewhere = elsewhere.admin().unwrap();
    assert_eq!(store.approval_of_tenant(elsewhere, "mcpr_1").await.unwrap(), None);
    assert_eq!(store.decide_as_admin(elsewhere, "mcpr_1", decision(true, NOW), audit()).await.unwrap(), None);
    assert_eq!(store.approvals(elsewhere, false, None, 9, NOW).await.unwrap(), []);
    assert_eq!(store.decide(&anna(), "mcpr_never", decision(true, NOW)).await.unwrap(), None);
    assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(approval));
    // An administrator of the tenant sees it all the same.
    let granted = store.decide_as_admin(boss().admin().unwrap(), "mcpr_1", decision(true, NOW), audit()).await.unwrap();
    assert!(matches!(granted, Some(DecisionOutcome::Stands(_))));
    for stranger in strangers() {
        assert!(!store.use_approval(&stranger, "mcpr_1", "resp_1").await.unwrap());
    }
}

pub(crate) async fn approvals_are_listed_newest_first_in_pages(store: Engine) {
    // The last two were asked in the same moment, and one of the others has run out.
    for (id, asked_at_ms, expires_at_ms) in [
        ("mcpr_c", NOW + 1, NOW + 1000),
        ("mcpr_b", NOW + 2, NOW + 50),
        ("mcpr_d", NOW + 3, NOW + 1000),
        ("mcpr_a", NOW + 4, NOW + 1000),
        ("mcpr_e", NOW + 4, NOW + 1000),
    ] {
        ask(&store, Approval { asked_at_ms, expires_at_ms, ..asked(&Turn::new("hi"), id) }).await;
    }
    store.decide(&anna(), "mcpr_d", decision(false, NOW + 5)).await.unwrap();
    let boss = boss();
    let listed = async |pending, after, limit| {
        let found = store.approvals(boss.admin().unwrap(), pending, after, limit, NOW + 50).await.unwrap();
        found.into_iter().map(|approval| approval.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(false, None, 9).await, ["mcpr_e", "mcpr_a", "mcpr_d", "mcpr_b", "mcpr_c"]);
    assert_eq!(listed(false, None, 1).await, ["mcpr_e"]);
    assert_eq!(listed(false, Some("mcpr_e"), 2).await, ["mcpr_a", "mcpr_d"]);
    assert_eq!(listed(false, Some("mcpr_c"), 9).await, [""; 0]);
    assert_eq!(listed(false, Some("mcpr_never"), 9).await, [""; 0]);
    assert_eq!(listed(true, None, 9).await, ["mcpr_e", "mcpr_a", "mcpr_c"]);
    assert_eq!(listed(true, Some("mcpr_d"), 9).await, ["mcpr_c"], "also behind one that is not pending any more");
    let earlier = store.approvals(boss.admin().unwrap(), true, None, 9, NOW + 49).await.unwrap();
    assert_eq!(earlier.len(), 4, "at that moment one had not run out");
}

pub(crate) async fn a_granted_call_is_used_by_one_response(store: Engine) {
    let turn = Turn::new("hi");
    let granted = ask(&store, asked(&turn, "mcpr_yes")).await;
    ask(&store, asked(&turn, "mcpr_no")).await;
    ask(&store, asked(&turn, "mcpr_open")).await;
    let used = async |id, response| store.use_approval(&anna(), id, response).await.unwrap();
    assert!(!used("mcpr_yes", "resp_1").await, "it is not approved");
    store.decide(&anna(), "mcpr_yes", decision(true, NOW)).await.unwrap();
    store.decide(&anna(), "mcpr_no", decision(false, NOW)).await.unwrap();

    assert!(used("mcpr_yes", "resp_1").await);
    assert!(used("mcpr_yes", "resp_1").await, "it is the same response's still");
    for (id, response) in [("mcpr_yes", "resp_2"), ("mcpr_no", "resp_1"), ("mcpr_open", "resp_1"), ("mcpr_x", "resp_1")]
    {
        assert!(!used(id, response).await, "{id} {response}");
    }
    let expected = Approval { used_by: Some("resp_1".into()), ..*decided(&granted, &decision(true, NOW)) };
    assert_eq!(store.approval(&anna(), "mcpr_yes").await.unwrap(), Some(expected));
}

pub(crate) async fn racing_deciders_have_one_winner(store: Engine) {
    ask(&store, asked(&Turn::new("hi"), "mcpr_1")).await;
    let mut racing = JoinSet::new();
    for number in 0..16_u64 {
        let store = store.clone();
        racing.spawn(async move {
            let mine = Decision { by: format!("{number}"), ..decision(number % 2 == 0, NOW + number) };
            let answer = match number % 4 {
                0 | 1 => store.decide(&anna(), "mcpr_1", mine).await,
                _ => store.decide_as_admin(boss().admin().unwrap(), "mcpr_1", mine, audit()).await,
            };
            (number % 2 == 0, answer.unwrap().unwrap())
        });
    }
    let answers = racing.join_all().await;
    let stands = store.approval(&anna(), "mcpr_1").await.unwrap().unwrap();
    let winner = stands.decision.as_ref().unwrap().approve;
    for (approve, answer) in answers {
        let expected = if approve == winner { DecisionOutcome::Stands } else { DecisionOutcome::TooLate };
        assert_eq!(answer, expected(Box::new(stands.clone())), "every caller gets the first decision");
    }
}

pub(crate) async fn racing_users_of_an_approval_have_one_winner(store: Engine) {
    ask(&store, asked(&Turn::new("hi"), "mcpr_1")).await;
    store.decide(&anna(), "mcpr_1", decision(true, NOW)).await.unwrap();
    let mut racing = JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        racing.spawn(async move { store.use_approval(&anna(), "mcpr_1", &format!("resp_{number}")).await.unwrap() });
    }
    assert_eq!(racing.join_all().await.into_iter().filter(|used| *used).count(), 1);
}
