//! Checks across keys: references, duplicate ids, listeners that would be open without a key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use secrecy::{ExposeSecret as _, SecretString};

use super::layers::KeyPath;
use super::reader::Reader;
use super::schema::Section;
use super::suggest::did_you_mean;
use super::{Config, KeySetLocation, Kind, McpTransport, NamedChoice as _, TenantConfig};

/// Checks the whole configuration; adds to the reader's faults and warnings.
pub(crate) fn all(config: &Config, reader: &mut Reader<'_>) {
    tenants(config, reader);
    listeners(config, reader);
    tokens(config, reader);
    upstreams(config, reader);
    mcp(config, reader);
    models(config, reader);
    assistant_model(config, reader);
    fallback_cycles(config, reader);
}

fn tenants(config: &Config, reader: &mut Reader<'_>) {
    let mut ids = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for tenant in &config.tenants {
        let at = KeyPath::entry(Section::Tenants, &tenant.name);
        // An id of zero was refused already.
        if let Some(first) = ids.insert(tenant.id, &tenant.name).filter(|_| tenant.id > 0) {
            reader
                .fault(reader.origin(&at, "id"), format!("{at} has the id {}, which is taken by '{first}'", tenant.id));
        }
        for key in &tenant.keys {
            if let Some(first) = keys.insert(key.expose_secret(), &tenant.name).filter(|first| **first != tenant.name) {
                let message = format!("{at} shares a key with '{first}': a key must identify one tenant");
                reader.fault(reader.origin(&at, "keys"), message);
            }
        }
    }
    if let Some(key) = &config.bootstrap_key
        && let Some(owner) = config.tenants.iter().find(|tenant| tenant.id != 1 && shares(tenant, key))
    {
        let origin = reader.origin(&KeyPath::section(Section::Process), "bootstrap_key");
        reader.fault(origin, format!("the key is for the tenant with id 1, and '{}' has the same one", owner.name));
    }
    // Keys of the store distinguish callers too, but without a key in the configuration none is required.
    if !config.needs_key() && config.tenants.len() > 1 {
        for tenant in &config.tenants {
            let at = KeyPath::entry(Section::Tenants, &tenant.name);
            let message = format!("{at} has no key; with several tenants, each needs a key to identify its callers");
            reader.fault(reader.origin(&at, "keys"), message);
        }
    }
}

fn shares(tenant: &TenantConfig, key: &SecretString) -> bool {
    tenant.keys.iter().any(|own| own.expose_secret() == key.expose_secret())
}

/// Other machines can reach the server only if that is configured, and only with a key.
fn listeners(config: &Config, reader: &mut Reader<'_>) {
    if config.is_local() {
        return;
    }
    if !config.server.admin_listen.is_local() {
        let origin = reader.origin(&KeyPath::section(Section::Server), "admin_listen");
        reader.warn(&origin, format!("other machines can reach the administration on {}", config.server.admin_listen));
    }
    let needed: Vec<&str> = [
        (config.file.is_none(), "a configuration file (--config FILE)"),
        (!config.needs_key(), "a key ('keys' of a tenant, AMALGAM_BOOTSTRAP_KEY, or tokens of [auth])"),
    ]
    .into_iter()
    .filter_map(|(missing, what)| missing.then_some(what))
    .collect();
    if !needed.is_empty() {
        let origin = reader.origin(&KeyPath::section(Section::Server), "listen");
        let message = format!(
            "refusing to listen on {}, which other machines can reach, without {}; use 127.0.0.1 otherwise",
            config.server.listen,
            needed.join(" and ")
        );
        reader.fault(origin, message);
    }
}

fn tokens(config: &Config, reader: &mut Reader<'_>) {
    let Some(jwt) = &config.jwt else { return };
    let at = KeyPath::section(Section::Auth);
    if let Some(KeySetLocation::File(path)) = &jwt.jwks
        && let Err(error) = std::fs::File::open(path)
    {
        reader.fault(reader.origin(&at, "jwks"), format!("cannot open the set of keys {}: {error}", path.display()));
    }
    if jwt.jwks.is_some() && jwt.issuer.is_none() && jwt.audience.is_none() {
        let origin = reader.origin(&at, "jwks");
        reader
            .warn(&origin, "tokens of any issuer, made for any service, are accepted; set jwt_issuer or jwt_audience");
    }
}

fn upstreams(config: &Config, reader: &mut Reader<'_>) {
    for upstream in &config.upstreams {
        let Some(remote) = &upstream.remote else { continue };
        let at = KeyPath::entry(Section::Upstreams, &upstream.name);
        if let Some(variable) = remote.api_key.as_ref().and_then(|key| key.missing()) {
            let origin = reader.origin(&at, "api_key");
            reader.warn(
                &origin,
                format!("the variable {variable} is not set; requests to '{}' will fail", upstream.name),
            );
        }
        for (header, variable) in remote.headers.iter().filter_map(|(name, value)| Some((name, value.missing()?))) {
            let origin = reader.origin(&at, "headers");
            let message = format!(
                "the variable {variable} of the header {header} is not set; requests to '{}' will fail",
                upstream.name
            );
            reader.warn(&origin, message);
        }
        if remote.api_key.is_some() && !remote.encrypted() && !is_this_machine(&remote.base_url) {
            let origin = reader.origin(&at, "base_url");
            reader.warn(&origin, format!("the key of '{}' travels without encryption", upstream.name));
        }
    }
}

