//! Access and secrets: tenants, keys, tokens, addresses, the database.

use super::*;

#[test]
fn tenants_have_ids_and_keys_of_their_own() {
    let text = "\
[tenants.a]\nid = 1\nkeys = ['same-key']
[tenants.b]\nid = 1\nkeys = ['same-key', 'env:NOT_THERE']
[tenants.c]\nkeys = ['']
";
    assert_eq!(
        faults(text),
        [
            "amalgam.toml:5: [tenants.b] has the id 1, which is taken by 'a'",
            "amalgam.toml:6: [tenants.b] shares a key with 'a': a key must identify one tenant",
            "amalgam.toml:6: a key of [tenants.b] is in the variable NOT_THERE, which is not set",
            "amalgam.toml:7: [tenants.c] needs 'id'",
            "amalgam.toml:8: keys in [tenants.c]: the secret is empty",
        ]
    );
    assert_eq!(
        faults("[tenants.a]\nid = 1\n[tenants.b]\nid = 2\n"),
        [
            "amalgam.toml:1: [tenants.a] has no key; with several tenants, each needs a key to identify its callers",
            "amalgam.toml:3: [tenants.b] has no key; with several tenants, each needs a key to identify its callers",
        ]
    );
}

#[test]
fn the_bootstrap_key_is_for_tenant_one_and_is_never_ignored() {
    let env = [("AMALGAM_BOOTSTRAP_KEY", "first-key")];
    let loaded = load_with(None, &env, Flags::default()).unwrap();
    assert_eq!(loaded.config.bootstrap_key.as_ref().unwrap().expose_secret(), "first-key");
    assert!(loaded.config.needs_key());
    assert!(load("[tenants.a]\nid = 1\nkeys = ['first-key']", &env).is_ok());
    assert!(load("[tenants.a]\nid = 2\n[tenants.b]\nid = 3", &env).is_ok(), "their keys are in the store");

    let shared = load("[tenants.a]\nid = 2\nkeys = ['first-key']", &env).unwrap_err();
    assert_eq!(shared, ["AMALGAM_BOOTSTRAP_KEY: the key is for the tenant with id 1, and 'a' has the same one"]);
    for name in [
        "AMALGAM_BOOTSTRAP_KEY",
        "AMALGAM_SECRET_KEY",
        "AMALGAM_TENANTS_DEMO_KEYS",
        "AMALGAM_AUTH_JWT_SECRET",
        "AMALGAM_STORE_URL",
    ] {
        let empty = load("", &[(name, "")]).unwrap_err();
        assert_eq!(empty, [format!("{name}: the variable is set but empty")]);
    }
}

#[test]
fn the_database_is_named_by_file_or_server_and_its_password_stays_secret() {
    let url = |text: &str, env: &[(&str, &str)]| load(text, env).map(|loaded| loaded.config.store.to_string());
    assert_eq!(url("[store]\nurl = 'sqlite:other.db'", &[]).unwrap(), "sqlite:other.db");
    let env = [("AMALGAM_STORE_URL", "postgres://me:hush@host/db")];
    assert_eq!(url("", &env).unwrap(), "postgres://host/db");
    assert_eq!(url("[store]\nurl = 'env:DB'", &[("DB", "postgres://me:hush@host/db")]).unwrap(), "postgres://host/db");
    assert_eq!(
        url("[store]\nurl = 'env:NOT_THERE'", &[]).unwrap_err(),
        ["amalgam.toml:2: url in [store]: the variable NOT_THERE is not set"]
    );
    assert_eq!(
        url("[store]\nurl = 'mysql://me:hush@host/db'", &[]).unwrap_err(),
        ["amalgam.toml:2: url in [store]: expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE"]
    );
    let loaded = load("", &env).unwrap();
    let all = format!("{loaded:?}");
    assert!(!all.contains("hush"), "{all}");
}

