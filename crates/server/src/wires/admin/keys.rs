//! `/admin/keys`: API keys; administrators reach those of their tenant, operators all.

use std::{borrow::Cow, sync::Arc};

use amalgam_core::{Fault, FaultKind, Operator, Rights, Scope, store::KeyRecord};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::{HeaderValue, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{
    answer,
    fields::{ApiKeyKind, Line, Positive, Texts, UnixSeconds},
    list_page, request, target_tenant, tenant_in_query,
};
use crate::{
    app::App,
    auth::{self, KeyOrder},
    wires::{
        WireError,
        query::{Query, id_of, missing},
    },
};

/// The key in not-found errors.
const KEY: &str = "API key";

/// An API key, without its secret.
#[derive(Serialize, JsonSchema)]
pub(super) struct Key<'a> {
    /// The id of the key; not secret.
    id: &'a str,
    object: ApiKeyKind,
    #[serde(flatten)]
    rest: KeyFields<'a>,
}

/// A newly created API key.
#[derive(Serialize, JsonSchema)]
pub(super) struct NewKey<'a> {
    /// The id of the key; not secret.
    id: &'a str,
    object: ApiKeyKind,
    /// The secret key. It is only returned once.
    key: &'a str,
    #[serde(flatten)]
    rest: KeyFields<'a>,
}

#[derive(Serialize, JsonSchema)]
struct KeyFields<'a> {
    #[schemars(range(min = 1))]
    tenant_id: i64,
    /// The first characters of the key.
    prefix: &'a str,
    /// A display name.
    label: Option<&'a str>,
    scopes: KeyScopes,
    /// The only user that the key acts for.
    user: Option<&'a str>,
    created_at: UnixSeconds,
    /// Unix time in seconds; null if the key never expires.
    expires_at: Option<UnixSeconds>,
    /// Unix time in seconds; null if not revoked.
    revoked_at: Option<UnixSeconds>,
    /// Unix time in seconds, accurate to about a minute; null if never used.
    last_used_at: Option<UnixSeconds>,
}

/// A key to create. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateKey {
    /// The caller's own tenant by default; operators may name another.
    tenant_id: Option<Positive>,
    /// The default is `use`.
    scopes: Option<KeyScopes>,
    /// The only user that the key acts for. Without one it is a service key: `X-Amalgam-User` names the user.
    user: Option<Line<256>>,
    /// A display name.
    label: Option<Line<200>>,
    /// Unix time in seconds; never expires by default.
    #[schemars(with = "Option<i64>")]
    expires_at: Option<Positive>,
}

/// At least one scope, by name.
struct KeyScopes(Rights);

impl<'a> From<&'a KeyRecord> for Key<'a> {
    fn from(record: &'a KeyRecord) -> Self {
        Self { id: &record.id, object: ApiKeyKind, rest: record.into() }
    }
}

impl<'a> From<&'a KeyRecord> for KeyFields<'a> {
    fn from(record: &'a KeyRecord) -> Self {
        Self {
            tenant_id: record.tenant_id,
            prefix: &record.prefix,
            label: record.label.as_deref(),
            scopes: KeyScopes(record.rights),
            user: record.user.as_deref(),
            created_at: UnixSeconds::from_ms(record.created_at_ms),
            expires_at: record.expires_at_ms.map(UnixSeconds::from_ms),
            revoked_at: record.revoked_at_ms.map(UnixSeconds::from_ms),
            last_used_at: record.last_used_at_ms.map(UnixSeconds::from_ms),
        }
    }
}

/// Keys ordered by id, including revoked ones.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant_id = target_tenant(&scope, tenant_in_query(&query)?)?;
    let asked = query.page()?;
    let found = app.store.keys(ours(), tenant_id, asked.after.as_deref(), asked.limit + 1);
    let keys = found.await.map_err(Fault::from)?;
    Ok(list_page(&keys, asked.limit, |key| key.id.as_str(), Key::from))
}

/// Creates a key. Only this response contains the secret.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let wanted: CreateKey = request::read(&app, request).await?;
    let now_ms = app.clock.now_ms();
    let order = wanted.order(&scope, now_ms)?;
    let tenant_id = order.tenant_id;
    let issued = auth::issue(&*app.store, app.auth.pepper(), ours(), order, now_ms).await.map_err(Fault::from)?;
    let issued = issued.ok_or_else(|| missing("Tenant", &tenant_id.to_string()))?;
    let record = &issued.record;
    let key = issued.key.expose_secret();
    let mut response = answer(&NewKey { id: &record.id, object: ApiKeyKind, key, rest: record.into() });
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Revokes a key, at once in this process and within seconds in others. Repeating it has no effect.
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(KEY, id)?;
    let tenant_id = match (tenant_in_query(&query)?, scope.operator()) {
        (None, Some(_)) => None,
        (named, _) => target_tenant(&scope, named)?,
    };
    let revoked = app.store.revoke_key(ours(), tenant_id, &id, app.clock.now_ms()).await.map_err(Fault::from)?;
    let key = revoked.ok_or_else(|| missing(KEY, &id))?;
    app.auth.forget_key(&id);
    Ok(answer(&Key::from(&key)))
}

/// The store is called as the process; the handler has checked which tenant's keys the caller reaches.
fn ours() -> Operator {
    Operator::of_this_process()
}

impl CreateKey {
    fn order(self, scope: &Scope, now_ms: u64) -> Result<KeyOrder, Fault> {
        let Self { tenant_id, scopes, user, label, expires_at } = self;
        let tenant_id = target_tenant(scope, tenant_id.map(|id| id.0))?.unwrap_or(scope.tenant_id());
        let rights = scopes.map_or(Rights::USE, |scopes| scopes.0);
        if rights.contains(Rights::OPERATOR) && scope.operator().is_none() {
            let fault = Fault::new(FaultKind::Forbidden, "Only the operator may make keys for operators.");
            return Err(fault.param("scopes"));
        }
        if user.as_ref().is_some_and(|user| !auth::is_user(&user.0)) {
            return Err(request::wrong("user", "must have 1 to 256 visible characters and not begin with `key:`"));
        }
        let expires_at_ms = match expires_at {
            None => None,
            Some(Positive(seconds)) => match seconds.unsigned_abs().checked_mul(1000).filter(|at| *at > now_ms) {
                None => return Err(request::wrong("expires_at", "must be a time to come, in seconds since 1970")),
                at => at,
            },
        };
        let (user, label) = (user.map(|user| user.0), label.map(|label| label.0));
        Ok(KeyOrder { tenant_id, rights, user, label, expires_at_ms })
    }
}

impl Serialize for KeyScopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.names())
    }
}

impl<'de> Deserialize<'de> for KeyScopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Texts(names) = Texts::deserialize(deserializer)?;
        let named = names.iter().map(|name| Rights::named(name)).collect::<Option<Vec<_>>>();
        match named.filter(|named| !named.is_empty()) {
            Some(named) => Ok(Self(named.into_iter().fold(Rights::NONE, Rights::and))),
            None => {
                let known: Vec<String> = Rights::all_names().map(|name| format!("`{name}`")).collect();
                Err(D::Error::custom(format_args!("a list of at least one of {}", known.join(", "))))
            }
        }
    }
}

impl JsonSchema for KeyScopes {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "KeyScopes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Rights::all_names().collect();
        json_schema!({"type": "array", "minItems": 1, "items": {"enum": names}})
    }
}
