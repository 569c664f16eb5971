//! Threads as they are read: by their users, by administrators, and after a while.

use amalgam_core::store::{AgentConfig, AgentProfile, BankOf, MessageRecord, Reset, Retention, SessionRecord, Within};

use super::sessions::{dialogue, is_next, join_queue, known, metadata, said, talk, words};
use crate::given::*;

pub(crate) async fn a_thread_is_found_again_by_user_tenant_and_profile(store: Engine) {
    // RNCC-26, RNCC-27, RNCC-29
    let mut threads = Vec::new();
    for scope in [anna(), scope(1, "bert"), scope(2, "anna")] {
        for profile in [None, Some("home"), Some("course")] {
            let ticket = join_queue(&store, &scope, profile).await;
            assert_eq!(join_queue(&store, &scope, profile).await.session_id, ticket.session_id, "it is found again");
            threads.push(ticket.session_id);
        }
    }
    let mut different = threads.clone();
    different.dedup();
    assert_eq!(different.len(), 9, "each has its own");

    let record = |id, profile: Option<&str>| SessionRecord {
        id,
        user: "anna".into(),
        profile: profile.map(str::to_owned),
        active: true,
        messages: 0,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    };
    let expected = [record(threads[2], Some("course")), record(threads[1], Some("home")), record(threads[0], None)];
    assert_eq!(store.sessions(&anna(), None, 9).await.unwrap(), expected);
}

pub(crate) async fn every_text_can_be_said(store: Engine) {
    let (anna, odd) = (anna(), "\u{0} 'x' \"y\" \\ \u{1F980} \u{2028}");
    let ticket = talk(&store, &anna, None, HERE, odd).await;
    let kept = odd.replace('\0', "\u{fffd}");
    let expected = dialogue(&[("user", &kept), ("assistant", &format!("re {kept}"))]);
    assert_eq!(said(&store, &anna, ticket.session_id).await, expected);
}

