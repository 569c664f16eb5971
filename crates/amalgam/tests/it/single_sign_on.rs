//! Sign-in to the console by an OpenID Connect provider: who gets a session with which rights, and what is refused.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

mod provider;

use amalgam_testkit::{Client, HttpAnswer, Setup};
use http::Method;
use serde_json::{Value, json};

use self::provider::{CLIENT_ID, CLIENT_SECRET, Provider, now};
use crate::support::{Cli, SOON, TestStore, World, embedded_store, eventually, shared_store, stores};

const START: &str = "/admin/console/oidc/start";
const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
const BOOT: &str = "am_bootstrap-key-of-the-tests";

const RULES: &str = "tenant_claim = \"tenant\"\nroles_claim = \"groups\"\n\
    roles = { support = \"view\", engineers = [\"use\", \"admin\"], platform = [\"operator\"], clients = [\"use\"] }\n";

/// A server whose console has this provider, under these rules.
async fn world(store: &TestStore, provider: &Provider, rules: &str) -> (World, Cli) {
    let setup = Setup::new()
        .extra(TENANTS)
        .extra(&format!(
            "[console.oidc]\nname = \"Example ID\"\nissuer = \"{}\"\nclient_id = \"{CLIENT_ID}\"\n\
             client_secret = \"env:CLIENT_SECRET\"\n{rules}",
            provider.url()
        ))
        .env("CLIENT_SECRET", CLIENT_SECRET)
        .env("AMALGAM_BOOTSTRAP_KEY", BOOT);
    let world = World::with(store.setup(setup), &[]).await;
    let cli = Cli::beside(&world.amalgam, store).env("AMALGAM_BOOTSTRAP_KEY", BOOT).env("CLIENT_SECRET", CLIENT_SECRET);
    (world, cli)
}

/// A browser without its own navigation: it keeps cookies, and each redirect is a step of the test.
struct Browser {
    client: Client,
    cookies: Vec<(String, String)>,
}

impl Browser {
    fn new(world: &World) -> Self {
        Self { client: Client::new(world.amalgam.url()), cookies: Vec::new() }
    }

    async fn request(&mut self, method: Method, path: &str, more: &[(&str, &str)]) -> HttpAnswer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let mut headers = vec![("user-agent", "Tests/1")];
        if !cookies.is_empty() {
            headers.push(("cookie", cookies.as_str()));
        }
        headers.extend_from_slice(more);
        let answer = self.client.request(method, path, &headers, "".into()).await;
        for cookie in answer.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Lax; Max-Age="), "{cookie}");
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            if !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        answer
    }

    /// Follows a link in a window of its own.
    async fn navigate(&mut self, path: &str) -> HttpAnswer {
        let headers =
            [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("sec-fetch-site", "cross-site")];
        self.request(Method::GET, path, &headers).await
    }

    /// Begins to sign in: the provider's address.
    async fn begin(&mut self, return_to: &str) -> String {
        let answer = self.navigate(&format!("{START}?return_to={return_to}")).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        answer.header("location").unwrap().to_owned()
    }

    /// Comes back from the provider: where the server leads.
    async fn come_back(&mut self, world: &World, address: &str) -> String {
        let path = address.strip_prefix(world.amalgam.url()).expect("the provider sends the browser to the server");
        let answer = self.navigate(path).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        answer.header("location").unwrap().to_owned()
    }

    /// All steps: where the server leads in the end.
    async fn sign_in(&mut self, world: &World, provider: &Provider, return_to: &str) -> String {
        let location = self.begin(return_to).await;
        let address = provider.agree(&location).await;
        self.come_back(world, &address).await
    }

    async fn status(&mut self) -> Value {
        self.request(Method::GET, "/admin/console", &[("sec-fetch-site", "same-origin")]).await.json()
    }

    /// A request of a page of the console.
    async fn own(&mut self, method: Method, path: &str) -> HttpAnswer {
        let csrf = self.status().await["session"]["csrf_token"].as_str().unwrap_or_default().to_owned();
        self.request(method, path, &[("x-amalgam-csrf", &csrf)]).await
    }
}

