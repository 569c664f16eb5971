//! Chains and forks: which items a response continues, in any order of writes and deletions.

use std::collections::HashSet;

use amalgam_core::{
    UpstreamMemory,
    store::{Begin, Ending, TurnWrite, WriteOutcome},
};
use amalgam_protocol::Status;
use tokio::task::JoinSet;

use crate::given::*;

pub(crate) async fn a_chain_is_told_oldest_first(store: Engine) {
    let first = say(&store, &anna(), None, "one").await;
    let second = say(&store, &anna(), Some(&first), "two").await;
    let third = say(&store, &anna(), Some(&second), "three").await;
    assert_eq!(line(&store, &anna(), &third.id).await, line_of(&[&first, &second, &third]));
    assert_eq!(line(&store, &anna(), &second.id).await, line_of(&[&first, &second]));
    assert_eq!(line(&store, &anna(), &first.id).await, line_of(&[&first]));
    let lineage = store.lineage(&anna(), &third.id).await.unwrap().unwrap();
    let told = store.response(&anna(), &third.id).await.unwrap().unwrap().place;
    assert_eq!((lineage.status, lineage.place), (Status::Completed, told));
}

pub(crate) async fn a_fork_does_not_see_its_sibling(store: Engine) {
    let root = say(&store, &anna(), None, "root").await;
    let left = say(&store, &anna(), Some(&root), "left").await;
    let right = say(&store, &anna(), Some(&root), "right").await;
    assert_eq!(line(&store, &anna(), &left.id).await, line_of(&[&root, &left]));
    assert_eq!(line(&store, &anna(), &right.id).await, line_of(&[&root, &right]));
    // Each fork continues independently.
    let on = say(&store, &anna(), Some(&right), "on").await;
    assert_eq!(line(&store, &anna(), &on.id).await, line_of(&[&root, &right, &on]));
    assert_eq!(line(&store, &anna(), &left.id).await, line_of(&[&root, &left]));
}

pub(crate) async fn forks_of_forks_see_their_own_line_only(store: Engine) {
    let a = say(&store, &anna(), None, "a").await;
    let b = say(&store, &anna(), Some(&a), "b").await;
    let c = say(&store, &anna(), Some(&b), "c").await;
    let fork = say(&store, &anna(), Some(&b), "fork").await;
    let on = say(&store, &anna(), Some(&fork), "on").await;
    let again = say(&store, &anna(), Some(&fork), "again").await;
    let end = say(&store, &anna(), Some(&again), "end").await;
    let from_root = say(&store, &anna(), Some(&a), "from the root").await;
    assert_eq!(line(&store, &anna(), &end.id).await, line_of(&[&a, &b, &fork, &again, &end]));
    assert_eq!(line(&store, &anna(), &on.id).await, line_of(&[&a, &b, &fork, &on]));
    assert_eq!(line(&store, &anna(), &c.id).await, line_of(&[&a, &b, &c]));
    assert_eq!(line(&store, &anna(), &from_root.id).await, line_of(&[&a, &from_root]));
}

pub(crate) async fn racing_children_all_have_their_own_line(store: Engine) {
    let root = say(&store, &anna(), None, "root").await;
    let parent = place(&store, &anna(), &root.id).await;
    let children: Vec<Turn> = (0..100).map(|number| Turn::new(&format!("child {number}"))).collect();
    let mut racing = JoinSet::new();
    for child in children.clone() {
        let (store, parent) = (store.clone(), parent.clone());
        racing.spawn(async move {
            let begin = Begin { parent: Some(parent), ..child.begin() };
            keep(&store, &anna(), child.beginning(begin)).await;
            keep(&store, &anna(), child.ending()).await;
        });
    }
    while let Some(done) = racing.join_next().await {
        done.unwrap();
    }
    let mut places = HashSet::new();
    for child in &children {
        assert_eq!(line(&store, &anna(), &child.id).await, line_of(&[&root, child]));
        places.insert(place(&store, &anna(), &child.id).await);
    }
    assert_eq!(places.len(), 100, "no two responses share a place");
}

pub(crate) async fn a_thousand_turns_are_told_at_once(store: Engine) {
    let first = Turn::new("turn 0");
    keep(&store, &anna(), first.whole(None)).await;
    let mut turns = vec![first];
    for number in 1..1000 {
        let told = store.response(&anna(), &turns[number - 1].id).await.unwrap().unwrap();
        let turn = Turn::new(&format!("turn {number}"));
        keep(&store, &anna(), turn.whole(Some(told.place))).await;
        turns.push(turn);
    }
    let all: Vec<&Turn> = turns.iter().collect();
    assert!(line(&store, &anna(), &turns[999].id).await == line_of(&all), "a line of a thousand differs");
    let fork = say(&store, &anna(), Some(&turns[499]), "fork").await;
    let expected = line_of(&all[..500]).into_iter().chain(line_of(&[&fork])).collect::<Vec<_>>();
    assert!(line(&store, &anna(), &fork.id).await == expected, "a fork from the middle differs");
}

pub(crate) async fn a_turn_that_failed_is_in_the_line_with_its_status(store: Engine) {
    let root = say(&store, &anna(), None, "root").await;
    let turn = Turn::new("hi");
    let parent = Some(place(&store, &anna(), &root.id).await);
    keep(&store, &anna(), turn.beginning(Begin { parent, ..turn.begin() })).await;
    let lineage = store.lineage(&anna(), &turn.id).await.unwrap().unwrap();
    assert_eq!((lineage.status, &lineage.turns[1].output), (Status::InProgress, &json("[]")));
    let failed = Ending { state: told(Status::Failed), output: json("[]"), upstream: None };
    keep(&store, &anna(), TurnWrite { end: Some(Box::new(failed)), ..turn.step() }).await;
    let lineage = store.lineage(&anna(), &turn.id).await.unwrap().unwrap();
    assert_eq!((lineage.status, lineage.turns.len()), (Status::Failed, 2));
}

