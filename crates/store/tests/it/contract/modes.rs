//! Modes that tenants have defined.

use amalgam_core::{
    Scope, TenantState,
    store::{Mode, Within},
};
use tokio::task::JoinSet;

use crate::given::*;

fn of(scope: &Scope) -> Within<'_> {
    Within::Own(scope.admin().unwrap())
}

pub(crate) fn mode(name: &str) -> Mode {
    Mode {
        name: name.into(),
        display_name: "Prüfen \"genau\"".into(),
        system_prompt: "Review.\n🦀".into(),
        tools: vec!["search_knowledge".into(), "a\"b".into()],
        tool_choice: Some("first".into()),
        rag_scope: json(r#"[{"Key":"language","Operator":"==","Values":["rust"]}]"#),
        created_at_ms: NOW,
        updated_at_ms: NOW,
    }
}

fn names(modes: &[Mode]) -> Vec<&str> {
    modes.iter().map(|mode| mode.name.as_str()).collect()
}

pub(crate) async fn modes_are_read_back_as_they_were_put(store: Engine) {
    let anna = anna();
    assert_eq!(store.modes(&anna).await.unwrap(), []);
    let empty = Mode { tools: Vec::new(), rag_scope: json("[]"), system_prompt: String::new(), ..mode("Another_MODE") };
    for mode in [mode("review"), empty.clone()] {
        assert!(store.put_mode(of(&anna), mode, audit()).await.unwrap());
    }
    let expected = [empty, mode("review")];
    assert_eq!(store.modes(&anna).await.unwrap(), expected, "by name, whatever its case");
    assert_eq!(store.modes_within(of(&anna)).await.unwrap(), expected);
    assert_eq!(store.modes_within(Within::Named(operator(), 1)).await.unwrap(), expected);
    assert_eq!(store.modes(&strangers()[0]).await.unwrap(), expected, "they are the tenant's");
}

pub(crate) async fn a_mode_takes_the_place_of_the_one_of_its_name(store: Engine) {
    let anna = anna();
    assert!(store.put_mode(of(&anna), mode("Review"), audit()).await.unwrap());
    let changed = Mode {
        display_name: "Other".into(),
        system_prompt: "Other.".into(),
        tools: Vec::new(),
        rag_scope: json("[]"),
        created_at_ms: NOW + 9,
        updated_at_ms: NOW + 9,
        ..mode("REVIEW")
    };
    assert!(store.put_mode(of(&anna), changed.clone(), audit()).await.unwrap());
    let expected = Mode { created_at_ms: NOW, ..changed };
    assert_eq!(store.modes(&anna).await.unwrap(), [expected]);
    assert!(!store.delete_mode(of(&anna), "other", audit()).await.unwrap());
    assert!(store.delete_mode(of(&anna), "review", audit()).await.unwrap());
    assert!(!store.delete_mode(of(&anna), "review", audit()).await.unwrap());
    assert_eq!(store.modes(&anna).await.unwrap(), []);

    let mut racing = JoinSet::new();
    for name in ["race", "Race", "RACE", "rAcE"].repeat(4) {
        let store = store.clone();
        racing.spawn(async move { store.put_mode(of(&scope(1, "anna")), mode(name), audit()).await.unwrap() });
    }
    assert!(racing.join_all().await.into_iter().all(|put| put));
    assert_eq!(store.modes(&anna).await.unwrap().len(), 1);
}

pub(crate) async fn modes_of_another_tenant_look_missing(store: Engine) {
    // S10
    let (anna, stranger) = (anna(), scope(2, "anna"));
    assert!(store.put_mode(of(&anna), mode("review"), audit()).await.unwrap());
    assert_eq!(store.modes(&stranger).await.unwrap(), []);
    assert_eq!(store.modes_within(of(&stranger)).await.unwrap(), []);
    assert!(!store.delete_mode(of(&stranger), "review", audit()).await.unwrap());
    let theirs = Mode { system_prompt: "Theirs.".into(), ..mode("review") };
    assert!(store.put_mode(of(&stranger), theirs.clone(), audit()).await.unwrap());
    assert_eq!(store.modes(&anna).await.unwrap(), [mode("review")]);
    assert_eq!(store.modes(&stranger).await.unwrap(), [theirs]);

    // A tenant that was only named may not be there.
    let named = Within::Named(operator(), 7);
    assert!(!store.put_mode(named, mode("review"), audit()).await.unwrap());
    assert_eq!(store.modes_within(named).await.unwrap(), []);
    store.create_tenant(operator(), Some(7), "seven", TenantState::Stored, NOW, audit()).await.unwrap();
    assert!(store.put_mode(named, mode("review"), audit()).await.unwrap());
    assert_eq!(names(&store.modes(&scope(7, "x")).await.unwrap()), ["review"]);
}

pub(crate) async fn modes_stay_when_only_what_turns_wrote_goes(store: Engine) {
    let anna = anna();
    assert!(store.put_mode(of(&anna), mode("review"), audit()).await.unwrap());
    store.reset(operator(), amalgam_core::store::Reset::Runtime(Vec::new())).await.unwrap();
    assert_eq!(store.modes(&anna).await.unwrap(), [mode("review")]);
    store.reset(operator(), amalgam_core::store::Reset::Everything).await.unwrap();
    assert_eq!(store.modes(&anna).await.unwrap(), []);
}
