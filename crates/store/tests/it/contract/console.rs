//! Browser sessions of the console, and links.

use amalgam_core::{
    Rights, TenantState,
    store::{ConsoleOwner, ConsoleSession, ConsoleUser, SignIn},
};

use crate::given::*;

fn owner(tenant_id: i64) -> ConsoleOwner {
    let rights = Rights::VIEW.and(Rights::USE);
    ConsoleOwner { tenant_id, rights, key_id: Some("key_1".into()), key_hash: Some([9; 32]) }
}

fn session(id: &str, tenant_id: i64) -> ConsoleSession {
    ConsoleSession {
        id: id.into(),
        owner: owner(tenant_id),
        user: None,
        sign_in: SignIn::Key,
        browser: Some("Ein Browser — 1.0".into()),
        address: None,
        created_at_ms: NOW,
        last_used_at_ms: NOW,
        expires_at_ms: NOW + 1000,
    }
}

async fn tenants(store: &Engine) {
    for id in [1, 2] {
        store.create_tenant(operator(), Some(id), "t", TenantState::Stored, NOW, audit()).await.unwrap();
    }
}

async fn add(store: &Engine, token: u8, session: &ConsoleSession) -> bool {
    store.add_console_session(operator(), [token; 32], session.clone(), NOW - 500, audit()).await.unwrap()
}

pub(crate) async fn a_session_is_found_by_its_token_and_ends_once(store: Engine) {
    tenants(&store).await;
    let user = ConsoleUser { id: "7f-ü".into(), name: Some("ada@example.com".into()) };
    let one = ConsoleSession { user: Some(user), sign_in: SignIn::Oidc, ..session("csn_1", 1) };
    assert!(add(&store, 1, &one).await);
    assert!(!add(&store, 2, &session("csn_2", 7)).await, "no such tenant");
    let (found, tenant) = store.console_session(operator(), [1; 32]).await.unwrap().unwrap();
    assert_eq!((&found, tenant.id), (&one, 1));
    assert_eq!(store.console_session(operator(), [2; 32]).await.unwrap(), None);

    store.touch_console_session(operator(), "csn_1", NOW + 60).await.unwrap();
    store.touch_console_session(operator(), "csn_1", NOW + 20).await.unwrap();
    let (found, _) = store.console_session(operator(), [1; 32]).await.unwrap().unwrap();
    assert_eq!(found.last_used_at_ms, NOW + 60);

    let end = |tenant_id| store.remove_console_session(operator(), tenant_id, "csn_1", audit());
    assert_eq!(end(Some(2)).await.unwrap(), None, "of another tenant");
    assert_eq!(end(Some(1)).await.unwrap(), Some(found));
    assert_eq!(end(None).await.unwrap(), None);
    assert_eq!(store.console_session(operator(), [1; 32]).await.unwrap(), None);
}

pub(crate) async fn sessions_that_are_over_go_with_the_next_sign_in(store: Engine) {
    tenants(&store).await;
    let idle = ConsoleSession { last_used_at_ms: NOW - 501, ..session("csn_idle", 1) };
    let old = ConsoleSession { expires_at_ms: NOW, ..session("csn_old", 1) };
    let used = ConsoleSession { last_used_at_ms: NOW - 500, ..session("csn_used", 1) };
    for (token, session) in [(1, &idle), (2, &old), (3, &used)] {
        let added = store.add_console_session(operator(), [token; 32], session.clone(), 0, audit()).await;
        assert!(added.unwrap());
    }
    assert!(add(&store, 4, &session("csn_new", 2)).await);
    let left = store.console_sessions(operator(), None, None, 10).await.unwrap();
    assert_eq!(left.into_iter().map(|session| session.id).collect::<Vec<_>>(), ["csn_new", "csn_used"]);
}

pub(crate) async fn sessions_are_listed_by_tenant(store: Engine) {
    tenants(&store).await;
    for (token, id, tenant_id) in [(1, "csn_a", 1), (2, "csn_b", 2), (3, "csn_c", 1), (4, "csn_d", 1)] {
        assert!(add(&store, token, &session(id, tenant_id)).await);
    }
    let list = async |tenant_id, after: Option<&'static str>, limit| {
        let sessions = store.console_sessions(operator(), tenant_id, after, limit).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(list(Some(1), None, 2).await, ["csn_a", "csn_c"]);
    assert_eq!(list(Some(1), Some("csn_c"), 2).await, ["csn_d"]);
    assert_eq!(list(None, Some("csn_a"), 9).await, ["csn_b", "csn_c", "csn_d"]);
}

pub(crate) async fn a_link_is_used_once_and_in_time(store: Engine) {
    tenants(&store).await;
    let add = |token: u8, tenant_id, expires_at_ms| {
        store.add_console_link(operator(), [token; 32], owner(tenant_id), expires_at_ms, audit())
    };
    let take = |token: u8, at_ms| store.take_console_link(operator(), [token; 32], at_ms);
    assert!(add(1, 1, NOW + 100).await.unwrap());
    assert!(add(2, 2, NOW + 100).await.unwrap());
    assert!(!add(3, 7, NOW + 100).await.unwrap(), "no such tenant");
    assert_eq!(take(1, NOW + 99).await.unwrap(), Some(owner(1)));
    assert_eq!(take(1, NOW + 99).await.unwrap(), None);
    assert_eq!(take(2, NOW + 100).await.unwrap(), None, "too late");
    assert_eq!(take(2, NOW).await.unwrap(), None, "it is used up all the same");
}