pub(crate) async fn threads_and_messages_are_paged(store: Engine) {
    let anna = anna();
    let mut threads = Vec::new();
    for profile in ["a", "b", "c", "d"] {
        threads.insert(0, talk(&store, &anna, Some(profile), HERE, profile).await.session_id);
    }
    let foreign = talk(&store, &scope(1, "bert"), None, HERE, "x").await.session_id;
    for _ in 0..3 {
        talk(&store, &anna, Some("a"), HERE, "more").await;
    }
    let ids = |sessions: Vec<SessionRecord>| sessions.iter().map(|session| session.id).collect::<Vec<_>>();
    let page = async |after, limit| ids(store.sessions(&anna, after, limit).await.unwrap());
    assert_eq!(page(None, 9).await, threads);
    assert_eq!(page(None, 2).await, threads[..2]);
    assert_eq!(page(Some(threads[1]), 9).await, threads[2..]);
    assert_eq!(page(Some(threads[3]), 9).await, [0; 0]);
    let within = Within::Own(anna.admin().unwrap());
    let of = async |user, after| ids(store.sessions_within(within, user, after, 9).await.unwrap());
    assert_eq!(of(None, None).await, [&[foreign], &threads[..]].concat());
    assert_eq!(of(None, Some(threads[2])).await, threads[3..]);
    assert_eq!(of(Some("anna"), None).await, threads);
    assert_eq!(of(Some("bert"), None).await, [foreign]);
    assert_eq!(of(Some("carla"), None).await, [0; 0]);

    let thread = threads[3];
    let all = store.messages(&anna, thread, None, 99).await.unwrap().unwrap();
    assert_eq!(all.len(), 8);
    assert!(all.is_sorted_by(|one, other| one.id > other.id), "the newest first");
    let page = async |after, limit| store.messages(&anna, thread, after, limit).await.unwrap().unwrap();
    assert_eq!(page(None, 3).await, all[..3]);
    assert_eq!(page(Some(all[2].id), 3).await, all[3..6]);
    assert_eq!(page(Some(all[7].id), 3).await, []);
    let (record, messages) = store.session_within(within, thread, Some(all[5].id), 9).await.unwrap().unwrap();
    assert_eq!((record.id, record.messages, record.profile.as_deref()), (thread, 8, Some("a")));
    let bare = messages.iter().map(|message| MessageRecord { metadata: Vec::new(), ..message.clone() });
    assert_eq!(bare.collect::<Vec<_>>(), all[6..]);
    assert_eq!(messages[0].metadata, [known("model_usage", r#"{"total_tokens":7}"#)]);
}

pub(crate) async fn threads_of_others_look_missing(store: Engine) {
    // P10, S10: small numbers can be counted through; only whose they are protects them.
    let anna = anna();
    let ticket = talk(&store, &anna, None, HERE, "secret").await;
    let waiting = join_queue(&store, &anna, None).await;
    let newest = store.messages(&anna, ticket.session_id, None, 1).await.unwrap().unwrap()[0].id;
    for stranger in strangers() {
        assert_eq!(store.sessions(&stranger, None, 9).await.unwrap(), []);
        assert_eq!(store.messages(&stranger, ticket.session_id, None, 9).await.unwrap(), None);
        assert_eq!(store.message(&stranger, newest).await.unwrap(), None);
        assert_eq!(is_next(&store, &stranger, waiting).await, None);
        assert_eq!(store.append_message(&stranger, waiting, words(&Turn::new("x"), "x")).await.unwrap(), None);
    }
    let other = scope(2, "anna");
    let within = Within::Own(other.admin().unwrap());
    assert_eq!(store.sessions_within(within, None, None, 9).await.unwrap(), []);
    assert_eq!(store.sessions_within(within, Some("anna"), None, 9).await.unwrap(), []);
    assert_eq!(store.session_within(within, ticket.session_id, None, 9).await.unwrap(), None);
    assert_eq!(store.session_within(Within::Named(operator(), 2), ticket.session_id, None, 9).await.unwrap(), None);
    assert_eq!(said(&store, &anna, ticket.session_id).await.len(), 2);
    assert_eq!(is_next(&store, &anna, waiting).await, Some(true));
}

pub(crate) async fn threads_outlive_their_responses(store: Engine) {
    let anna = anna();
    let ticket = talk(&store, &anna, None, HERE, "one").await;
    let waiting = join_queue(&store, &anna, None).await;
    let all = Retention {
        events_before_ms: NOW + 1000,
        transcripts_before_ms: NOW + 1000,
        claims_before_ms: NOW + 1000,
        responses_before_ms: Some(NOW + 1000),
        files_before_ms: NOW + 1000,
    };
    assert!(store.prune(operator(), all).await.unwrap().rows > 0);
    assert_eq!(store.prune(operator(), all).await.unwrap().rows, 0);
    let expected = dialogue(&[("user", "one"), ("assistant", "re one")]);
    assert_eq!(said(&store, &anna, ticket.session_id).await, expected);
    let id = store.messages(&anna, ticket.session_id, None, 1).await.unwrap().unwrap()[0].id;
    assert_eq!(metadata(&store, &anna, id).await.len(), 1);
    assert_eq!(is_next(&store, &anna, waiting).await, Some(true));
}

pub(crate) async fn reset_takes_threads_and_with_all_what_assistants_are(store: Engine) {
    let anna = anna();
    let within = Within::Own(anna.admin().unwrap());
    let config = AgentConfig { values: json("{}"), api_key: None, revision: 1, updated_at_ms: NOW };
    let profile = AgentProfile {
        slug: "home".into(),
        prompt: "p".into(),
        tools: Vec::new(),
        model: None,
        tool_choice: None,
        active: true,
        version: 1,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    };
    assert!(store.put_agent_config(within, config.clone(), audit()).await.unwrap());
    store.put_profile(within, profile.clone(), audit()).await.unwrap().unwrap();
    let ticket = talk(&store, &anna, None, HERE, "one").await;
    let waiting = join_queue(&store, &anna, None).await;
    let id = store.messages(&anna, ticket.session_id, None, 1).await.unwrap().unwrap()[0].id;

    store.reset(operator(), Reset::Runtime(Vec::new())).await.unwrap();
    assert_eq!(store.sessions(&anna, None, 9).await.unwrap(), []);
    assert_eq!(store.messages(&anna, ticket.session_id, None, 9).await.unwrap(), None);
    assert_eq!(store.message(&anna, id).await.unwrap(), None);
    assert_eq!(is_next(&store, &anna, waiting).await, None);
    assert_eq!(store.agent_config(&anna).await.unwrap(), Some(config));
    assert_eq!(store.profile(&anna, "home").await.unwrap(), Some(profile));
    // No number is used twice.
    let again = talk(&store, &anna, None, HERE, "two").await;
    assert!(again.session_id > ticket.session_id && again.number > waiting.number);
    assert_eq!(said(&store, &anna, again.session_id).await, dialogue(&[("user", "two"), ("assistant", "re two")]));

    store.reset(operator(), Reset::Everything).await.unwrap();
    assert_eq!(store.agent_config(&anna).await.unwrap(), None);
    assert_eq!(store.profile(&anna, "home").await.unwrap(), None);
    assert_eq!(store.profile_versions(within, "home", None, 9).await.unwrap(), []);
}

pub(crate) async fn reset_takes_assistants_of_the_tenants_that_are_named_and_leaves_the_others(store: Engine) {
    // right C5
    let profile = AgentProfile {
        slug: "home".into(),
        prompt: "p".into(),
        tools: Vec::new(),
        model: None,
        tool_choice: None,
        active: true,
        version: 1,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    };
    let (anna, other) = (anna(), scope(2, "anna"));
    store.create_tenant(operator(), Some(1), "t", amalgam_core::TenantState::Stored, NOW, audit()).await.unwrap();
    for scope in [&anna, &other] {
        let within = Within::Own(scope.admin().unwrap());
        store.put_profile(within, profile.clone(), audit()).await.unwrap().unwrap();
        store.put_tool(BankOf::Tenant(scope.admin().unwrap()), tool("own"), audit()).await.unwrap();
        talk(&store, scope, None, HERE, "one").await;
    }
    store.put_tool(BankOf::Common(operator()), tool("shared"), audit()).await.unwrap();
    let has = async |scope: &amalgam_core::Scope| {
        let own = store.tool(BankOf::Tenant(scope.admin().unwrap()), "own").await.unwrap().is_some();
        let profile = store.profile(scope, "home").await.unwrap().is_some();
        (own, profile, !store.sessions(scope, None, 9).await.unwrap().is_empty())
    };
    let shared = async || store.tool(BankOf::Common(operator()), "shared").await.unwrap().is_some();

    store.reset(operator(), Reset::Runtime(vec![2])).await.unwrap();
    assert_eq!((has(&anna).await, has(&other).await), ((true, true, true), (true, true, false)));
    store.reset(operator(), Reset::Assistants(vec![2])).await.unwrap();
    assert_eq!(
        (has(&anna).await, has(&other).await, shared().await),
        ((true, true, true), (false, false, false), true)
    );
    store.reset(operator(), Reset::Assistants(Vec::new())).await.unwrap();
    assert_eq!((has(&anna).await, shared().await), ((false, false, false), false));
    assert!(store.tenant(operator(), 1).await.unwrap().is_some(), "tenants stay");
}