/// The entries of the audit about sessions that were opened.
fn opened_sessions(cli: &Cli) -> Vec<Value> {
    let audit = cli.json(&["audit", "list", "--limit", "100"]);
    let entries = audit["data"].as_array().unwrap().iter();
    entries.filter(|entry| entry["action"] == "console_session.create").cloned().collect()
}

/// The code of the refusal that the sign-in page explains; the page itself stays the asked one.
fn refusal(location: &str) -> &str {
    let (page, fragment) = location.split_once('#').expect("a refusal is in the fragment");
    assert!(page.starts_with("/console/"), "{location}");
    let (code, request) = fragment.strip_prefix("sign-in-error=").unwrap().split_once("&request=").unwrap();
    assert!(request.starts_with("req_"), "{location}");
    code
}

/// Signs in with these claims in place of the usual ones: where the server leads.
async fn with_claims(world: &World, provider: &Provider, claims: Value) -> (Browser, String) {
    provider.set_claims(claims);
    let mut browser = Browser::new(world);
    let led_to = browser.sign_in(world, provider, "/console/").await;
    (browser, led_to)
}

#[tokio::test]
async fn a_user_of_the_provider_gets_a_session_with_the_tenant_and_the_rights_of_the_claims() {
    for store in stores() {
        let provider = Provider::start();
        let (world, cli) = world(&store, &provider, RULES).await;
        let mut browser = Browser::new(&world);
        let status = browser.status().await;
        assert_eq!(status["single_sign_on"], json!({"name": "Example ID", "start_path": START}), "{}", store.name);
        assert_eq!(status["session"], Value::Null);

        let led_to = browser.sign_in(&world, &provider, "/console/turns%3Fstatus=failed%26q=a").await;
        assert_eq!(led_to, "/console/turns?status=failed&q=a", "the page that was asked for");
        let names: Vec<&str> = browser.cookies.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["amalgam_console"], "the cookie of the sign-in is removed");
        let session = browser.status().await["session"].clone();
        let shown = |name: &str| session[name].clone();
        assert_eq!(
            json!([
                shown("tenant_id"),
                shown("sign_in"),
                shown("user"),
                shown("user_id"),
                shown("user_name"),
                shown("key_id")
            ]),
            json!([2, "oidc", "user-1", "user-1", "ada@example.com", null])
        );
        assert_eq!(shown("rights"), json!(["use", "admin"]));
        assert_eq!((shown("browser"), shown("address")), (json!("Tests/1"), json!("127.0.0.1")));
        for path in ["/admin/keys", "/admin/turns", "/admin/console/sessions", "/v1/models"] {
            assert_eq!(browser.own(Method::GET, path).await.status, 200, "{path}");
        }
        assert_eq!(browser.own(Method::GET, "/admin/tenants").await.status, 403, "not an operator");

        let entry = opened_sessions(&cli)[0].clone();
        assert_eq!(
            (&entry["tenant_id"], &entry["actor"]["user"], &entry["actor"]["origin"], &entry["after"]["user_name"]),
            (&json!(2), &json!("user-1"), &json!("127.0.0.1"), &json!("ada@example.com")),
            "{entry}"
        );

        // The session is listed and ended like every other one.
        let other = Client::new(world.amalgam.url()).with_key("am_b");
        let listed = other.get("/admin/console/sessions").await.json();
        assert_eq!(listed["data"][0]["id"], session["id"]);
        let path = format!("/admin/console/sessions/{}", session["id"].as_str().unwrap());
        assert_eq!(other.request(Method::DELETE, &path, &[], "".into()).await.status, 200);
        assert_eq!(browser.own(Method::GET, "/admin/turns").await.status, 401);
        assert_eq!(browser.status().await["session"], Value::Null);
    }
}