fn mcp(config: &Config, reader: &mut Reader<'_>) {
    for server in &config.mcp {
        let at = KeyPath::entry(Section::Mcp, &server.name);
        let key = match &server.reached {
            McpTransport::Process { .. } => "env",
            McpTransport::Http { .. } => "authorization",
        };
        if let Some(variable) = server.missing() {
            let origin = reader.origin(&at, key);
            let message = format!("the variable {variable} is not set; the tools of '{}' cannot be used", server.name);
            reader.warn(&origin, message);
        }
        if let McpTransport::Http { url, authorization: Some(_) } = &server.reached
            && url.starts_with("http:")
            && !is_this_machine(url)
        {
            let origin = reader.origin(&at, "url");
            reader.warn(&origin, format!("the credential of '{}' travels without encryption", server.name));
        }
    }
}

fn is_this_machine(url: &str) -> bool {
    let Ok(uri) = url.parse::<http::Uri>() else { return false };
    // Brackets belong to the notation of an address, not to the host.
    let host = uri.host().map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    host.is_some_and(|host| host == "localhost" || host.parse().is_ok_and(is_loopback))
}

fn models(config: &Config, reader: &mut Reader<'_>) {
    let upstreams: Vec<&str> = reader.layers.names(Section::Upstreams).collect();
    let configured: BTreeSet<&str> = config.models.iter().map(|model| model.name.as_str()).collect();
    let listed: BTreeSet<&str> = config
        .upstreams
        .iter()
        .flat_map(|upstream| match &upstream.remote {
            Some(remote) => remote.models.iter().map(String::as_str).collect(),
            None => vec![Kind::Demo.name()],
        })
        .collect();
    let model_names: Vec<&str> = config
        .upstreams
        .iter()
        .filter(|upstream| upstream.remote.as_ref().is_some_and(|remote| remote.models.is_empty()))
        .map(|upstream| upstream.name.as_str())
        .collect();
    for model in &config.models {
        let at = KeyPath::entry(Section::Models, &model.name);
        if !model.upstream.is_empty() && !upstreams.contains(&model.upstream.as_str()) {
            let hint = did_you_mean(&model.upstream, upstreams.iter().copied());
            let message = format!("{at} names the upstream '{}', which is not defined{hint}", model.upstream);
            reader.fault(reader.origin(&at, "upstream"), message);
        }
        for (index, name) in model.fallback.iter().enumerate() {
            let of_upstream = name.split_once('/').is_some_and(|(upstream, _)| upstreams.contains(&upstream));
            if configured.contains(name.as_str()) || listed.contains(name.as_str()) || of_upstream {
                continue;
            }
            let origin = reader.item_origin(&at, "fallback", index);
            let hint = did_you_mean(name, configured.iter().chain(&listed).copied());
            // An upstream without a list may serve any model; only a request shows whether it does.
            if model_names.is_empty() {
                reader.fault(origin, format!("{at} falls back to '{name}', which no upstream serves{hint}"));
            } else {
                let message =
                    format!("{at} falls back to '{name}', which only {} could serve{hint}", model_names.join(", "));
                reader.warn(&origin, message);
            }
        }
    }
}

/// Refuses an assistant model that no upstream can have, if that is known without asking the upstreams.
fn assistant_model(config: &Config, reader: &mut Reader<'_>) {
    let Some(name) = &config.assistant_model else { return };
    let named = |upstream: &str| config.upstreams.iter().any(|known| known.name == upstream);
    let lists = config.upstreams.iter().map(|upstream| upstream.remote.as_ref().map(|remote| &remote.models));
    let may_serve = lists.into_iter().any(|models| match models {
        Some(models) => models.is_empty() || models.contains(name),
        None => name == Kind::Demo.name(),
    });
    let configured = config.models.iter().any(|model| model.name == *name);
    if !may_serve && !configured && !name.split_once('/').is_some_and(|(upstream, _)| named(upstream)) {
        let at = KeyPath::section(Section::Assistant);
        let hint = did_you_mean(name, config.models.iter().map(|model| model.name.as_str()));
        reader.fault(
            reader.origin(&at, "model"),
            format!("{at} names the model '{name}', which no upstream serves{hint}"),
        );
    }
}

/// Refuses cycles of fallbacks. Not recursive: a file may have a long chain.
fn fallback_cycles(config: &Config, reader: &mut Reader<'_>) {
    let next: BTreeMap<&str, &[String]> =
        config.models.iter().map(|model| (model.name.as_str(), model.fallback.as_slice())).collect();
    let mut done = BTreeSet::new();
    for start in next.keys().copied() {
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        let mut on_path = BTreeSet::from([start]);
        while let Some((name, position)) = path.last_mut() {
            let (name, index) = (*name, *position);
            *position += 1;
            let follower = next.get(name).and_then(|followers| followers.get(index)).filter(|_| !done.contains(name));
            let Some(follower) = follower else {
                done.insert(name);
                on_path.remove(name);
                path.pop();
                continue;
            };
            let follower = follower.as_str();
            if on_path.contains(follower) {
                let from = path.iter().position(|(name, _)| *name == follower).unwrap_or_default();
                let circle: Vec<&str> = path.iter().skip(from).map(|(name, _)| *name).chain([follower]).collect();
                let origin = reader.item_origin(&KeyPath::entry(Section::Models, name), "fallback", index);
                reader.fault(origin, format!("the fallback goes round in a circle: {}", circle.join(" -> ")));
            } else if !done.contains(follower) {
                on_path.insert(follower);
                path.push((follower, 0));
            }
        }
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
