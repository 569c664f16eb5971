//! Which credentials are accepted, with which state of the store, and for how long.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use amalgam_administration::keys::{KeyOrder, issue};
use amalgam_core::{
    Actor, AuditDraft, ClientTerms, TenantState,
    store::{KeyRecord, NewKey, Stored, TenantChange},
};

use super::*;
use crate::testing::Nothing;

/// A store of tenants 1 and 2 in memory that can be made to fail, and counts lookups.
#[derive(Default)]
struct Memory {
    keys: Mutex<Vec<NewKey>>,
    stateless: AtomicBool,
    down: AtomicBool,
    /// Takes questions and answers none.
    hangs: AtomicBool,
    lookups: AtomicUsize,
    touched: Mutex<Vec<(String, u64)>>,
}

impl Memory {
    fn gives<'a, T: Send + 'a>(&self, value: T) -> Stored<'a, T> {
        let (down, hangs) = (self.down.load(Ordering::Relaxed), self.hangs.load(Ordering::Relaxed));
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            if down { Err(StoreError::Unavailable("down".to_owned())) } else { Ok(value) }
        })
    }

    fn record(&self, id: i64) -> Option<TenantRecord> {
        let state = match self.stateless.load(Ordering::Relaxed) {
            true => TenantState::Stateless,
            false => TenantState::Stored,
        };
        (id <= 2).then(|| identity::tenant_for_tests(id, state))
    }

    fn change(&self, change: impl Fn(&mut KeyRecord)) {
        self.keys.lock().unwrap().iter_mut().for_each(|key| change(&mut key.record));
    }
}

impl TenancyStore for Memory {
    fn create_tenant<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: TenantState,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>> {
        self.gives(None)
    }

    fn tenants(&self, _: Operator, _: Option<i64>, _: usize) -> Stored<'_, Vec<TenantRecord>> {
        self.gives(Vec::new())
    }

    fn tenant(&self, _: Operator, id: i64) -> Stored<'_, Option<TenantRecord>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.gives(self.record(id))
    }

    fn change_tenant(&self, _: Operator, _: i64, _: TenantChange, _: AuditDraft) -> Stored<'_, Option<TenantRecord>> {
        self.gives(None)
    }

    fn create_key(&self, _: Operator, key: NewKey, _: AuditDraft) -> Stored<'_, bool> {
        let there = key.record.tenant_id <= 2;
        self.keys.lock().unwrap().extend(there.then_some(key));
        self.gives(there)
    }

    fn keys<'a>(&'a self, _: Operator, _: Option<i64>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<KeyRecord>> {
        self.gives(Vec::new())
    }

    fn key<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<KeyRecord>> {
        self.gives(None)
    }

    fn revoke_key<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>> {
        self.gives(None)
    }

    fn key_by_hash(&self, _: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let key = self.keys.lock().unwrap().iter().find(|key| key.hash == hash).map(|key| key.record.clone());
        self.gives(key.and_then(|key| self.record(key.tenant_id).map(|tenant| (key, tenant))))
    }

    fn touch_keys(&self, _: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()> {
        self.touched.lock().unwrap().extend(used);
        self.gives(())
    }

    fn remembered<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<String>> {
        self.gives(None)
    }

    fn remember<'a>(&'a self, _: Operator, _: &'a str, text: &'a str, _: bool) -> Stored<'a, String> {
        self.gives(text.to_owned())
    }
}

#[derive(Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const CONFIGURED: &str = "a-key-of-the-configuration";

struct World {
    store: Arc<Memory>,
    clock: Arc<Hand>,
    auth: Auth,
}

