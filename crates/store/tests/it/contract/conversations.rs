//! Conversations: their items in order, from any number of writers.

use amalgam_core::store::{
    AppendOutcome, Begin, Conversation, ConversationItem, Ending, Listing, NewItem, Order, Page, TurnWrite,
};
use amalgam_protocol::{Json, Status};
use tokio::task::JoinSet;

use crate::given::*;

fn item(id: &str) -> NewItem {
    NewItem { id: id.into(), item: json(&format!(r#"{{"type":"message","id":"{id}","content":"é"}}"#)) }
}

fn kept(id: &str) -> ConversationItem {
    ConversationItem { id: id.into(), item: item(id).item }
}

async fn talk(store: &Engine, ids: &[&str]) -> Conversation {
    let conversation = Conversation { id: "conv_1".into(), created_at_ms: NOW, metadata: json(r#"{"topic":"x"}"#) };
    let items = ids.iter().map(|id| item(id)).collect();
    store.create_conversation(&anna(), &conversation, items).await.unwrap();
    conversation
}

async fn history(store: &Engine) -> Vec<String> {
    let items = store.conversation_history(&anna(), "conv_1").await.unwrap().unwrap();
    items.iter().map(|item: &Json| item.raw().get_str("id").unwrap().into_owned()).collect()
}

pub(crate) async fn a_conversation_is_made_read_changed_and_forgotten(store: Engine) {
    let made = talk(&store, &["a", "b"]).await;
    assert_eq!(store.conversation(&anna(), "conv_1").await.unwrap(), Some(made.clone()));
    let changed = Conversation { metadata: json(r#"{"topic":"y","more":"z"}"#), ..made };
    let updated = store.update_conversation(&anna(), "conv_1", changed.metadata.clone()).await.unwrap();
    assert_eq!(updated, Some(changed.clone()));
    assert_eq!(store.conversation(&anna(), "conv_1").await.unwrap(), Some(changed));

    assert!(store.delete_conversation(&anna(), "conv_1").await.unwrap());
    assert!(!store.delete_conversation(&anna(), "conv_1").await.unwrap());
    assert_eq!(store.conversation(&anna(), "conv_1").await.unwrap(), None);
    assert_eq!(store.conversation_history(&anna(), "conv_1").await.unwrap(), None);
    assert_eq!(store.items(&anna(), &["a".into()]).await.unwrap(), [None]);
    talk(&store, &[]).await;
    assert_eq!(history(&store).await, [""; 0], "a new one of the same id has no items of the old one");
}

pub(crate) async fn items_are_added_all_or_none(store: Engine) {
    talk(&store, &["a", "b"]).await;
    let add = async |ids: &[&str]| {
        store.add_items(&anna(), "conv_1", ids.iter().map(|id| item(id)).collect()).await.unwrap().unwrap()
    };
    assert_eq!(add(&["c", "d"]).await, AppendOutcome::All);
    assert_eq!(add(&["e", "b", "f"]).await, AppendOutcome::Taken("b".into()));
    assert_eq!(add(&["g", "g"]).await, AppendOutcome::Taken("g".into()));
    assert_eq!(add(&[]).await, AppendOutcome::All);
    assert_eq!(history(&store).await, ["a", "b", "c", "d"]);
    // Another conversation may have an item of the same id, and each is found in its own.
    let other = Conversation { id: "conv_2".into(), created_at_ms: NOW, metadata: json("{}") };
    store.create_conversation(&anna(), &other, vec![item("a")]).await.unwrap();
    assert_eq!(
        store.items(&anna(), &["a".into(), "d".into()]).await.unwrap(),
        [Some(item("a").item), Some(item("d").item)]
    );
    assert_eq!(store.conversation_item(&anna(), "conv_2", "d").await.unwrap(), None);
}

pub(crate) async fn items_are_paged_both_ways(store: Engine) {
    talk(&store, &["a", "b", "c", "d", "e"]).await;
    let list = async |after: Option<&str>, limit, order| {
        let page = Page { after: after.map(str::to_owned), limit, order };
        store.list_items(&anna(), "conv_1", &page).await.unwrap().unwrap()
    };
    let items = |ids: &[&str], has_more| Listing::Items { items: ids.iter().map(|id| kept(id)).collect(), has_more };
    let (up, down) = (Order::Ascending, Order::Descending);
    assert_eq!(list(None, 2, up).await, items(&["a", "b"], true));
    assert_eq!(list(Some("b"), 3, up).await, items(&["c", "d", "e"], false));
    assert_eq!(list(Some("e"), 3, up).await, items(&[], false));
    assert_eq!(list(None, 2, down).await, items(&["e", "d"], true));
    assert_eq!(list(Some("d"), 2, down).await, items(&["c", "b"], true));
    assert_eq!(list(Some("b"), 9, down).await, items(&["a"], false));
    assert_eq!(list(None, 5, down).await, items(&["e", "d", "c", "b", "a"], false));
    assert_eq!(list(Some("unknown"), 5, up).await, Listing::UnknownAfter);
}

pub(crate) async fn an_item_can_be_read_and_forgotten(store: Engine) {
    talk(&store, &["a", "b", "c"]).await;
    assert_eq!(store.conversation_item(&anna(), "conv_1", "b").await.unwrap(), Some(kept("b")));
    assert_eq!(store.conversation_item(&anna(), "conv_1", "x").await.unwrap(), None);
    assert_eq!(store.delete_item(&anna(), "conv_1", "b").await.unwrap(), Some(true));
    assert_eq!(store.delete_item(&anna(), "conv_1", "b").await.unwrap(), Some(false));
    assert_eq!(store.delete_item(&anna(), "conv_x", "a").await.unwrap(), None);
    assert_eq!(history(&store).await, ["a", "c"]);
    assert_eq!(store.delete_item(&anna(), "conv_1", "c").await.unwrap(), Some(true));
    assert_eq!(store.add_items(&anna(), "conv_1", vec![item("b"), item("d")]).await.unwrap(), Some(AppendOutcome::All));
    assert_eq!(history(&store).await, ["a", "b", "d"]);
}

pub(crate) async fn a_turn_adds_its_items_when_it_ends_well(store: Engine) {
    talk(&store, &["a"]).await;
    let within = |turn: &Turn| Begin { conversation: Some("conv_1".into()), ..turn.begin() };
    let (stepwise, at_once, failed, incomplete) = (Turn::new("1"), Turn::new("2"), Turn::new("3"), Turn::new("4"));

    keep(&store, &anna(), stepwise.beginning(within(&stepwise))).await;
    assert_eq!(history(&store).await, ["a"], "nothing before the end");
    keep(&store, &anna(), stepwise.ending()).await;
    keep(&store, &anna(), TurnWrite { end: at_once.ending().end, ..at_once.beginning(within(&at_once)) }).await;
    let end = |turn: &Turn, status| {
        Some(Box::new(Ending { state: told(status), output: turn.output.clone(), upstream: None }))
    };
    let failing = TurnWrite { end: end(&failed, Status::Failed), ..failed.beginning(within(&failed)) };
    keep(&store, &anna(), failing).await;
    // An item without an id is passed over, and so is one that is there.
    let odd = Begin {
        input: json(r#"[{"content":"no id"},{"id":"a","content":"again"},{"id":"z"}]"#),
        ..within(&incomplete)
    };
    keep(&store, &anna(), TurnWrite { end: end(&incomplete, Status::Incomplete), ..incomplete.beginning(odd) }).await;

    assert_eq!(
        history(&store).await,
        [
            "a",
            &stepwise.input_id,
            &stepwise.output_id,
            &at_once.input_id,
            &at_once.output_id,
            "z",
            &incomplete.output_id
        ]
    );
    assert_eq!(store.conversation_item(&anna(), "conv_1", "a").await.unwrap(), Some(kept("a")));

    // A conversation that was deleted, or is another caller's, changes nothing about the turn.
    let (gone, foreign) = (Turn::new("5"), Turn::new("6"));
    keep(&store, &anna(), gone.beginning(within(&gone))).await;
    let bert = &strangers()[0];
    keep(&store, bert, TurnWrite { end: foreign.ending().end, ..foreign.beginning(within(&foreign)) }).await;
    assert_eq!(history(&store).await.len(), 7);
    assert!(store.delete_conversation(&anna(), "conv_1").await.unwrap());
    keep(&store, &anna(), gone.ending()).await;
    assert_eq!(store.conversation_history(&anna(), "conv_1").await.unwrap(), None);
}

pub(crate) async fn racing_additions_all_arrive_in_order(store: Engine) {
    talk(&store, &[]).await;
    let mut racing = JoinSet::new();
    for number in 0..40 {
        let store = store.clone();
        racing.spawn(async move {
            if number % 2 == 0 {
                let pair = vec![item(&format!("{number}-a")), item(&format!("{number}-b"))];
                assert_eq!(store.add_items(&anna(), "conv_1", pair).await.unwrap(), Some(AppendOutcome::All));
            } else {
                let turn = Turn::new("hi");
                let begin = Begin {
                    conversation: Some("conv_1".into()),
                    input: json(&format!(r#"[{{"id":"{number}-a"}}]"#)),
                    ..turn.begin()
                };
                let output = json(&format!(r#"[{{"id":"{number}-b"}}]"#));
                let end = Some(Box::new(Ending { state: told(Status::Completed), output, upstream: None }));
                keep(&store, &anna(), TurnWrite { end, ..turn.beginning(begin) }).await;
            }
        });
    }
    while let Some(done) = racing.join_next().await {
        done.unwrap();
    }
    let ids = history(&store).await;
    assert_eq!(ids.len(), 80);
    for pair in ids.chunks(2) {
        let stem = |id: &String| id.split('-').next().map(str::to_owned);
        assert!(pair[0].ends_with("-a") && pair[1].ends_with("-b") && stem(&pair[0]) == stem(&pair[1]), "{ids:?}");
    }
}