pub(crate) async fn what_an_upstream_keeps_is_told_with_the_response_itself(store: Engine) {
    let kept = r#"{"upstream":"up","model":"m","id":"resp_\"é","entries":2,"digest":"0a"}"#;
    let memory = UpstreamMemory::read(json(kept).raw());
    assert!(memory.is_some());
    let ends = |turn: &Turn| Some(Box::new(Ending { upstream: memory.clone(), ..turn.completed() }));
    let known = async |id: &str| store.lineage(&anna(), id).await.unwrap().unwrap().upstream;
    // In one step, and in two.
    let root = Turn::new("root");
    keep(&store, &anna(), TurnWrite { end: ends(&root), ..root.beginning(root.begin()) }).await;
    assert_eq!(known(&root.id).await, memory);
    let next = Turn::new("next");
    let parent = Some(place(&store, &anna(), &root.id).await);
    keep(&store, &anna(), next.beginning(Begin { parent, ..next.begin() })).await;
    assert_eq!(known(&next.id).await, None);
    keep(&store, &anna(), TurnWrite { end: ends(&next), ..next.step() }).await;
    assert_eq!(known(&next.id).await, memory);
    // What was said in between, and what forks off, is not what the upstream knows.
    let on = say(&store, &anna(), Some(&next), "on").await;
    let fork = say(&store, &anna(), Some(&root), "fork").await;
    assert_eq!((known(&on.id).await, known(&fork.id).await, known(&root.id).await), (None, None, memory.clone()));
}

pub(crate) async fn what_was_deleted_in_the_middle_is_still_built_on(store: Engine) {
    let a = say(&store, &anna(), None, "a").await;
    let b = say(&store, &anna(), Some(&a), "b").await;
    let c = say(&store, &anna(), Some(&b), "c").await;
    let fork = say(&store, &anna(), Some(&b), "fork").await;
    for deleted in [&a, &b] {
        assert!(store.delete_response(&anna(), &deleted.id).await.unwrap());
        assert_eq!(store.response(&anna(), &deleted.id).await.unwrap(), None);
        assert_eq!(store.lineage(&anna(), &deleted.id).await.unwrap(), None);
        let ids = [deleted.input_id.clone(), deleted.output_id.clone()];
        assert_eq!(store.items(&anna(), &ids).await.unwrap(), [None, None]);
    }
    assert_eq!(line(&store, &anna(), &c.id).await, line_of(&[&a, &b, &c]));
    assert!(store.delete_response(&anna(), &c.id).await.unwrap());
    assert_eq!(line(&store, &anna(), &fork.id).await, line_of(&[&a, &b, &fork]));
    let on = say(&store, &anna(), Some(&fork), "on").await;
    assert!(store.delete_response(&anna(), &fork.id).await.unwrap());
    assert_eq!(line(&store, &anna(), &on.id).await, line_of(&[&a, &b, &fork, &on]));
    assert!(store.delete_response(&anna(), &on.id).await.unwrap());
}

pub(crate) async fn what_was_deleted_cannot_be_continued(store: Engine) {
    // The place was read before the deletion, as a turn that races with it would have.
    let root = say(&store, &anna(), None, "root").await;
    let alone = place(&store, &anna(), &root.id).await;
    assert!(store.delete_response(&anna(), &root.id).await.unwrap());
    let late = Turn::new("late");
    assert_eq!(store.write(&anna(), late.whole(Some(alone)).into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(store.response(&anna(), &late.id).await.unwrap(), None);

    // Also when another response has come to be where it was.
    let alone = say(&store, &anna(), None, "alone").await;
    let stale = place(&store, &anna(), &alone.id).await;
    assert!(store.delete_response(&anna(), &alone.id).await.unwrap());
    let other = say(&store, &anna(), None, "other").await;
    assert_eq!(store.write(&anna(), late.whole(Some(stale)).into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(line(&store, &anna(), &other.id).await, line_of(&[&other]));

    // Also when others build on it.
    let root = say(&store, &anna(), None, "root").await;
    let child = say(&store, &anna(), Some(&root), "child").await;
    let built_on = place(&store, &anna(), &root.id).await;
    assert!(store.delete_response(&anna(), &root.id).await.unwrap());
    assert_eq!(store.write(&anna(), late.whole(Some(built_on)).into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(store.response(&anna(), &late.id).await.unwrap(), None);
    assert_eq!(line(&store, &anna(), &child.id).await, line_of(&[&root, &child]));
}

pub(crate) async fn a_place_that_was_deleted_is_not_taken_by_another(store: Engine) {
    // A request still continues the deleted response: it must not find another one in its place.
    let root = say(&store, &anna(), None, "root").await;
    let first = say(&store, &anna(), Some(&root), "first").await;
    let stale = place(&store, &anna(), &first.id).await;
    assert!(store.delete_response(&anna(), &first.id).await.unwrap());
    let second = say(&store, &anna(), Some(&root), "second").await;
    let late = Turn::new("late");
    assert_eq!(store.write(&anna(), late.whole(Some(stale)).into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(store.response(&anna(), &late.id).await.unwrap(), None);
    let third = say(&store, &anna(), Some(&second), "third").await;
    assert_eq!(line(&store, &anna(), &third.id).await, line_of(&[&root, &second, &third]));
    assert_eq!(line(&store, &anna(), &root.id).await, line_of(&[&root]));
}
