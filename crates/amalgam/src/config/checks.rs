//! What no single key can say: names that must exist, ids that must differ, doors that must not stand open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use secrecy::ExposeSecret as _;

use super::layers::At;
use super::reader::Reader;
use super::schema::Section;
use super::suggest::did_you_mean;
use super::{Choice as _, Config, Kind};

/// Looks at the whole; adds to the reader's faults and warnings.
pub(crate) fn all(config: &Config, reader: &mut Reader<'_>) {
    tenants(config, reader);
    door(config, reader);
    upstreams(config, reader);
    models(config, reader);
    fallback_cycles(config, reader);
}

fn tenants(config: &Config, reader: &mut Reader<'_>) {
    let mut ids = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for tenant in &config.tenants {
        let at = At::entry(Section::Tenants, &tenant.name);
        // An id of zero was refused already.
        if let Some(first) = ids.insert(tenant.id, &tenant.name).filter(|_| tenant.id > 0) {
            reader
                .fault(reader.origin(&at, "id"), format!("{at} has the id {}, which is taken by '{first}'", tenant.id));
        }
        for key in &tenant.keys {
            if let Some(first) = keys.insert(key.expose_secret(), &tenant.name).filter(|first| **first != tenant.name) {
                let message = format!("{at} shares a key with '{first}': nobody could tell whose caller it is");
                reader.fault(reader.origin(&at, "keys"), message);
            }
        }
    }
    let (keyless, keyed): (Vec<_>, Vec<_>) = config.tenants.iter().partition(|tenant| tenant.keys.is_empty());
    for tenant in &keyless {
        let at = At::entry(Section::Tenants, &tenant.name);
        if keyed.is_empty() && keyless.len() > 1 {
            let message = format!("{at} has no key, and with several tenants nobody could tell whose caller it is");
            reader.fault(reader.origin(&at, "keys"), message);
        } else if !keyed.is_empty() {
            let origin = reader.origin(&at, "keys");
            reader.warn(&origin, format!("{at} has no key, so that nobody can call for it"));
        }
    }
}

/// Other machines reach the server only when somebody wrote that down, and a key guards it.
fn door(config: &Config, reader: &mut Reader<'_>) {
    if is_loopback(config.server.listen.ip()) {
        return;
    }
    let needed: Vec<&str> = [
        (config.file.is_none(), "a configuration file (--config FILE)"),
        (!config.needs_key(), "a key ('keys' of a tenant, or AMALGAM_BOOTSTRAP_KEY)"),
    ]
    .into_iter()
    .filter_map(|(missing, what)| missing.then_some(what))
    .collect();
    if !needed.is_empty() {
        let origin = reader.origin(&At::section(Section::Server), "listen");
        let message = format!(
            "refusing to listen on {}, which other machines can reach, without {}; use 127.0.0.1 otherwise",
            config.server.listen,
            needed.join(" and ")
        );
        reader.fault(origin, message);
    }
}

fn upstreams(config: &Config, reader: &mut Reader<'_>) {
    for upstream in &config.upstreams {
        let Some(remote) = upstream.remote() else { continue };
        let at = At::entry(Section::Upstreams, &upstream.name);
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
        let local =
            remote.host_and_port().is_some_and(|(host, _)| host == "localhost" || host.parse().is_ok_and(is_loopback));
        if remote.api_key.is_some() && !remote.encrypted() && !local {
            let origin = reader.origin(&at, "base_url");
            reader.warn(&origin, format!("the key of '{}' travels without encryption", upstream.name));
        }
    }
}

fn models(config: &Config, reader: &mut Reader<'_>) {
    let upstreams: Vec<&str> = reader.layers.names(Section::Upstreams).collect();
    let configured: BTreeSet<&str> = config.models.iter().map(|model| model.name.as_str()).collect();
    let listed: BTreeSet<&str> = config
        .upstreams
        .iter()
        .flat_map(|upstream| match upstream.remote() {
            Some(remote) => remote.models.iter().map(String::as_str).collect(),
            None => vec![Kind::Demo.name()],
        })
        .collect();
    let asked: Vec<&str> = config
        .upstreams
        .iter()
        .filter(|upstream| upstream.remote().is_some_and(|remote| remote.models.is_empty()))
        .map(|upstream| upstream.name.as_str())
        .collect();
    for model in &config.models {
        let at = At::entry(Section::Models, &model.name);
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
            // An upstream without a list may serve anything; whether it does shows when it is asked.
            if asked.is_empty() {
                reader.fault(origin, format!("{at} falls back to '{name}', which nobody serves{hint}"));
            } else {
                let message = format!("{at} falls back to '{name}', which only {} could serve{hint}", asked.join(", "));
                reader.warn(&origin, message);
            }
        }
    }
}

/// A fallback that leads back to its start would never end. Walks without recursion: a file may hold a long chain.
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
                let origin = reader.item_origin(&At::entry(Section::Models, name), "fallback", index);
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
