use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::egress::EgressConfig;

#[derive(Default)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Hands {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }
}

fn servers() -> (Servers, Arc<Hands>) {
    let clock = Arc::new(Hands::default());
    let egress = Arc::new(Egress::new(EgressConfig::default()));
    (Servers::new(egress, Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

fn address(tenant_id: i64, path: &str) -> Address {
    Address {
        label: "label".to_owned(),
        url: format!("https://mcp.example/{path}"),
        authorization: Some("token".into()),
        headers: vec![("X-One".to_owned(), HeaderText::Plain("1".to_owned()))],
        tenant_id,
    }
}

fn keeps(servers: &Servers, address: &Address) -> bool {
    servers.cache().entries.contains_key(&address.key())
}

// P10
#[test]
fn a_server_is_shared_only_by_the_same_tenant_with_the_same_credentials() {
    let header = |name: &str, value: &str| (name.to_owned(), HeaderText::Secret(value.to_owned().into()));
    let one = address(1, "a");
    let same = Address { label: "another".to_owned(), headers: vec![header("x-one", "1")], ..one.clone() };
    assert_eq!(one.key(), same.key());
    let others = [
        address(2, "a"),
        address(1, "b"),
        Address { authorization: None, ..one.clone() },
        Address { authorization: Some("tokem".into()), ..one.clone() },
        Address { authorization: Some("".into()), ..one.clone() },
        Address { headers: Vec::new(), ..one.clone() },
        Address { headers: vec![header("x-one", "2")], ..one.clone() },
        Address { headers: vec![header("x-one1", "")], ..one.clone() },
        Address { headers: vec![header("x-one", "1"), header("x-two", "1")], ..one.clone() },
        Address { url: "https://mcp.example/".to_owned(), authorization: Some("atoken".into()), ..one.clone() },
    ];
    let mut keys: Vec<_> = others.iter().chain([&one]).map(Address::key).collect();
    keys.sort_unstable_by_key(|key| (key.tenant_id, key.hash));
    keys.dedup();
    assert_eq!(keys.len(), others.len() + 1);
}

#[test]
fn a_server_is_kept_while_it_is_asked_for_and_let_go_when_it_is_idle() {
    let (servers, clock) = servers();
    servers.get(&address(1, "a")).unwrap();
    let held = servers.get(&address(1, "held")).unwrap();
    clock.pass(IDLE - Duration::from_secs(1));
    let again = servers.get(&address(1, "a")).unwrap();
    assert!(again.is_shared(), "the one that was there");
    drop(again);
    clock.pass(IDLE - Duration::from_secs(1));
    servers.get(&address(1, "b")).unwrap();
    assert!(keeps(&servers, &address(1, "a")));
    clock.pass(Duration::from_secs(1));
    servers.get(&address(1, "b")).unwrap();
    assert!(!keeps(&servers, &address(1, "a")), "idle for long enough");
    assert!(keeps(&servers, &address(1, "held")), "a turn uses it");
    drop(held);
    servers.get(&address(1, "b")).unwrap();
    assert!(!keeps(&servers, &address(1, "held")));
}

// S16
#[test]
fn there_are_never_too_many_servers_and_no_tenant_takes_the_room_of_all() {
    let (servers, _clock) = servers();
    let other = address(7, "other");
    servers.get(&other).unwrap();
    for n in 0..3 * MAX_OF_TENANT {
        servers.get(&address(1, &n.to_string())).unwrap();
    }
    assert_eq!(servers.cache().entries.len(), MAX_OF_TENANT + 1);
    assert!(keeps(&servers, &other));
    assert!(keeps(&servers, &address(1, &(3 * MAX_OF_TENANT - 1).to_string())), "the last one");
    assert!(!keeps(&servers, &address(1, "0")), "the first one");
    for tenant_id in 100..100 + 2 * MAX_SERVERS as i64 {
        servers.get(&address(tenant_id, "a")).unwrap();
    }
    assert_eq!(servers.cache().entries.len(), MAX_SERVERS);
}

#[test]
fn one_that_a_turn_uses_is_let_go_last() {
    let (servers, _clock) = servers();
    let _held = servers.get(&address(1, "held")).unwrap();
    for n in 0..2 * MAX_OF_TENANT {
        servers.get(&address(1, &n.to_string())).unwrap();
    }
    assert!(keeps(&servers, &address(1, "held")));
}

#[test]
fn an_address_that_cannot_be_used_is_refused_and_not_kept() {
    let (servers, _clock) = servers();
    for (bad, field) in [
        (Address { url: "https://user:hush@a.example/".to_owned(), ..address(1, "") }, "url"),
        (Address { authorization: Some("hush\nx".into()), ..address(1, "") }, "authorization"),
        (Address { headers: vec![("host".to_owned(), HeaderText::Plain("hush".into()))], ..address(1, "") }, "headers"),
        (
            Address {
                headers: vec![("Mcp-Session-Id".to_owned(), HeaderText::Plain("hush".into()))],
                ..address(1, "")
            },
            "headers",
        ),
        (
            Address { headers: vec![("Authorization".to_owned(), HeaderText::Plain("hush".into()))], ..address(1, "") },
            "authorization",
        ),
    ] {
        let fault = servers.get(&bad).unwrap_err();
        assert_eq!(fault.field, field);
        assert!(!fault.reason.contains("hush"), "{}", fault.reason);
    }
    assert_eq!(servers.cache().entries.len(), 0);
}