#[test]
fn tokens_need_a_long_secret_or_a_set_of_keys_over_a_safe_way() {
    let secret = "0123456789abcdef0123456789abcdef";
    let good = format!("[auth]\njwt_secret = '{secret}'\njwt_issuer = 'me'\njwt_audience = '*'");
    let jwt = load(&good, &[]).unwrap().config.jwt.unwrap();
    assert_eq!((jwt.tenant_claim.as_str(), jwt.issuer.as_deref(), jwt.audience), ("tenant", Some("me"), None));
    assert!(load("", &[]).unwrap().config.jwt.is_none());
    for (text, expected) in [
        ("jwt_secret = 'short'", "the secret of tokens has 32 characters"),
        ("jwt_secret = 'env:NOT_THERE'", "the variable NOT_THERE is not set"),
        ("jwks = 'http://issuer/keys'", "expected a path or an https address"),
        ("jwks = 'https://me:hush@issuer/keys'", "has a user or password in it"),
        ("jwks = '/nowhere/keys.json'", "cannot open the set of keys /nowhere/keys.json"),
    ] {
        let faults = faults(&format!("[auth]\njwt_issuer = 'me'\njwt_audience = 'us'\n{text}"));
        assert!(faults.len() == 1 && faults[0].contains(expected) && !faults[0].contains("hush"), "{faults:?}");
    }
    // right E5
    let unbound = faults(&format!("[auth]\njwt_secret = '{secret}'\njwt_issuer = 'me'"));
    assert!(unbound.len() == 1 && unbound[0].contains("jwt_audience is not set"), "{unbound:?}");
    let unbound = faults("[auth]\njwks = 'https://issuer/keys'");
    assert!(unbound.len() == 2 && unbound[1].contains("jwt_issuer is not set"), "{unbound:?}");
    let open = "[auth]\njwks = 'https://issuer/keys'\njwt_issuer = '*'\njwt_audience = '*'";
    let loaded = load(open, &[]).unwrap();
    assert_eq!(loaded.config.jwt.unwrap().jwks, Some(KeySetLocation::Url("https://issuer/keys".to_owned())));
    assert!(loaded.warnings[0].contains("set jwt_issuer or jwt_audience"), "{:?}", loaded.warnings);
}

#[test]
fn an_upstream_without_its_key_is_a_warning_and_says_which_variable() {
    let text = "[upstreams.o]\nkind = 'responses'\nbase_url = 'https://x/v1/'\napi_key = 'env:NOT_THERE'\n";
    let loaded = load(text, &[]).unwrap();
    let remote = loaded.config.upstreams[0].remote.as_ref().unwrap();
    assert_eq!(remote.api_key.as_ref().unwrap().missing(), Some("NOT_THERE"));
    assert_eq!(remote.base_url, "https://x/v1");
    assert_eq!(loaded.warnings, ["amalgam.toml:4: the variable NOT_THERE is not set; requests to 'o' will fail"]);
}

#[test]
fn other_machines_are_served_only_with_a_file_and_a_key() {
    let key = [("AMALGAM_BOOTSTRAP_KEY", "k")];
    for address in ["0.0.0.0:8080", "[::]:8080", "192.168.1.2:80", "[::ffff:10.0.0.1]:80"] {
        let flags = Flags { listen: Some(address.to_owned()), ..Flags::default() };
        let neither = load_with(None, &[], flags.clone()).unwrap_err().join("\n");
        assert!(neither.starts_with("--listen: refusing to listen on "), "{neither}");
        assert!(neither.contains("--config FILE) and a key"), "{neither}");
        assert!(load_with(None, &key, flags.clone()).unwrap_err().join("").contains("--config FILE"));
        assert!(load_with(Some(""), &[], flags.clone()).unwrap_err().join("").contains("without a key"));
        assert!(load_with(Some(""), &key, flags).is_ok());
    }
    for address in ["127.0.0.1:0", "127.1.2.3:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "localhost:8080"] {
        let flags = Flags { listen: Some(address.to_owned()), ..Flags::default() };
        assert!(load_with(None, &[], flags).is_ok(), "{address}");
    }
}