#[tokio::test]
async fn roles_give_rights_and_users_without_a_role_or_tenant_are_refused() {
    for store in stores() {
        let provider = Provider::start();
        let (world, _) = world(&store, &provider, RULES).await;
        for (groups, rights) in [
            (json!(["support"]), json!(["view"])),
            (json!("support"), json!(["view"])),
            (json!(["support", "clients", "unknown"]), json!(["use", "view"])),
            (json!(["platform"]), json!(["operator"])),
        ] {
            let (mut browser, led_to) = with_claims(&world, &provider, json!({"groups": groups})).await;
            assert_eq!(led_to, "/console/", "{groups}");
            assert_eq!(browser.status().await["session"]["rights"], rights, "{groups}");
        }
        for (claims, code) in [
            (json!({"groups": ["clients"]}), "no_role"),
            (json!({"groups": ["admin", "operator"]}), "no_role"),
            (json!({"groups": null}), "no_role"),
            (json!({"tenant": null}), "no_tenant"),
            (json!({"tenant": "two"}), "no_tenant"),
            (json!({"tenant": 99}), "no_tenant"),
            (json!({"sub": "key:config"}), "no_user"),
            (json!({"sub": "ada lovelace"}), "no_user"),
        ] {
            let (mut browser, led_to) = with_claims(&world, &provider, claims.clone()).await;
            assert_eq!(refusal(&led_to), code, "{claims}");
            assert_eq!(browser.status().await["session"], Value::Null, "{claims}");
        }
        world.amalgam.wait_for_stderr("the claim `tenant` of the user `user-1` has no number of a tenant").await;
    }
}

#[tokio::test]
async fn an_id_token_for_another_sign_in_client_or_time_is_refused() {
    for store in stores() {
        let provider = Provider::start();
        let (world, cli) = world(&store, &provider, RULES).await;
        for claims in [
            json!({"nonce": "of-another-sign-in"}),
            json!({"nonce": null}),
            json!({"exp": now() - 3600}),
            json!({"aud": "another-client"}),
            json!({"aud": [CLIENT_ID, "another-client"]}),
            json!({"azp": "another-client"}),
            json!({"iss": "https://evil.example"}),
            json!({"iat": now() + 3600}),
        ] {
            let (_, led_to) = with_claims(&world, &provider, claims.clone()).await;
            assert_eq!(refusal(&led_to), "invalid_token", "{claims}");
        }
        let several = json!({"aud": [CLIENT_ID, "another-client"], "azp": CLIENT_ID});
        assert_eq!(with_claims(&world, &provider, several).await.1, "/console/");
        assert_eq!(opened_sessions(&cli).len(), 1, "only the last one opened a session");
        let log = world.amalgam.wait_for_stderr("it has expired").await;
        assert!(log.contains("its nonce is not that of this sign-in") && log.contains("(azp)"), "{log}");
    }
}

#[tokio::test]
async fn the_answer_of_the_provider_counts_once_and_in_the_browser_that_began() {
    let provider = Provider::start();
    let (world, _) = world(&embedded_store(), &provider, RULES).await;
    let mut browser = Browser::new(&world);
    let location = browser.begin("/console/keys").await;
    let address = provider.agree(&location).await;

    // Another browser, and one whose own sign-in has another state.
    let mut stranger = Browser::new(&world);
    assert_eq!(refusal(&stranger.come_back(&world, &address).await), "unknown_sign_in");
    stranger.begin("/console/").await;
    assert_eq!(refusal(&stranger.come_back(&world, &address).await), "unknown_sign_in");
    let mut changed = Browser::new(&world);
    changed.cookies.clone_from(&browser.cookies);
    let without_state = address.split_once("&state=").unwrap().0.to_owned();
    assert_eq!(refusal(&changed.come_back(&world, &without_state).await), "unknown_sign_in");
    assert_eq!(provider.count("/token"), 0, "the provider is not asked before the state is checked");

    // The same answer twice, with the cookie that a browser would no longer have.
    let mut copy = Browser::new(&world);
    copy.cookies.clone_from(&browser.cookies);
    assert_eq!(browser.come_back(&world, &address).await, "/console/keys");
    assert_eq!(refusal(&browser.come_back(&world, &address).await), "unknown_sign_in");
    let led_to = copy.come_back(&world, &address).await;
    assert_eq!((refusal(&led_to), led_to.split('#').next()), ("provider_error", Some("/console/keys")));
    assert_eq!(copy.status().await["session"], Value::Null);

    // The code of one sign-in in the answer of another: PKCE.
    let (mut one, mut two) = (Browser::new(&world), Browser::new(&world));
    let (first, second) = (one.begin("/console/").await, two.begin("/console/").await);
    let (first, second) = (provider.agree(&first).await, provider.agree(&second).await);
    let code = first.split(['?', '&']).find(|part| part.starts_with("code=")).unwrap();
    let state = second.split(['?', '&']).find(|part| part.starts_with("state=")).unwrap();
    let mixed = format!("{}?{code}&{state}", first.split_once('?').unwrap().0);
    assert_eq!(refusal(&two.come_back(&world, &mixed).await), "provider_error");
}

