//! API keys: administrators reach those of their tenant, operators all.

mod configured;
mod issue;

use std::borrow::Cow;

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Fault, FaultKind, INSTALLATION, Operator, Rights, Scope,
    store::{KeyRecord, Page},
};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::json;

use super::{
    Administration,
    access::{known_id, no_tenant, target_tenant},
    audit::snapshot,
    fields::{Line, Positive, Texts, UnixSeconds},
    list::List,
    request::{self, wrong},
};

pub use configured::configured_key_id;
pub(crate) use configured::tenant_of_configured_key;
pub(crate) use issue::secret_text;
pub use issue::{
    ConfiguredKey, IssuedKey, KEY_PREFIX, KeyOrder, Pepper, PepperError, SEALED_MEMORIES, issue, memory_context,
};

/// The key in not-found errors.
const KEY: &str = "API key";

const REVOKE: AuditAction = AuditAction::new("key.revoke");

/// The longest name of a user.
const LONGEST_USER: usize = 256;

/// The beginning of the user names of keys that act for themselves. No other user has such a name.
pub const KEY_OWNER: &str = "key:";

type KeyLabel = Line<200>;

/// An API key, without its secret.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyView {
    /// The id of the key; not secret.
    pub id: String,
    #[schemars(extend("const" = "api_key"))]
    object: &'static str,
    #[serde(flatten)]
    #[schemars(description = "")]
    /// Everything else.
    pub fields: KeyFields,
}

/// A newly created API key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NewKey")]
pub struct NewKeyView {
    /// The id of the key; not secret.
    id: String,
    #[schemars(extend("const" = "api_key"))]
    object: &'static str,
    /// The secret key. It is only returned once.
    key: String,
    #[serde(flatten)]
    fields: KeyFields,
}

/// What is shown of every key.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct KeyFields {
    #[schemars(range(min = 1))]
    pub tenant_id: i64,
    /// The first characters of the key.
    pub prefix: String,
    /// A display name.
    pub label: Option<String>,
    pub scopes: KeyScopes,
    /// The only user that the key acts for.
    pub user: Option<String>,
    pub created_at: UnixSeconds,
    /// Unix time in seconds; null if the key never expires.
    pub expires_at: Option<UnixSeconds>,
    /// Unix time in seconds; null if not revoked.
    pub revoked_at: Option<UnixSeconds>,
    /// Unix time in seconds, accurate to about a minute; null if never used.
    pub last_used_at: Option<UnixSeconds>,
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
    user: Option<Line<LONGEST_USER>>,
    /// A display name.
    label: Option<KeyLabel>,
    /// Unix time in seconds; never expires by default.
    #[schemars(with = "Option<i64>")]
    expires_at: Option<Positive>,
}

/// At least one scope, by name.
#[derive(Debug, Clone, Copy)]
pub struct KeyScopes(pub Rights);

impl From<KeyRecord> for KeyView {
    fn from(mut record: KeyRecord) -> Self {
        Self { id: std::mem::take(&mut record.id), object: "api_key", fields: record.into() }
    }
}

impl From<IssuedKey> for NewKeyView {
    fn from(IssuedKey { key, record }: IssuedKey) -> Self {
        let KeyView { id, object, fields } = record.into();
        Self { id, object, key: key.expose_secret().to_owned(), fields }
    }
}

impl From<KeyRecord> for KeyFields {
    fn from(record: KeyRecord) -> Self {
        Self {
            tenant_id: record.tenant_id,
            prefix: record.prefix,
            label: record.label,
            scopes: KeyScopes(record.rights),
            user: record.user,
            created_at: UnixSeconds::from_ms(record.created_at_ms),
            expires_at: record.expires_at_ms.map(UnixSeconds::from_ms),
            revoked_at: record.revoked_at_ms.map(UnixSeconds::from_ms),
            last_used_at: record.last_used_at_ms.map(UnixSeconds::from_ms),
        }
    }
}

impl Administration<'_> {
    /// Keys ordered by id, including revoked ones: of the named tenant, or of all tenants that the caller can access.
    pub async fn keys(&self, scope: &Scope, named: Option<i64>, page: &Page) -> Result<List<KeyView, String>, Fault> {
        let tenant_id = target_tenant(scope, named)?;
        let keys = self.store.keys(process(), tenant_id, page.after.as_deref(), page.limit + 1).await?;
        Ok(List::new(keys.into_iter().map(KeyView::from).collect(), page.limit, |key| key.id.clone()))
    }

    /// Creates the key that `body` describes. Only the result contains the secret.
    pub async fn create_key_from(&self, scope: &Scope, pepper: &Pepper, body: &Bytes) -> Result<NewKeyView, Fault> {
        let order = request::parse::<CreateKey>(body)?.order(scope, self.now_ms)?;
        Ok(self.create_key(pepper, order).await?.into())
    }

    /// Creates a key. Only the result contains the secret.
    pub async fn create_key(&self, pepper: &Pepper, order: KeyOrder) -> Result<IssuedKey, Fault> {
        let tenant_id = order.tenant_id;
        issue(self.store, pepper, &self.actor, order, self.now_ms).await?.ok_or_else(|| no_tenant(tenant_id))
    }

    /// Revokes a key; running servers refuse it within seconds. Repeating it has no effect.
    pub async fn revoke_key(&self, scope: &Scope, named: Option<i64>, id: &str) -> Result<KeyView, Fault> {
        let id = known_id(KEY, id)?;
        let tenant_id = match (named, scope.operator()) {
            (None, Some(_)) => None,
            (named, _) => target_tenant(scope, named)?,
        };
        let after = json!({"id": id, "revoked_at": UnixSeconds::from_ms(self.now_ms)});
        // The store finds out the key's tenant.
        let audit = self.change(tenant_id.unwrap_or(INSTALLATION), REVOKE, id).after(snapshot(&after));
        let revoked = self.store.revoke_key(process(), tenant_id, id, self.now_ms, audit).await?;
        Ok(revoked.ok_or_else(|| not_found(KEY, id))?.into())
    }
}

/// The store is called as the process: the service has checked which tenant's keys the caller reaches.
fn process() -> Operator {
    Operator::of_this_process()
}

/// Whether a text can name a user: visible characters, not too many, and not the name of a key's own user.
pub fn is_user(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(KEY_OWNER)
        && text.chars().count() <= LONGEST_USER
        && !text.chars().any(|character| character.is_control() || character.is_whitespace())
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
        if user.as_ref().is_some_and(|user| !is_user(&user.0)) {
            return Err(wrong("user", "must have 1 to 256 visible characters and not begin with `key:`"));
        }
        let expires_at_ms = match expires_at {
            None => None,
            Some(Positive(seconds)) => match seconds.unsigned_abs().checked_mul(1000).filter(|at| *at > now_ms) {
                None => return Err(wrong("expires_at", "must be a time to come, in seconds since 1970")),
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
