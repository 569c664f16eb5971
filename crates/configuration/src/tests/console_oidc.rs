//! `[console.oidc]`: the provider that signs users of the console in.

use amalgam_core::Rights;

use super::*;

const MINIMAL: &str = "[console.oidc]\nissuer = 'https://id.example/realms/a/'\nclient_id = 'c'\ntenant = 3\nroles_claim = 'groups'\nroles = { a = 'view' }\n";

/// The faults of the minimal section with a line replaced, which is found by its beginning.
fn faults_with(start: &str, line: &str) -> Vec<String> {
    let lines = MINIMAL.lines().map(|one| if one.starts_with(start) { line } else { one });
    faults(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_provider_is_read_with_its_roles_and_defaults() {
    let loaded = load(MINIMAL, &[]).unwrap();
    assert_eq!(loaded.warnings, NO_FAULTS);
    let oidc = loaded.config.oidc.unwrap();
    assert_eq!(oidc.issuer, "https://id.example/realms/a/", "a slash at the end is part of an issuer's name");
    assert_eq!((oidc.name.as_str(), oidc.client_id.as_str(), oidc.tenant), ("id.example", "c", Some(3)));
    assert_eq!(oidc.scopes, ["openid", "profile", "email"]);
    assert!(oidc.client_secret.is_none() && oidc.redirect_url.is_none() && !oidc.end_session);

    let text = "[console.oidc]\nissuer = 'http://127.0.0.1:9'\nclient_id = 'c'\nclient_secret = 'env:S'\ntenant_claim = 't'\n\
        name = 'Example ID'\nroles_claim = 'realm_access.roles'\nroles = { 'the team' = ['use', 'operator'], b = 'view use' }\n\
        default_scopes = ['view']\nemail_domains = ['Example.COM']\n\
        redirect_url = 'https://ai.example/admin/console/oidc/callback'\n";
    let oidc = load(text, &[("S", "hidden")]).unwrap().config.oidc.unwrap();
    assert_eq!(oidc.client_secret.unwrap().expose_secret(), "hidden");
    let roles: Vec<_> = oidc.roles.into_iter().collect();
    let expected = [("b", Rights::VIEW.and(Rights::USE)), ("the team", Rights::USE.and(Rights::OPERATOR))];
    assert_eq!(roles, expected.map(|(name, rights)| (name.to_owned(), rights)));
    assert_eq!((oidc.default_rights, oidc.email_domains), (Rights::VIEW, vec!["example.com".to_owned()]));
    assert!(load("[console.oidc]\n", &[]).unwrap().config.oidc.is_none(), "an empty section is none");
}

#[test]
fn roles_can_be_set_by_a_variable() {
    let env = [("AMALGAM_CONSOLE_OIDC_ROLES", "staff=use admin,others=view")];
    let roles = load(MINIMAL, &env).unwrap().config.oidc.unwrap().roles;
    assert_eq!(roles["staff"], Rights::USE.and(Rights::ADMIN));
    assert_eq!(roles.len(), 2);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (start, line, expected) in [
        ("issuer", "", "amalgam.toml:3: [console.oidc] has no 'issuer', which sign-in by a provider needs"),
        ("client_id", "", "amalgam.toml:2: [console.oidc] has no 'client_id', which sign-in by a provider needs"),
        (
            "tenant",
            "",
            "amalgam.toml:2: [console.oidc] has neither a 'tenant' nor a 'tenant_claim'; it needs one of them",
        ),
        (
            "roles_claim",
            "",
            "amalgam.toml:6: [console.oidc] has 'roles' and no 'roles_claim'; it needs both or neither",
        ),
        ("roles =", "", "amalgam.toml:5: [console.oidc] has 'roles_claim' and no 'roles'; it needs both or neither"),
        (
            "issuer",
            "issuer = 'http://id.example'",
            "amalgam.toml:2: the issuer is an https address: who changes its answers in transit could sign in as any user",
        ),
        ("issuer", "issuer = 'https://id.example/?a=b'", "amalgam.toml:2: the issuer is an address without a query"),
        (
            "client_id",
            "client_id = 'c'\nscopes = ['email']",
            "amalgam.toml:4: the scopes need 'openid': without it there is no ID token",
        ),
        (
            "client_id",
            "client_id = 'c'\nredirect_url = 'https://ai.example/'",
            "amalgam.toml:4: the redirect URL is an https address that ends in /admin/console/oidc/callback",
        ),
        (
            "client_id",
            "client_id = 'c'\nemail_domains = ['@example.com']",
            "amalgam.toml:4: an email domain is the part behind the @, such as example.com",
        ),
        (
            "client_id",
            "client_id = 'c'\nclient_secret = 'env:NOT_SET'",
            "amalgam.toml:4: the variable NOT_SET is not set",
        ),
    ] {
        assert_eq!(faults_with(start, line), [expected], "{line}");
    }
    for (roles, expected) in [
        ("{ a = 'views' }", "is not a scope of the console"),
        ("{ a = 'metrics' }", "is not a scope of the console"),
        ("{ a = [] }", "expected scopes such as"),
        ("{ a = [1] }", "expected scopes such as"),
        ("'a'", "expected a table such as"),
    ] {
        let found = faults_with("roles =", &format!("roles = {roles}"));
        assert!(
            found.len() == 1 && found[0].starts_with("amalgam.toml:6: ") && found[0].contains(expected),
            "{found:?}"
        );
    }
    assert_eq!(faults("[console.other]\nx = 1\n").len(), 1);
    assert_eq!(faults("[console]\noidc = 1\n").len(), 1);
}

#[test]
fn rules_that_let_in_every_user_are_warned_about() {
    let base = "[console.oidc]\nissuer = 'https://id.example'\nclient_id = 'c'\ntenant = 1\n";
    let warnings = |more: &str| load(&[base, more].concat(), &[]).unwrap().warnings;
    assert_eq!(warnings("default_scopes = ['view']\nemail_domains = ['example.com']\n"), NO_FAULTS);
    assert!(warnings("default_scopes = ['view']\n")[0].contains("every user of the provider may sign in"));
    assert!(warnings("default_scopes = ['operator']\n")[0].contains("gets the scope 'operator'"));
    assert_eq!(
        faults(base),
        ["amalgam.toml:2: [console.oidc] has neither 'roles' nor 'default_scopes': no user could sign in"]
    );
}
