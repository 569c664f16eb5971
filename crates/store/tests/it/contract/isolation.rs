//! P10, S10, S11: what is another tenant's or user's looks exactly like what is not there.

use amalgam_core::{
    Scope,
    store::{Answer, Begin, ChainPosition, Claim, Conversation, IdempotencyKey, NewItem, Order, Page, WriteOutcome},
};

use crate::given::*;

/// Everything that can be asked of ids of responses, conversations, items and keys, as text.
async fn asked(store: &Engine, scope: &Scope, ids: &Things) -> Vec<String> {
    let (id, conversation) = (ids.response.as_str(), ids.conversation.as_str());
    let page = Page { after: None, limit: 10, order: Order::Ascending };
    let new = NewItem { id: "msg_new".into(), item: json(r#"{"id":"msg_new"}"#) };
    let child = Turn::new("child");
    let write = Turn { id: id.to_owned(), ..Turn::new("x") };
    vec![
        format!("{:?}", store.response(scope, id).await),
        format!("{:?}", store.lineage(scope, id).await),
        format!("{:?}", store.events(scope, id, None, 100).await),
        format!("{:?}", store.cancel_response(scope, id, NOW).await),
        format!("{:?}", store.items(scope, &ids.items).await),
        format!("{:?}", store.write(scope, write.ending().into()).await),
        format!("{:?}", store.write(scope, write.starting().into()).await),
        format!("{:?}", store.write(scope, write.saying(50, 51, "x").into()).await),
        format!("{:?}", store.write(scope, child.whole(Some(ids.place.clone())).into()).await),
        format!("{:?}", store.conversation(scope, conversation).await),
        format!("{:?}", store.update_conversation(scope, conversation, json("{}")).await),
        format!("{:?}", store.add_items(scope, conversation, vec![new]).await),
        format!("{:?}", store.list_items(scope, conversation, &page).await),
        format!("{:?}", store.conversation_item(scope, conversation, &ids.items[2]).await),
        format!("{:?}", store.delete_item(scope, conversation, &ids.items[2]).await),
        format!("{:?}", store.conversation_history(scope, conversation).await),
        format!("{:?}", store.settle(scope, &ids.idempotency_key, id, None).await),
        format!("{:?}", store.settle(scope, &ids.idempotency_key, id, Some(Answer::Stored)).await),
        // Last, since they would change the results of the others.
        format!("{:?}", store.delete_conversation(scope, conversation).await),
        format!("{:?}", store.delete_response(scope, id).await),
    ]
}

struct Things {
    response: String,
    place: ChainPosition,
    items: Vec<String>,
    conversation: String,
    idempotency_key: IdempotencyKey,
}

pub(crate) async fn what_is_foreign_looks_missing(store: Engine) {
    let turn = Turn::new("secret");
    let begin = Begin { streamed: true, background: true, ..turn.begin() };
    keep(&store, &anna(), turn.beginning(begin)).await;
    keep(&store, &anna(), turn.saying(0, 3, "secret")).await;
    let conversation = Conversation { id: "conv_anna".into(), created_at_ms: NOW, metadata: json(r#"{"a":"secret"}"#) };
    let item = NewItem { id: "msg_talk".into(), item: json(r#"{"id":"msg_talk"}"#) };
    store.create_conversation(&anna(), &conversation, vec![item]).await.unwrap();
    let idempotency_key = IdempotencyKey { route: "r".into(), key: "k".into() };
    assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], &turn.id, HERE, NOW).await.unwrap(), Claim::First);
    let theirs = Things {
        response: turn.id.clone(),
        place: place(&store, &anna(), &turn.id).await,
        items: vec![turn.input_id.clone(), turn.output_id.clone(), "msg_talk".into()],
        conversation: "conv_anna".into(),
        idempotency_key: idempotency_key.clone(),
    };
    let never = Turn::new("never");
    let missing = Things {
        response: never.id.clone(),
        place: ChainPosition { chain: never.id.clone(), position: 0 },
        items: vec![never.input_id.clone(), never.output_id.clone(), "msg_never".into()],
        conversation: "conv_never".into(),
        idempotency_key: IdempotencyKey { route: "r".into(), key: "never".into() },
    };
    let before = store.events(&anna(), &turn.id, None, 100).await.unwrap().unwrap();
    for stranger in strangers() {
        let foreign = asked(&store, &stranger, &theirs).await;
        assert_eq!(foreign, asked(&store, &stranger, &missing).await, "{stranger:?}");
        assert!(!foreign.iter().any(|answer| answer.contains("secret") || answer.contains("Kept")), "{foreign:#?}");
    }
    // And nothing of it has changed.
    assert_eq!(store.events(&anna(), &turn.id, None, 100).await.unwrap().unwrap(), before);
    assert_eq!(store.conversation(&anna(), "conv_anna").await.unwrap(), Some(conversation));
    assert_eq!(store.conversation_history(&anna(), "conv_anna").await.unwrap().unwrap().len(), 1);
    let running = Claim::Running { response_id: turn.id.clone() };
    assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], "resp_other", HERE, NOW).await.unwrap(), running);
    keep(&store, &anna(), turn.ending()).await;
}

pub(crate) async fn ids_that_look_like_statements_are_only_ids(store: Engine) {
    // S11
    let turn = say(&store, &anna(), None, "hi").await;
    for text in ["' OR '1'='1", "'; DROP TABLE responses; --", "%", "_", "*", "\\", "\u{1F980}"] {
        let caller = scope(1, text);
        assert_eq!(store.response(&caller, &turn.id).await.unwrap(), None);
        assert_eq!(store.response(&anna(), text).await.unwrap(), None);
        assert_eq!(store.items(&anna(), &[text.to_owned()]).await.unwrap(), [None]);
        assert_eq!(store.conversation(&anna(), text).await.unwrap(), None);
        assert_eq!(store.agent_session(&anna(), text).await.unwrap(), None);
        assert_eq!(store.agent_turn(&anna(), text, text).await.unwrap(), None);
        assert_eq!(store.delete_session(&anna(), text).await.unwrap(), None);
        assert_eq!(store.file(&anna(), text, NOW).await.unwrap(), None);
        assert!(!store.delete_file(&anna(), text).await.unwrap());
        assert_eq!(store.keys(operator(), None, Some(text), 9).await.unwrap(), []);
        assert_eq!(store.remembered(operator(), text).await.unwrap(), None);
        assert_eq!(store.revoke_key(operator(), None, text, NOW, audit()).await.unwrap(), None);
        let write = Turn { id: text.to_owned(), ..turn.clone() }.whole(None);
        assert!(
            !matches!(store.write(&anna(), write.into()).await, Ok(WriteOutcome::Kept)),
            "`{text}` is no response's id"
        );
    }
    assert!(store.response(&anna(), &turn.id).await.unwrap().is_some());
}