impl World {
    fn new(open: bool) -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(Hand(AtomicU64::new(1_000_000))));
        let tenant = |id| identity::tenant_for_tests(id, TenantState::Stored);
        let configured =
            ConfiguredKey { key: CONFIGURED.into(), tenant: tenant(2), rights: Rights::USE.and(Rights::ADMIN) };
        let auth = Auth::new(AuthParts {
            store: Arc::clone(&store) as Arc<dyn TenancyStore>,
            sessions: Arc::new(Nothing),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            pepper: Pepper::from_bytes(&[5; 32]),
            configured: if open { Vec::new() } else { vec![configured] },
            open: open.then(|| tenant(1)),
            jwt: None,
            single_sign_on: false,
            proxies: TrustedProxies::default(),
            max_connections_per_key: 10,
        });
        Self { store, clock, auth }
    }

    async fn key(&self, rights: Rights, expires_at_ms: Option<u64>) -> String {
        let order = KeyOrder { tenant_id: 1, rights, user: None, label: None, expires_at_ms };
        let issued = issue(&*self.store, self.auth.pepper(), &Actor::server(None), order, 0).await;
        issued.unwrap().unwrap().key.expose_secret().to_owned()
    }

    async fn ask(&self, headers: &[&str]) -> Result<Scope, FaultKind> {
        self.ask_at(headers, RequiredRight::Use).await
    }

    async fn ask_at(&self, headers: &[&str], door: RequiredRight) -> Result<Scope, FaultKind> {
        let mut request = Request::builder().uri("/v1/models");
        for value in headers {
            request = request.header(header::AUTHORIZATION, *value);
        }
        let mut request = request.body(()).unwrap();
        request
            .extensions_mut()
            .insert(Peer { address: "192.0.2.1:1".parse().unwrap(), key: ConnectionKey::default() });
        let admitted = match self.auth.admit(&request, door, &Page::Own) {
            CallerLookup::Done(admitted) => admitted,
            CallerLookup::Pending(asking) => asking.await,
        };
        admitted.map_err(|fault| fault.kind)
    }

    fn lookups(&self) -> usize {
        self.store.lookups.load(Ordering::Relaxed)
    }
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_known_key_gives_its_tenant_and_everything_else_is_refused() {
    // S18
    let world = World::new(false);
    let stored = world.key(Rights::USE, None).await;
    assert_eq!(world.ask(&[&bearer(CONFIGURED)]).await.unwrap().tenant_id(), 2);
    assert_eq!(world.ask(&[&bearer(&stored)]).await.unwrap().tenant_id(), 1);
    assert_eq!(world.ask(&[&format!("bearer  {stored} ")]).await.unwrap().tenant_id(), 1);
    let (doubled, basic) = (bearer(&stored), format!("Basic {stored}"));
    for wrong in [
        &[][..],
        &["Bearer am_two"],
        &["Bearer another"],
        &[&stored],
        &[&basic],
        &[&doubled, &doubled],
        &["Bearer "],
        &["Bearer ' OR '1'='1"],
    ] {
        assert_eq!(world.ask(wrong).await, Err(FaultKind::Unauthenticated), "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_in_use_is_looked_up_every_few_seconds_and_not_for_each_request() {
    let world = World::new(false);
    let key = bearer(&world.key(Rights::USE, None).await);
    for _ in 0..100 {
        world.ask(&[&key]).await.unwrap();
    }
    assert_eq!(world.lookups(), 1);
    pass(cache::RENEWAL).await;
    for _ in 0..100 {
        world.ask(&[&key]).await.unwrap();
    }
    assert_eq!(world.lookups(), 2);
}

// S12
#[tokio::test(start_paused = true)]
async fn revocation_and_expiry_hold_within_five_seconds() {
    let world = World::new(false);
    let (revoked, expiring) = (world.key(Rights::USE, None).await, world.key(Rights::USE, Some(1_004_000)).await);
    let (revoked, expiring) = (bearer(&revoked), bearer(&expiring));
    world.ask(&[&revoked]).await.unwrap();
    world.ask(&[&expiring]).await.unwrap();
    world.store.change(|key| key.revoked_at_ms = key.expires_at_ms.is_none().then_some(1));
    // A key is refused from the moment of its expiry.
    world.clock.0.store(1_004_000, Ordering::Relaxed);
    assert_eq!(world.ask(&[&expiring]).await, Err(FaultKind::Unauthenticated));
    pass(Duration::from_secs(4)).await;
    assert_eq!(world.ask(&[&revoked]).await, Err(FaultKind::Unauthenticated));
    assert_eq!(world.ask(&[&expiring]).await, Err(FaultKind::Unauthenticated));
}

// S12
#[tokio::test(start_paused = true)]
async fn revocation_holds_within_five_seconds_also_while_the_store_hangs() {
    let world = World::new(false);
    let key = bearer(&world.key(Rights::USE, None).await);
    world.ask(&[&key]).await.unwrap();
    world.ask(&[&bearer(CONFIGURED)]).await.unwrap();
    let started = Instant::now();
    world.store.change(|key| key.revoked_at_ms = Some(1));
    world.store.hangs.store(true, Ordering::Relaxed);
    pass(cache::LIFE - Duration::from_millis(100)).await;
    // The request arrives while the cached result is valid, and is answered after it has expired.
    assert_eq!(world.ask(&[&key]).await, Err(FaultKind::StoreDown));
    assert!(started.elapsed() > cache::LIFE);
    assert_eq!(world.ask(&[&bearer(CONFIGURED)]).await.unwrap().tenant_id(), 2, "the configuration vouches for it");
    world.store.hangs.store(false, Ordering::Relaxed);
    assert_eq!(world.ask(&[&key]).await, Err(FaultKind::Unauthenticated));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_this_process_revokes_is_worthless_at_once() {
    let world = World::new(false);
    let key = bearer(&world.key(Rights::USE, None).await);
    world.ask(&[&key]).await.unwrap();
    world.store.change(|key| key.revoked_at_ms = Some(1));
    let id = world.store.keys.lock().unwrap()[0].record.id.clone();
    world.auth.forget_key(&id);
    assert_eq!(world.ask(&[&key]).await, Err(FaultKind::Unauthenticated));
}

#[tokio::test(start_paused = true)]
async fn unknown_revoked_and_expired_keys_are_told_the_same() {
    let world = World::new(false);
    let (revoked, expired) = (world.key(Rights::USE, None).await, world.key(Rights::USE, Some(1)).await);
    world.store.change(|key| key.revoked_at_ms = key.expires_at_ms.is_none().then_some(1));
    let mut told = Vec::new();
    for key in [revoked.as_str(), &expired, "am_unknown"] {
        let before = world.lookups();
        let request = Request::builder().header(header::AUTHORIZATION, bearer(key)).body(()).unwrap();
        let CallerLookup::Pending(asking) = world.auth.admit(&request, RequiredRight::Use, &Page::Own) else {
            panic!("the store is asked")
        };
        told.push((asking.await.unwrap_err(), world.lookups() - before));
    }
    assert!(told.iter().all(|one| one == &told[0]), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn without_its_store_no_new_caller_is_accepted_and_no_key_is_called_wrong() {
    let world = World::new(false);
    let (seen, unseen) = (bearer(&world.key(Rights::USE, None).await), bearer(&world.key(Rights::USE, None).await));
    world.ask(&[&seen]).await.unwrap();
    world.store.down.store(true, Ordering::Relaxed);
    assert_eq!(world.ask(&[&unseen]).await, Err(FaultKind::StoreDown));
    assert_eq!(world.ask(&["Bearer am_wrong"]).await, Err(FaultKind::StoreDown));
    // A recently cached result is still used.
    pass(cache::RENEWAL).await;
    world.ask(&[&seen]).await.unwrap();
    pass(cache::LIFE).await;
    assert_eq!(world.ask(&[&seen]).await, Err(FaultKind::StoreDown));
    // The configuration needs no store.
    assert_eq!(world.ask(&[&bearer(CONFIGURED)]).await.unwrap().tenant_id(), 2);
    world.store.down.store(false, Ordering::Relaxed);
    world.ask(&[&seen]).await.unwrap();
    world.ask(&[&unseen]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_another_master_key_only_keys_of_the_store_are_closed_and_none_is_called_wrong() {
    let mut world = World::new(false);
    let key = bearer(&world.key(Rights::USE, None).await);
    let tenant = identity::tenant_for_tests(2, TenantState::Stored);
    let pepper = Pepper::of_this_process();
    world.auth = Auth::new(AuthParts {
        store: Arc::clone(&world.store) as Arc<dyn TenancyStore>,
        sessions: Arc::new(Nothing),
        clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
        pepper: pepper.clone(),
        configured: vec![ConfiguredKey { key: CONFIGURED.into(), tenant, rights: Rights::USE }],
        open: None,
        jwt: None,
        single_sign_on: false,
        proxies: TrustedProxies::default(),
        max_connections_per_key: 10,
    });
    assert_eq!(world.ask(&[&key]).await, Err(FaultKind::StoreDown));
    assert_eq!(world.ask(&[&bearer(CONFIGURED)]).await.unwrap().tenant_id(), 2);
    let order = KeyOrder { tenant_id: 1, rights: Rights::USE, user: None, label: None, expires_at_ms: None };
    assert!(issue(&*world.store, &pepper, &Actor::server(None), order, 0).await.is_err(), "no caller could use it");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_tenant_reaches_every_kind_of_caller_within_five_seconds() {
    let (locked, open) = (World::new(false), World::new(true));
    let key = bearer(&locked.key(Rights::USE, None).await);
    let configured = bearer(CONFIGURED);
    for world in [&locked, &open] {
        world.store.stateless.store(true, Ordering::Relaxed);
    }
    pass(Duration::from_secs(4)).await;
    for (world, headers) in [(&locked, &[key.as_str()][..]), (&locked, &[&configured]), (&open, &[])] {
        assert_eq!(world.ask(headers).await.unwrap().state(), TenantState::Stateless, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_authentication_every_caller_is_accepted_but_a_wrong_key_of_ours() {
    let world = World::new(true);
    let own = bearer(&world.key(Rights::USE.and(Rights::ADMIN), None).await);
    for anything in [&[][..], &["Bearer none"], &["Basic abc"], &["nonsense"]] {
        let scope = world.ask(anything).await.unwrap();
        assert_eq!((scope.tenant_id(), scope.rights(), scope.user()), (1, Rights::USE, "key:config"), "{anything:?}");
        assert_eq!(world.ask_at(anything, RequiredRight::Admin).await, Err(FaultKind::Unauthenticated), "{anything:?}");
    }
    assert_eq!(world.ask(&["Bearer am_wrong"]).await, Err(FaultKind::Unauthenticated));
    assert!(world.ask_at(&[&own], RequiredRight::Admin).await.unwrap().admin().is_some());
}

// S20
#[tokio::test]
async fn an_open_door_does_not_answer_to_the_names_of_others() {
    let world = World::new(true);
    let named = |host: &str| {
        let request = Request::builder().uri("/v1/models").header(header::HOST, host).body(()).unwrap();
        match world.auth.admit(&request, RequiredRight::Use, &Page::Own) {
            CallerLookup::Done(admitted) => admitted.map_err(|fault| fault.kind),
            CallerLookup::Pending(_) => panic!("{host}"),
        }
    };
    for local in ["localhost:8080", "127.0.0.1", "[::1]:8080", "192.0.2.1:80", "box", "a.localhost:1", "LOCALHOST."] {
        assert!(named(local).is_ok(), "{local}");
    }
    for foreign in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example"] {
        assert_eq!(named(foreign), Err(FaultKind::Forbidden), "{foreign}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_door_asks_for_its_right() {
    let world = World::new(false);
    let rights = [Rights::USE, Rights::ADMIN, Rights::OPERATOR];
    let mut keys = Vec::new();
    for right in rights {
        keys.push(bearer(&world.key(right, None).await));
    }
    let [user, admin, operator] = [&keys[0], &keys[1], &keys[2]];
    assert!(world.ask(&[user]).await.is_ok());
    assert_eq!(world.ask_at(&[user], RequiredRight::Admin).await, Err(FaultKind::Forbidden));
    for key in [admin, operator] {
        assert_eq!(world.ask(&[key]).await, Err(FaultKind::Forbidden));
        assert!(world.ask_at(&[key], RequiredRight::Admin).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_guesses_is_slowed_down_and_good_keys_are_not() {
    let world = World::new(false);
    let good = bearer(&world.key(Rights::USE, None).await);
    world.ask(&[&good]).await.unwrap();
    let mut kinds = Vec::new();
    for number in 0..30 {
        kinds.push(world.ask(&[&format!("Bearer am_guess{number}")]).await.unwrap_err());
    }
    assert!(kinds[..20].iter().all(|kind| *kind == FaultKind::Unauthenticated), "{kinds:?}");
    assert_eq!(kinds[25], FaultKind::Overloaded);
    // A key that was good is known again, also when it was not used for a while.
    world.ask(&[&good]).await.unwrap();
    pass(cache::LIFE).await;
    for number in 30..60 {
        let _ = world.ask(&[&format!("Bearer am_guess{number}")]).await;
    }
    world.ask(&[&good]).await.unwrap();
    world.ask(&[&bearer(CONFIGURED)]).await.unwrap();
    // A caller that repeats one wrong key gets the same error, from the cache.
    pass(Duration::from_secs(10)).await;
    for _ in 0..100 {
        assert_eq!(world.ask(&["Bearer am_wrong"]).await, Err(FaultKind::Unauthenticated));
    }
}

#[tokio::test(start_paused = true)]
async fn uses_are_written_down_in_batches_and_not_more_than_once_a_minute() {
    let world = World::new(false);
    let key = bearer(&world.key(Rights::USE, None).await);
    let touched = || world.store.touched.lock().unwrap().len();
    world.ask(&[&key]).await.unwrap();
    assert_eq!(touched(), 0);
    world.auth.flush_last_used().await;
    assert_eq!(touched(), 1);
    world.store.change(|key| key.last_used_at_ms = Some(1_000_000));
    for (now_ms, times) in [(1_059_999, 1), (1_060_000, 2)] {
        pass(cache::LIFE).await;
        world.clock.0.store(now_ms, Ordering::Relaxed);
        world.ask(&[&key]).await.unwrap();
        world.auth.flush_last_used().await;
        assert_eq!(touched(), times, "{now_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_browser_token_ends_when_it_expires_and_with_its_key() {
    let world = World::new(false);
    let key = world.key(Rights::USE, None).await;
    let secret = |key: &str, expires_at_ms: u64| {
        Arc::new(ClientSecret {
            key_hash: world.auth.pepper().hash(key),
            user: "ana".to_owned(),
            origin: "https://app.example.com".to_owned(),
            expires_at_ms,
            terms: ClientTerms { agents: vec!["home-assistant".to_owned()], messages_per_day: 5 },
        })
    };
    let ask = async |secret: &Arc<ClientSecret>, path: &str| {
        let request = Request::builder().uri(path).body(()).unwrap();
        match world.auth.admit_client(&request, secret) {
            CallerLookup::Done(admitted) => admitted,
            CallerLookup::Pending(asking) => asking.await,
        }
        .map_err(|fault| (fault.kind, fault.code.clone().unwrap_or_default().into_owned()))
    };
    let sessions = "/api/v2/ai-agent/sessions";
    for (key, tenant_id) in [(key.as_str(), 1), (CONFIGURED, 2)] {
        let scope = ask(&secret(key, 1_000_001), sessions).await.unwrap();
        assert_eq!((scope.tenant_id(), scope.user(), scope.rights()), (tenant_id, "ana", Rights::USE));
        assert_eq!(scope.client().map(|terms| terms.messages_per_day), Some(5));
        let expired = (FaultKind::Unauthenticated, "token_expired".to_owned());
        assert_eq!(ask(&secret(key, 1_000_000), sessions).await, Err(expired));
        let elsewhere = (FaultKind::Forbidden, "route_not_allowed".to_owned());
        assert_eq!(ask(&secret(key, 1_000_001), "/v1/models").await, Err(elsewhere));
    }
    world.store.change(|key| key.revoked_at_ms = Some(1));
    pass(Duration::from_secs(5)).await;
    assert_eq!(ask(&secret(&key, 1_000_001), sessions).await.unwrap_err().0, FaultKind::Unauthenticated);
    // Rights that a key does not have cannot come from its tokens.
    let key = world.key(Rights::VIEW, None).await;
    assert_eq!(ask(&secret(&key, 1_000_001), sessions).await.unwrap_err().0, FaultKind::Forbidden);
}
