//! `[console.oidc]`: the OpenID Connect provider that signs users of the console in.

use std::collections::BTreeMap;
use std::net::IpAddr;

use amalgam_core::Rights;
use secrecy::SecretString;

use super::fault::ValueOrigin;
use super::layers::KeyPath;
use super::reader::Reader;
use super::schema::Section;
use super::secret::Secret;
use super::value::RoleScopes;

/// The provider that signs users of the console in.
#[derive(Debug, Clone)]
pub struct OidcConfig {
    /// The issuer: `https`, or `http` on this machine.
    pub issuer: String,
    /// The name of this server at the provider.
    pub client_id: String,
    /// None: a public client.
    pub client_secret: Option<SecretString>,
    /// The name for people.
    pub name: String,
    /// The scopes of the request.
    pub scopes: Vec<String>,
    /// None: derived from the public URL.
    pub redirect_url: Option<String>,
    /// The tenant of users without `tenant_claim`. One of both is set.
    pub tenant: Option<i64>,
    /// The claim with the number of the tenant.
    pub tenant_claim: Option<String>,
    /// The claim with the user's name.
    pub user_claim: String,
    /// The claim with the user's roles.
    pub roles_claim: Option<String>,
    /// The rights of each role.
    pub roles: BTreeMap<String, Rights>,
    /// The rights of every user.
    pub default_rights: Rights,
    /// In lower case; empty: any.
    pub email_domains: Vec<String>,
    /// Whether a sign-out leads to the provider.
    pub end_session: bool,
}

/// Reads and checks the section; none if no key of it is set.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<OidcConfig> {
    let at = &KeyPath::section(Section::ConsoleOidc);
    let issuer: Option<String> = reader.optional(at, "issuer");
    let client_id: Option<String> = reader.optional(at, "client_id");
    let secret: Option<Secret> = reader.optional(at, "client_secret");
    let name: Option<String> = reader.optional(at, "name");
    let default_scopes: Vec<String> = reader.value(at, "default_scopes");
    let domains: Vec<String> = reader.value(at, "email_domains");
    let mut config = OidcConfig {
        name: String::new(),
        client_secret: client_secret(reader, at, secret),
        scopes: reader.value(at, "scopes"),
        redirect_url: reader.optional(at, "redirect_url"),
        tenant: reader.optional(at, "tenant"),
        tenant_claim: reader.optional(at, "tenant_claim"),
        user_claim: reader.value(at, "user_claim"),
        roles_claim: reader.optional(at, "roles_claim"),
        roles: reader.value::<RoleScopes>(at, "roles").0,
        default_rights: rights(&default_scopes),
        email_domains: domains.iter().map(|domain| domain.to_ascii_lowercase()).collect(),
        end_session: reader.value(at, "end_session"),
        issuer: String::new(),
        client_id: String::new(),
    };
    let first_set = reader.layers.keys(at).map(|(_, located)| located.origin.clone()).min_by_key(line)?;
    // A refused value has its fault already.
    let is_set = |reader: &Reader<'_>, key: &str| reader.layers.get(at, key).is_some();
    for key in ["issuer", "client_id"].into_iter().filter(|key| !is_set(reader, key)).collect::<Vec<_>>() {
        reader.fault(first_set.clone(), format!("{at} has no '{key}', which sign-in by a provider needs"));
    }
    let (issuer, client_id) = (issuer?, client_id?);
    config.name = name.unwrap_or_else(|| host(&issuer));
    (config.issuer, config.client_id) = (issuer, client_id);
    check_addresses(&config, reader, at);
    check_tenant(&config, reader, at);
    check_rights(&config, reader, at);
    check_email(&config, reader, at);
    Some(config)
}

fn line(origin: &ValueOrigin) -> usize {
    match origin {
        ValueOrigin::File { line, .. } => *line,
        _ => usize::MAX,
    }
}

