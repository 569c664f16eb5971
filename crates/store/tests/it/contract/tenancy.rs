//! Tenants, keys, memory.

use amalgam_core::{
    Rights, TenantState,
    store::{KeyRecord, NewKey, TenantChange, TenantRecord},
};

use crate::given::*;

async fn tenant(store: &Engine, id: i64) -> TenantRecord {
    store.create_tenant(operator(), Some(id), "t", TenantState::Stored, NOW, audit()).await.unwrap().unwrap()
}

fn key(id: &str, tenant_id: i64, byte: u8) -> NewKey {
    let record = KeyRecord {
        id: id.into(),
        tenant_id,
        prefix: "am_ab".into(),
        label: Some("Büro".into()),
        rights: Rights::USE.and(Rights::OPERATOR),
        user: Some("anna".into()),
        created_at_ms: NOW,
        expires_at_ms: Some(NOW + 100),
        revoked_at_ms: None,
        last_used_at_ms: None,
    };
    NewKey { record, hash: [byte; 32] }
}

pub(crate) async fn tenants_have_numbers_and_can_be_changed(store: Engine) {
    let make = |id, name| store.create_tenant(operator(), id, name, TenantState::Stateless, NOW, audit());
    let first = make(None, "Erste GmbH").await.unwrap().unwrap();
    let expected = TenantRecord {
        id: 1,
        name: "Erste GmbH".into(),
        state: TenantState::Stateless,
        ai_agent_enabled: true,
        created_at_ms: NOW,
    };
    assert_eq!(first, expected);
    let forty = make(Some(40), "b").await.unwrap().unwrap();
    assert_eq!(make(Some(40), "again").await.unwrap(), None);
    let next = make(None, "c").await.unwrap().unwrap();
    assert_eq!((forty.id, next.id), (40, 41));

    assert_eq!(store.tenant(operator(), 40).await.unwrap(), Some(forty.clone()));
    assert_eq!(store.tenant(operator(), 2).await.unwrap(), None);
    assert_eq!(store.tenants(operator(), None, 2).await.unwrap(), [first.clone(), forty.clone()]);
    assert_eq!(store.tenants(operator(), Some(40), 2).await.unwrap(), [next]);

    let change = TenantChange { ai_agent_enabled: Some(false), ..TenantChange::default() };
    let changed = TenantRecord { ai_agent_enabled: false, ..forty };
    assert_eq!(store.change_tenant(operator(), 40, change, audit()).await.unwrap(), Some(changed.clone()));
    let change =
        TenantChange { name: Some("d".into()), state: Some(TenantState::Stored), ai_agent_enabled: Some(true) };
    let renamed = TenantRecord { name: "d".into(), state: TenantState::Stored, ai_agent_enabled: true, ..changed };
    assert_eq!(store.change_tenant(operator(), 40, change, audit()).await.unwrap(), Some(renamed.clone()));
    assert_eq!(store.change_tenant(operator(), 40, TenantChange::default(), audit()).await.unwrap(), Some(renamed));
    assert_eq!(store.change_tenant(operator(), 2, TenantChange::default(), audit()).await.unwrap(), None);
    assert_eq!(store.tenant(operator(), 1).await.unwrap(), Some(first));
}

pub(crate) async fn keys_are_found_by_their_hash_and_revoked_once(store: Engine) {
    let owner = tenant(&store, 7).await;
    assert!(!store.create_key(operator(), key("key_a", 8, 1), audit()).await.unwrap(), "there is no such tenant");
    assert!(store.create_key(operator(), key("key_a", 7, 1), audit()).await.unwrap());
    assert!(!store.create_key(operator(), key("key_b", 7, 1), audit()).await.unwrap(), "the same key");
    assert!(!store.create_key(operator(), key("key_a", 7, 2), audit()).await.unwrap(), "the same id");

    let record = key("key_a", 7, 1).record;
    let found = store.key_by_hash(operator(), [1; 32]).await.unwrap();
    assert_eq!(found, Some((record.clone(), owner.clone())));
    assert_eq!(store.key_by_hash(operator(), [2; 32]).await.unwrap(), None);

    let used = vec![("key_a".into(), NOW + 9), ("key_x".into(), NOW)];
    store.touch_keys(operator(), used).await.unwrap();
    store.touch_keys(operator(), vec![("key_a".into(), NOW + 3)]).await.unwrap();
    let used = KeyRecord { last_used_at_ms: Some(NOW + 9), ..record };

    assert_eq!(
        store.revoke_key(operator(), Some(9), "key_a", NOW + 20, audit()).await.unwrap(),
        None,
        "not that tenant's"
    );
    let revoked = KeyRecord { revoked_at_ms: Some(NOW + 20), ..used };
    assert_eq!(store.revoke_key(operator(), Some(7), "key_a", NOW + 20, audit()).await.unwrap(), Some(revoked.clone()));
    assert_eq!(store.revoke_key(operator(), None, "key_a", NOW + 30, audit()).await.unwrap(), Some(revoked.clone()));
    // In any state: the caller decides what that means.
    assert_eq!(store.key_by_hash(operator(), [1; 32]).await.unwrap(), Some((revoked, owner)));
}

pub(crate) async fn keys_are_listed_by_their_ids(store: Engine) {
    tenant(&store, 1).await;
    tenant(&store, 2).await;
    for (number, (id, tenant_id)) in [("key_c", 1), ("key_a", 2), ("key_d", 2), ("key_b", 1)].into_iter().enumerate() {
        let mut key = key(id, tenant_id, number as u8);
        (key.record.label, key.record.user, key.record.rights) = (None, None, Rights::NONE);
        assert!(store.create_key(operator(), key, audit()).await.unwrap());
    }
    let ids = async |tenant_id, after, limit| {
        let keys = store.keys(operator(), tenant_id, after, limit).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, None, 9).await, ["key_a", "key_b", "key_c", "key_d"]);
    assert_eq!(ids(None, Some("key_a"), 2).await, ["key_b", "key_c"]);
    assert_eq!(ids(Some(2), None, 9).await, ["key_a", "key_d"]);
    assert_eq!(ids(Some(2), Some("key_a"), 9).await, ["key_d"]);
    assert_eq!(ids(Some(3), None, 9).await, [""; 0]);
}

pub(crate) async fn the_first_memory_stays_unless_it_is_replaced(store: Engine) {
    assert_eq!(store.remembered(operator(), "name").await.unwrap(), None);
    assert_eq!(store.remember(operator(), "name", "erster ü", false).await.unwrap(), "erster ü");
    assert_eq!(store.remember(operator(), "name", "second", false).await.unwrap(), "erster ü");
    assert_eq!(store.remembered(operator(), "name").await.unwrap().as_deref(), Some("erster ü"));
    assert_eq!(store.remember(operator(), "name", "third", true).await.unwrap(), "third");
    assert_eq!(store.remembered(operator(), "name").await.unwrap().as_deref(), Some("third"));
    assert_eq!(store.remembered(operator(), "other").await.unwrap(), None);
}