#[tokio::test]
async fn a_sign_in_leads_to_pages_of_the_console_only() {
    let provider = Provider::start();
    let (world, _) = world(&embedded_store(), &provider, RULES).await;
    for elsewhere in [
        "https://evil.example/console/",
        "//evil.example/console/",
        "/%5Cevil.example",
        "/console/..%2F..%2F%2Fevil.example",
        "/console/../admin/console/oidc/start",
        "javascript:alert(1)",
        "/console/%0D%0Aset-cookie:%20a=b",
        "/v1/models",
        "",
    ] {
        let led_to = Browser::new(&world).sign_in(&world, &provider, elsewhere).await;
        assert_eq!(led_to, "/console/", "{elsewhere}");
    }
    let mut browser = Browser::new(&world);
    let location = browser.begin("/console/turns").await;
    let state = location.split(['?', '&']).find(|part| part.starts_with("state=")).unwrap();
    let denied = format!("{}/admin/console/oidc/callback?error=access_denied&{state}", world.amalgam.url());
    let led_to = browser.come_back(&world, &denied).await;
    assert_eq!((refusal(&led_to), led_to.split('#').next()), ("denied", Some("/console/turns")));

    // Only a browser's own navigation begins or ends a sign-in.
    let image = [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image"), ("sec-fetch-site", "cross-site")];
    assert_eq!(Browser::new(&world).request(Method::GET, START, &image).await.status, 403);
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_fetched_and_a_foreign_one_refused() {
    for store in stores() {
        let provider = Provider::start();
        let (world, _) = world(&store, &provider, RULES).await;
        for _ in 0..2 {
            assert_eq!(with_claims(&world, &provider, json!({})).await.1, "/console/");
        }
        assert_eq!((provider.count("/keys"), provider.count("/.well-known/openid-configuration")), (1, 1), "cached");
        provider.rotate();
        assert_eq!(with_claims(&world, &provider, json!({})).await.1, "/console/");
        assert_eq!(provider.count("/keys"), 2);
        provider.forge();
        assert_eq!(refusal(&with_claims(&world, &provider, json!({})).await.1), "invalid_token");
    }
}

#[tokio::test]
async fn while_the_provider_is_down_its_sign_in_says_so_and_others_work() {
    let provider = Provider::start();
    let (world, _) = world(&embedded_store(), &provider, RULES).await;
    provider.fail("/.well-known/openid-configuration", 503);
    let mut browser = Browser::new(&world);
    let answer = browser.navigate(&format!("{START}?return_to=/console/usage")).await;
    let led_to = answer.header("location").unwrap();
    assert_eq!((answer.status.as_u16(), refusal(led_to)), (303, "provider_unavailable"));
    assert!(led_to.starts_with("/console/usage#"), "{led_to}");
    world.amalgam.wait_for_stderr("refused a sign-in by the provider").await;
    let key = Client::new(world.amalgam.url()).with_key("am_a");
    assert_eq!(key.request(Method::POST, "/admin/console/sessions", &[], "".into()).await.status, 201);
    assert!(browser.status().await["single_sign_on"].is_object());
}

#[tokio::test]
async fn a_provider_that_fails_at_the_exchange_is_reported() {
    let provider = Provider::start();
    let (world, _) = world(&embedded_store(), &provider, RULES).await;
    provider.fail("/token", 500);
    assert_eq!(refusal(&with_claims(&world, &provider, json!({})).await.1), "provider_unavailable");
    provider.fail("/token", 200);
    assert_eq!(refusal(&with_claims(&world, &provider, json!({})).await.1), "provider_error");
}

#[tokio::test]
async fn sessions_of_a_provider_end_when_it_is_no_longer_configured() {
    for store in stores() {
        let provider = Provider::start();
        let rules = "tenant = 1\ndefault_scopes = [\"view\"]\nemail_domains = [\"Example.com\"]\nend_session = true\n";
        let (mut world, _) = world(&store, &provider, rules).await;
        for claims in [json!({"email": "eve@evil.example"}), json!({"email_verified": false}), json!({"email": null})] {
            assert_eq!(refusal(&with_claims(&world, &provider, claims).await.1), "email_not_allowed");
        }
        let (mut browser, led_to) = with_claims(&world, &provider, json!({"tenant": 2})).await;
        assert_eq!(led_to, "/console/");
        let session = browser.status().await["session"].clone();
        assert_eq!((&session["tenant_id"], &session["rights"]), (&json!(1), &json!(["view"])), "the fixed tenant");

        // A sign-out leads to the provider's own.
        let (mut second, _) = with_claims(&world, &provider, json!({})).await;
        let out = second.own(Method::DELETE, "/admin/console/session").await;
        let end = out.json()["end_session_url"].as_str().unwrap().to_owned();
        let after = format!("{}/console/", world.amalgam.url());
        let query = provider::pairs(end.split_once('?').unwrap().1);
        assert!(end.starts_with(&format!("{}/logout?", provider.url())), "{end}");
        assert_eq!((query["client_id"].as_str(), &query["post_logout_redirect_uri"]), (CLIENT_ID, &after));
        assert_eq!(second.status().await["session"], Value::Null);

        let home = world.amalgam.home();
        world.amalgam.stop().await;
        let setup = Setup::new().extra(TENANTS).env("AMALGAM_BOOTSTRAP_KEY", BOOT).home(&home);
        let world = World::with(store.setup(setup), &[]).await;
        browser.client = Client::new(world.amalgam.url());
        let status = browser.status().await;
        assert_eq!((&status["session"], &status["single_sign_on"]), (&Value::Null, &Value::Null), "{}", store.name);
        let answer = browser.navigate(START).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (404, &json!("no_provider")));
    }
}

#[tokio::test]
async fn a_session_that_another_process_ends_is_over_within_seconds() {
    let Some(store) = shared_store() else { return };
    let provider = Provider::start();
    // As behind a proxy: both processes have one address for callers.
    const ADDRESS: &str = "http://127.0.0.1:1";
    let rules = format!("{RULES}redirect_url = \"{ADDRESS}/admin/console/oidc/callback\"\n");
    let (world, _) = world(&store, &provider, &rules).await;
    let second = world.another().await;
    // The first process begins, the second one completes: nothing is in the memory of either.
    let mut browser = Browser::new(&world);
    let location = browser.begin("/console/turns").await;
    let address = provider.agree(&location).await;
    let path = address.strip_prefix(ADDRESS).unwrap();
    browser.client = Client::new(second.url());
    assert_eq!(browser.navigate(path).await.header("location"), Some("/console/turns"));
    let id = browser.status().await["session"]["id"].as_str().unwrap().to_owned();
    browser.client = Client::new(world.amalgam.url());
    assert_eq!(browser.own(Method::GET, "/admin/turns").await.status, 200);
    let path = format!("/admin/console/sessions/{id}");
    let other = Client::new(second.url()).with_key("am_b");
    assert_eq!(other.request(Method::DELETE, &path, &[], "".into()).await.status, 200);
    let ended = async || (browser.own(Method::GET, "/admin/turns").await.status == 401).then_some(());
    eventually("the other process to notice", SOON, ended).await;
}
