//! `/admin/keys`: for the administrator of a tenant its own, for the operator all.

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Operator, Rights, Scope, store::KeyRecord};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::{HeaderValue, header};
use secrecy::ExposeSecret as _;

use super::{
    fields::{self, Fields},
    meant_tenant, named_tenant, page, write_text, write_time,
};
use crate::{
    app::App,
    auth::{self, KeyOrder},
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
    },
};

/// What a missing key is called.
const KEY: &str = "API key";

/// The longest label.
const LONGEST_LABEL: usize = 200;

/// Keys in the order of their ids, those that were revoked too.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant_id = meant_tenant(&scope, named_tenant(&query)?)?;
    let asked = query.page()?;
    let found = app.store.keys(ours(), tenant_id, asked.after.as_deref(), asked.limit + 1);
    let keys = found.await.map_err(Fault::from)?;
    Ok(page(&keys, asked.limit, |writer, key| writer.string(&key.id), |writer, key| write(writer, key, None)))
}

/// Makes a key. Its answer is the only one that ever shows it.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let fields = Fields::read(&app, request, &["tenant_id", "scopes", "user", "label", "expires_at"]).await?;
    let now_ms = app.clock.now_ms();
    let order = order(&scope, &fields, now_ms)?;
    let tenant_id = order.tenant_id;
    let issued = auth::issue(&*app.store, app.auth.pepper(), ours(), order, now_ms).await.map_err(Fault::from)?;
    let issued = issued.ok_or_else(|| missing("Tenant", &tenant_id.to_string()))?;
    let mut writer = Writer::with_capacity(512);
    write(&mut writer, &issued.record, Some(issued.key.expose_secret()));
    let mut response = answer::json(writer.into_bytes());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Makes a key worthless, for this process at once and for others within seconds. Once more changes nothing.
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(KEY, id)?;
    let tenant_id = match (named_tenant(&query)?, scope.operator()) {
        (None, Some(_)) => None,
        (named, _) => meant_tenant(&scope, named)?,
    };
    let revoked = app.store.revoke_key(ours(), tenant_id, &id, app.clock.now_ms()).await.map_err(Fault::from)?;
    let key = revoked.ok_or_else(|| missing(KEY, &id))?;
    app.auth.forget_key(&id);
    let mut writer = Writer::with_capacity(512);
    write(&mut writer, &key, None);
    Ok(answer::json(writer.into_bytes()))
}

/// The process itself asks: which tenant's keys the caller reaches was decided before.
fn ours() -> Operator {
    Operator::of_this_process()
}

fn order(scope: &Scope, fields: &Fields, now_ms: u64) -> Result<KeyOrder, Fault> {
    let named = fields.number("tenant_id")?;
    let tenant_id = meant_tenant(scope, named)?.unwrap_or(scope.tenant_id());
    let rights = match fields.texts("scopes")? {
        None => Rights::USE,
        Some(names) => rights(&names)?,
    };
    if rights.contains(Rights::OPERATOR) && scope.operator().is_none() {
        return Err(Fault::new(FaultKind::Forbidden, "Only the operator may make keys for operators.").param("scopes"));
    }
    let user = fields.text("user", 256)?;
    if user.is_some_and(|user| !auth::is_user(user)) {
        return Err(fields::wrong("user", "must have 1 to 256 visible characters and not begin with `key:`"));
    }
    let expires_at_ms = match fields.number("expires_at")? {
        None => None,
        Some(seconds) => match seconds.unsigned_abs().checked_mul(1000).filter(|at| *at > now_ms) {
            None => return Err(fields::wrong("expires_at", "must be a time to come, in seconds since 1970")),
            at => at,
        },
    };
    let label = fields.text("label", LONGEST_LABEL)?.map(str::to_owned);
    Ok(KeyOrder { tenant_id, rights, user: user.map(str::to_owned), label, expires_at_ms })
}

fn rights(names: &[&str]) -> Result<Rights, Fault> {
    let known = || Rights::all_names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let named = names.iter().map(|name| Rights::named(name)).collect::<Option<Vec<_>>>();
    match named.filter(|named| !named.is_empty()) {
        Some(named) => Ok(named.into_iter().fold(Rights::NONE, Rights::and)),
        None => Err(fields::wrong("scopes", &format!("a list of at least one of {}", known()))),
    }
}

fn write(writer: &mut Writer, record: &KeyRecord, key: Option<&str>) {
    writer.object(|writer| {
        writer.key("id").string(&record.id);
        writer.key("object").string("api_key");
        if let Some(key) = key {
            writer.key("key").string(key);
        }
        writer.key("tenant_id").number(record.tenant_id.unsigned_abs());
        writer.key("prefix").string(&record.prefix);
        write_text(writer, "label", record.label.as_deref());
        writer.key("scopes").array(|writer| record.rights.names().for_each(|name| writer.string(name)));
        write_text(writer, "user", record.user.as_deref());
        writer.key("created_at").number(record.created_at_ms / 1000);
        write_time(writer, "expires_at", record.expires_at_ms);
        write_time(writer, "revoked_at", record.revoked_at_ms);
        write_time(writer, "last_used_at", record.last_used_at_ms);
    });
}
