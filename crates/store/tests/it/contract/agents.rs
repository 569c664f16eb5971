//! Settings and profiles of assistants.

use amalgam_core::{
    Scope, TenantState,
    store::{AgentConfig, AgentProfile, Within},
};
use tokio::task::JoinSet;

use crate::given::*;

fn of(scope: &Scope) -> Within<'_> {
    Within::Own(scope.admin().unwrap())
}

fn config(revision: u64) -> AgentConfig {
    AgentConfig {
        values: json(r#"{"model":"gpt-4o-mini","temperature":0.2}"#),
        api_key: Some("sealed".into()),
        revision,
        updated_at_ms: NOW + revision,
    }
}

fn profile(slug: &str) -> AgentProfile {
    AgentProfile {
        slug: slug.into(),
        prompt: "Bantu \"peserta\"\nبالدورة 🦀".into(),
        tools: vec!["get_course_detail".into(), "get_course_recommendation".into()],
        model: Some("fast".into()),
        tool_choice: Some("first".into()),
        active: true,
        version: 1,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    }
}

fn slugs(profiles: &[AgentProfile]) -> Vec<&str> {
    profiles.iter().map(|profile| profile.slug.as_str()).collect()
}

pub(crate) async fn settings_are_changed_only_by_a_caller_that_knows_the_last_ones(store: Engine) {
    let anna = anna();
    assert_eq!(store.agent_config(&anna).await.unwrap(), None);
    for wrong in [0, 2] {
        assert!(
            !store.put_agent_config(of(&anna), config(wrong), audit()).await.unwrap(),
            "the first is 1, not {wrong}"
        );
    }
    assert!(store.put_agent_config(of(&anna), config(1), audit()).await.unwrap());
    assert_eq!(store.agent_config(&anna).await.unwrap(), Some(config(1)));
    for wrong in [0, 1, 3] {
        assert!(!store.put_agent_config(of(&anna), config(wrong), audit()).await.unwrap(), "not {wrong} behind 1");
    }
    let next = AgentConfig { values: json(r#"{"a":{"b":"ü"}}"#), api_key: None, ..config(2) };
    assert!(store.put_agent_config(of(&anna), next.clone(), audit()).await.unwrap());
    assert_eq!(store.agent_config(&anna).await.unwrap(), Some(next.clone()));
    assert_eq!(store.agent_config_within(of(&anna)).await.unwrap(), Some(next.clone()));
    assert_eq!(store.agent_config_within(Within::Named(operator(), 1)).await.unwrap(), Some(next.clone()));
    assert_eq!(store.agent_config(&scope(1, "bert")).await.unwrap(), Some(next), "they are the tenant's");
}

pub(crate) async fn racing_changes_of_settings_have_one_winner(store: Engine) {
    for revision in 1..=3 {
        let mut racing = JoinSet::new();
        for _ in 0..12 {
            let store = store.clone();
            racing.spawn(async move { store.put_agent_config(of(&anna()), config(revision), audit()).await.unwrap() });
        }
        assert_eq!(racing.join_all().await.into_iter().filter(|won| *won).count(), 1);
    }
}

pub(crate) async fn a_profile_keeps_its_versions(store: Engine) {
    let anna = anna();
    assert_eq!(store.profile(&anna, "home").await.unwrap(), None);
    // Which version it is says the store.
    let first = store.put_profile(of(&anna), AgentProfile { version: 40, ..profile("home") }, audit()).await.unwrap();
    assert_eq!(first, Some(profile("home")));

    let again = AgentProfile { version: 7, updated_at_ms: NOW + 9, created_at_ms: NOW + 9, ..profile("home") };
    assert_eq!(store.put_profile(of(&anna), again, audit()).await.unwrap(), first, "nothing has changed");
    let changes = [
        AgentProfile { prompt: "Other.".into(), ..profile("home") },
        AgentProfile { tools: Vec::new(), ..profile("home") },
        AgentProfile { model: None, tool_choice: None, ..profile("home") },
        AgentProfile { active: false, ..profile("home") },
        profile("home"),
    ];
    let mut versions = vec![profile("home")];
    for (number, change) in (2..).zip(changes) {
        let new = AgentProfile { updated_at_ms: NOW + number, created_at_ms: NOW + number, ..change.clone() };
        let kept = AgentProfile { version: number, created_at_ms: NOW, ..new.clone() };
        assert_eq!(
            store.put_profile(of(&anna), new, audit()).await.unwrap(),
            Some(kept.clone()),
            "it was made when it was made"
        );
        assert_eq!(store.profile(&anna, "home").await.unwrap(), Some(kept.clone()), "active or not");
        versions.insert(0, kept);
    }
    let page = async |before, limit| store.profile_versions(of(&anna), "home", before, limit).await.unwrap();
    assert_eq!(page(None, 99).await, versions);
    assert_eq!(page(None, 2).await, versions[..2]);
    assert_eq!(page(Some(5), 2).await, versions[2..4]);
    assert_eq!(page(Some(1), 2).await, []);

    assert!(store.delete_profile(of(&anna), "home", audit()).await.unwrap());
    assert!(!store.delete_profile(of(&anna), "home", audit()).await.unwrap());
    assert_eq!(store.profile(&anna, "home").await.unwrap(), None);
    assert_eq!(page(None, 99).await, []);
    assert_eq!(store.put_profile(of(&anna), profile("home"), audit()).await.unwrap(), Some(profile("home")));
}

pub(crate) async fn profiles_are_listed_by_slug_in_pages(store: Engine) {
    let anna = anna();
    for slug in ["delta", "alpha", "charlie", "bravo", "Zulu", "a-b", "a_b"] {
        let made = AgentProfile { active: slug != "bravo", ..profile(slug) };
        store.put_profile(of(&anna), made, audit()).await.unwrap().unwrap();
    }
    let page = async |after, limit| store.profiles_within(of(&anna), after, limit).await.unwrap();
    assert_eq!(slugs(&page(None, 99).await), ["Zulu", "a-b", "a_b", "alpha", "bravo", "charlie", "delta"]);
    assert_eq!(slugs(&page(Some("alpha"), 2).await), ["bravo", "charlie"]);
    assert_eq!(slugs(&page(Some("brave"), 1).await), ["bravo"]);
    assert_eq!(slugs(&page(Some("delta"), 9).await), [""; 0]);
    let active = store.active_profiles(&anna).await.unwrap();
    assert_eq!(slugs(&active), ["Zulu", "a-b", "a_b", "alpha", "charlie", "delta"]);
    assert_eq!(store.active_profiles(&scope(1, "bert")).await.unwrap(), active);
}

pub(crate) async fn racing_changes_of_a_profile_all_have_their_version(store: Engine) {
    let mut racing = JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        racing.spawn(async move {
            let new = AgentProfile { prompt: format!("prompt {number}"), ..profile("home") };
            store.put_profile(of(&anna()), new, audit()).await.unwrap().unwrap().version
        });
    }
    let mut versions = racing.join_all().await;
    versions.sort_unstable();
    assert_eq!(versions, (1..=16).collect::<Vec<_>>());
    assert_eq!(store.profile_versions(of(&anna()), "home", None, 99).await.unwrap().len(), 16);
}

pub(crate) async fn assistants_of_another_tenant_look_missing(store: Engine) {
    // P10, S10
    let (anna, other) = (anna(), scope(2, "anna"));
    store.put_agent_config(of(&anna), config(1), audit()).await.unwrap();
    store.put_profile(of(&anna), profile("home"), audit()).await.unwrap();
    assert_eq!(store.agent_config(&other).await.unwrap(), None);
    assert_eq!(store.agent_config_within(of(&other)).await.unwrap(), None);
    assert!(!store.put_agent_config(of(&other), config(2), audit()).await.unwrap());
    assert_eq!(store.profile(&other, "home").await.unwrap(), None);
    assert_eq!(store.active_profiles(&other).await.unwrap(), []);
    assert_eq!(store.profiles_within(of(&other), None, 9).await.unwrap(), []);
    assert_eq!(store.profile_versions(of(&other), "home", None, 9).await.unwrap(), []);
    assert!(!store.delete_profile(of(&other), "home", audit()).await.unwrap());
    // One of the same name is another one.
    let theirs = AgentProfile { prompt: "Theirs.".into(), ..profile("home") };
    assert_eq!(store.put_profile(of(&other), theirs.clone(), audit()).await.unwrap(), Some(theirs));
    assert!(store.put_agent_config(of(&other), config(1), audit()).await.unwrap());
    assert_eq!(store.profile(&anna, "home").await.unwrap(), Some(profile("home")));
    for slug in ["' OR '1'='1", "%", "\u{1F980}", ""] {
        assert_eq!(store.profile(&anna, slug).await.unwrap(), None, "S11");
    }
}

pub(crate) async fn a_tenant_that_is_not_there_has_no_assistant(store: Engine) {
    let missing = Within::Named(operator(), 5);
    assert!(!store.put_agent_config(missing, config(1), audit()).await.unwrap());
    assert_eq!(store.put_profile(missing, profile("home"), audit()).await.unwrap(), None);
    assert_eq!(store.put_courses(missing, Vec::new(), NOW).await.unwrap(), None);
    store.create_tenant(operator(), Some(5), "five", TenantState::Stored, NOW, audit()).await.unwrap().unwrap();
    assert_eq!(store.agent_config_within(missing).await.unwrap(), None, "nothing was kept for it");
    assert!(store.put_agent_config(missing, config(1), audit()).await.unwrap());
    assert_eq!(store.put_profile(missing, profile("home"), audit()).await.unwrap(), Some(profile("home")));
    assert_eq!(store.profile(&scope(5, "eva"), "home").await.unwrap(), Some(profile("home")));
}