fn client_secret(reader: &mut Reader<'_>, at: &KeyPath, written: Option<Secret>) -> Option<SecretString> {
    if let Some(variable) = written.as_ref().and_then(Secret::missing) {
        // The provider would refuse every sign-in.
        reader.fault(reader.origin(at, "client_secret"), format!("the variable {variable} is not set"));
    }
    written.and_then(|secret| secret.value().cloned())
}

fn rights(scopes: &[String]) -> Rights {
    scopes.iter().filter_map(|scope| Rights::named(scope)).fold(Rights::NONE, Rights::and)
}

fn host(url: &str) -> String {
    url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_else(|| url.to_owned())
}

fn check_addresses(config: &OidcConfig, reader: &mut Reader<'_>, at: &KeyPath) {
    let own = |url: &str| {
        let host = host(url);
        host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if !config.issuer.starts_with("https://") && !own(&config.issuer) {
        let message = "the issuer is an https address: who changes its answers in transit could sign in as any user";
        reader.fault(reader.origin(at, "issuer"), message);
    }
    if config.issuer.contains('?') {
        reader.fault(reader.origin(at, "issuer"), "the issuer is an address without a query");
    }
    if let Some(url) = &config.redirect_url
        && (!url.ends_with("/admin/console/oidc/callback") || (!url.starts_with("https://") && !own(url)))
    {
        let message = "the redirect URL is an https address that ends in /admin/console/oidc/callback";
        reader.fault(reader.origin(at, "redirect_url"), message);
    }
    if !config.scopes.iter().any(|scope| scope == "openid") {
        reader.fault(reader.origin(at, "scopes"), "the scopes need 'openid': without it there is no ID token");
    }
}

fn check_tenant(config: &OidcConfig, reader: &mut Reader<'_>, at: &KeyPath) {
    let written = |key: &str| reader.layers.get(at, key).is_some();
    if config.tenant.is_none() && config.tenant_claim.is_none() && !written("tenant") && !written("tenant_claim") {
        let message = format!("{at} has neither a 'tenant' nor a 'tenant_claim'; it needs one of them");
        reader.fault(reader.origin(at, "issuer"), message);
    }
}

fn check_rights(config: &OidcConfig, reader: &mut Reader<'_>, at: &KeyPath) {
    let written = |key: &str| reader.layers.get(at, key).is_some();
    let (claim, roles) = (written("roles_claim"), written("roles"));
    if claim != roles {
        let (has, lacks) = if claim { ("roles_claim", "roles") } else { ("roles", "roles_claim") };
        reader.fault(reader.origin(at, has), format!("{at} has '{has}' and no '{lacks}'; it needs both or neither"));
    }
    if !claim && !roles && config.default_rights == Rights::NONE && !written("default_scopes") {
        let message = format!("{at} has neither 'roles' nor 'default_scopes': no user could sign in");
        reader.fault(reader.origin(at, "issuer"), message);
    }
    let manages = [Rights::ADMIN, Rights::OPERATOR].into_iter().find(|right| config.default_rights.contains(*right));
    if let Some(right) = manages {
        let origin = reader.origin(at, "default_scopes");
        let name = right.names().next().unwrap_or_default();
        reader.warn(&origin, format!("every user of the provider gets the scope '{name}'"));
    } else if config.default_rights != Rights::NONE && config.email_domains.is_empty() && config.tenant.is_some() {
        let origin = reader.origin(at, "default_scopes");
        reader.warn(&origin, "every user of the provider may sign in; set email_domains, or roles instead");
    }
}

fn check_email(config: &OidcConfig, reader: &mut Reader<'_>, at: &KeyPath) {
    for (index, domain) in config.email_domains.iter().enumerate() {
        if domain.contains(['@', '*', '/']) {
            let message = "an email domain is the part behind the @, such as example.com";
            reader.fault(reader.item_origin(at, "email_domains", index), message);
        }
    }
    if !config.email_domains.is_empty() && !config.scopes.iter().any(|scope| scope == "email") {
        let message = "'email_domains' needs the scope 'email': without it there is no address to check";
        reader.fault(reader.origin(at, "scopes"), message);
    }
}
