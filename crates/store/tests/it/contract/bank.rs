//! The tool bank: a tenant's own tools and the installation's.

use std::time::Duration;

use amalgam_core::{
    Decider, OnError, Policy, Scope, TenantState,
    store::{BankKind, BankOf, BankTool},
};
use tokio::task::JoinSet;

use crate::given::*;

const COMMON: fn() -> BankOf<'static> = || BankOf::Common(operator());

fn of(scope: &Scope) -> BankOf<'_> {
    BankOf::Tenant(scope.admin().unwrap())
}

fn names(tools: &[BankTool]) -> Vec<&str> {
    tools.iter().map(|tool| tool.name.as_str()).collect()
}

pub(crate) async fn a_tool_is_read_back_as_it_was_put(store: Engine) {
    let anna = anna();
    let policy = Policy {
        timeout: Duration::from_millis(1500),
        idempotent: true,
        on_error: OnError::FailTurn,
        after_call_instruction: Some("Sag „danke“.\n".into()),
        requires_approval: Some(Decider::Admin),
    };
    let full = BankTool {
        description: "Bücht ein 'Zimmer'; -- \u{1F980}".into(),
        parameters: json(r#"{ "type" : "object", "additionalProperties": false }"#),
        settings: json(r#"{"headers":{"x-key":{"sealed":"…"}}}"#),
        guidance: Some("  When asked.\n".into()),
        policy,
        active: false,
        updated_at_ms: NOW + 1,
        ..tool("full")
    };
    assert!(store.put_tool(of(&anna), full.clone(), audit()).await.unwrap());
    assert_eq!(store.tool(of(&anna), "full").await.unwrap(), Some(full));
    for kind in [BankKind::Builtin, BankKind::Http, BankKind::Mcp, BankKind::Client] {
        let plain = BankTool { kind, ..tool(kind.name()) };
        assert!(store.put_tool(of(&anna), plain.clone(), audit()).await.unwrap());
        assert_eq!(store.tool(of(&anna), kind.name()).await.unwrap(), Some(plain));
    }
    for decider in [None, Some(Decider::Caller)] {
        let policy = Policy { requires_approval: decider, ..Policy::default() };
        let again = BankTool { policy, ..tool("full") };
        assert!(!store.put_tool(of(&anna), again.clone(), audit()).await.unwrap());
        assert_eq!(store.tool(of(&anna), "full").await.unwrap(), Some(again));
    }

    // The bank that a tool is put into determines its owner.
    let common = BankTool { common: true, ..tool("full") };
    assert!(store.put_tool(COMMON(), tool("full"), audit()).await.unwrap());
    assert_eq!(store.tool(COMMON(), "full").await.unwrap(), Some(common));
}

pub(crate) async fn a_name_is_taken_whatever_its_case(store: Engine) {
    // O-33
    let anna = anna();
    assert!(store.put_tool(of(&anna), tool("Get_Weather"), audit()).await.unwrap());
    let later = BankTool { created_at_ms: NOW + 50, updated_at_ms: NOW + 50, ..tool("get_WEATHER") };
    assert!(!store.put_tool(of(&anna), later.clone(), audit()).await.unwrap());
    let kept = BankTool { created_at_ms: NOW, ..later };
    let kept = [kept];
    assert_eq!(store.tools(of(&anna), None, 9).await.unwrap(), kept, "it was made when it was made");
    for name in ["get_weather", "GET_WEATHER", "get_WEATHER"] {
        assert_eq!(store.tool(of(&anna), name).await.unwrap().as_ref(), kept.first());
        assert_eq!(store.tools_for(&anna, Some(&[name.into()])).await.unwrap(), kept);
    }
    assert!(store.delete_tool(of(&anna), "GET_weather", audit()).await.unwrap());
    assert!(!store.delete_tool(of(&anna), "get_WEATHER", audit()).await.unwrap());
    assert_eq!(store.tool(of(&anna), "get_WEATHER").await.unwrap(), None);
    assert!(store.put_tool(of(&anna), tool("get_weather"), audit()).await.unwrap(), "it can be made anew");
}

pub(crate) async fn tools_are_listed_by_name_in_pages(store: Engine) {
    let anna = anna();
    for name in ["delta", "Alpha", "charlie", "Bravo", "echo-2", "echo_2"] {
        store.put_tool(of(&anna), BankTool { active: name != "Bravo", ..tool(name) }, audit()).await.unwrap();
    }
    store.put_tool(COMMON(), tool("common"), audit()).await.unwrap();
    let page = async |after, limit| store.tools(of(&anna), after, limit).await.unwrap();
    assert_eq!(names(&page(None, 9).await), ["Alpha", "Bravo", "charlie", "delta", "echo-2", "echo_2"]);
    assert_eq!(names(&page(None, 2).await), ["Alpha", "Bravo"]);
    assert_eq!(names(&page(Some("BRAVO"), 2).await), ["charlie", "delta"]);
    assert_eq!(names(&page(Some("cat"), 1).await), ["charlie"], "also behind a name that is not there");
    assert_eq!(names(&page(Some("echo_2"), 9).await), [""; 0]);
    assert_eq!(names(&store.tools(COMMON(), None, 9).await.unwrap()), ["common"]);
}

pub(crate) async fn callers_have_their_tenants_tools_and_the_common_ones(store: Engine) {
    let (anna, other) = (anna(), scope(2, "anna"));
    let off = |name| BankTool { active: false, ..tool(name) };
    for common in [tool("both"), tool("Hidden"), tool("plain"), off("asleep"), off("woken")] {
        store.put_tool(COMMON(), common, audit()).await.unwrap();
    }
    let own = BankTool { description: "Anna's tenant's own.".into(), ..tool("Both") };
    for own in [own.clone(), off("hidden"), tool("own"), off("own_asleep"), tool("woken")] {
        store.put_tool(of(&anna), own, audit()).await.unwrap();
    }

    let all = store.tools_for(&anna, None).await.unwrap();
    assert_eq!(names(&all), ["Both", "own", "plain", "woken"]);
    assert_eq!(all.iter().map(|tool| tool.common).collect::<Vec<_>>(), [false, false, true, false]);
    assert_eq!(all[0], own);
    assert_eq!(store.tools_for(&scope(1, "bert"), None).await.unwrap(), all, "the bank is the tenant's");
    assert_eq!(names(&store.tools_for(&other, None).await.unwrap()), ["both", "Hidden", "plain"]);

    let asked = ["woken", "hidden", "BOTH", "both", "asleep", "own_asleep", "unknown", "plain"].map(String::from);
    assert_eq!(names(&store.tools_for(&anna, Some(&asked)).await.unwrap()), ["Both", "plain", "woken"]);
    assert_eq!(names(&store.tools_for(&other, Some(&asked)).await.unwrap()), ["both", "Hidden", "plain"]);
    assert_eq!(store.tools_for(&anna, Some(&[])).await.unwrap(), []);
}

pub(crate) async fn the_tools_of_another_bank_look_missing(store: Engine) {
    // P10, S10
    let (anna, other) = (anna(), scope(2, "anna"));
    store.put_tool(of(&anna), tool("secret"), audit()).await.unwrap();
    for foreign in [of(&other), COMMON()] {
        assert_eq!(store.tool(foreign, "secret").await.unwrap(), None);
        assert_eq!(store.tools(foreign, None, 9).await.unwrap(), []);
        assert!(!store.delete_tool(foreign, "secret", audit()).await.unwrap());
    }
    assert_eq!(store.tools_for(&other, None).await.unwrap(), []);
    assert_eq!(store.tools_for(&other, Some(&["secret".into()])).await.unwrap(), []);
    // Another tenant's tool of the same name is another tool.
    assert!(
        store.put_tool(of(&other), BankTool { description: "theirs".into(), ..tool("secret") }, audit()).await.unwrap()
    );
    assert!(store.delete_tool(of(&other), "secret", audit()).await.unwrap());
    assert_eq!(store.tool(of(&anna), "secret").await.unwrap(), Some(tool("secret")));
    for name in ["' OR '1'='1", "%", "_", "\u{1F980}", ""] {
        assert_eq!(store.tool(of(&anna), name).await.unwrap(), None, "S11");
    }
}

pub(crate) async fn racing_puts_make_one_tool(store: Engine) {
    let mut racing = JoinSet::new();
    for number in 0..16 {
        let store = store.clone();
        let name = if number % 2 == 0 { "Tool" } else { "tool" };
        racing.spawn(async move { store.put_tool(of(&anna()), tool(name), audit()).await.unwrap() });
    }
    let new = racing.join_all().await.into_iter().filter(|new| *new).count();
    assert_eq!(new, 1);
    assert_eq!(store.tools(of(&anna()), None, 9).await.unwrap().len(), 1);
}

pub(crate) async fn settings_are_sealed_anew_only_where_they_are_unchanged(store: Engine) {
    let anna = anna();
    let (read, anew, changed) = (json(r#"{"key":"a"}"#), json(r#"{"key":"b"}"#), json(r#"{"key":"c"}"#));
    let kept = BankTool { settings: read.clone(), ..tool("Tool") };
    store.put_tool(of(&anna), kept.clone(), audit()).await.unwrap();
    let reseal = async |bank| store.reseal_tool(bank, "tool", &read, &anew).await.unwrap();
    let stranger = scope(2, "anna");
    assert!(!reseal(COMMON()).await && !reseal(of(&stranger)).await, "it is another bank's");
    assert!(reseal(of(&anna)).await);
    let resealed = BankTool { settings: anew.clone(), ..kept.clone() };
    assert_eq!(store.tool(of(&anna), "tool").await.unwrap(), Some(resealed));

    // Another administrator has replaced it meanwhile, or it was deleted.
    let other = BankTool { settings: changed, updated_at_ms: NOW + 1, ..kept };
    store.put_tool(of(&anna), other.clone(), audit()).await.unwrap();
    assert!(!reseal(of(&anna)).await);
    assert_eq!(store.tool(of(&anna), "tool").await.unwrap(), Some(other));
    assert!(store.delete_tool(of(&anna), "tool", audit()).await.unwrap());
    assert!(!reseal(of(&anna)).await);
    assert_eq!(store.tool(of(&anna), "tool").await.unwrap(), None);
}

pub(crate) async fn no_tenant_has_the_number_of_the_common_bank(store: Engine) {
    // The administrators of such a tenant would create tools for all tenants.
    let made = store.create_tenant(operator(), Some(0), "nobody", TenantState::Stored, NOW, audit()).await.unwrap();
    assert_eq!(made, None);
    assert_eq!(store.tenants(operator(), None, 9).await.unwrap(), []);
}
