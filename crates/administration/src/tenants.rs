//! Tenants, for operators.

use amalgam_core::{
    AuditAction, AuditDraft, Fault, FaultKind, INSTALLATION, Operator, StoreError, TenantState,
    store::{Page, Reset, TenantChange, TenantRecord},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::warn;

use super::{
    Administration,
    access::{TENANT, no_tenant, number_id},
    audit::snapshot,
    fields::{Line, Positive, UnixSeconds, Word},
    keys::SEALED_MEMORIES,
    list::{List, number_after},
    request,
};

const CREATE: AuditAction = AuditAction::new("tenant.create");
const CHANGE: AuditAction = AuditAction::new("tenant.change");
const RESET: AuditAction = AuditAction::new("store.reset");

type TenantName = Line<200>;

/// A tenant: an isolated customer of the installation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenant")]
#[expect(missing_docs, reason = "a doc comment would be a description in the OpenAPI document")]
pub struct TenantView {
    #[schemars(range(min = 1))]
    pub id: i64,
    #[schemars(extend("const" = "tenant"))]
    object: &'static str,
    /// A display name.
    pub name: String,
    /// Whether the tenant's responses are stored.
    pub state: Word<TenantState>,
    /// Whether the tenant's assistant is enabled.
    pub ai_agent_enabled: bool,
    pub created_at: UnixSeconds,
}

/// A tenant to create. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTenant {
    /// A display name.
    name: TenantName,
    /// The tenant's number; the next free one by default.
    id: Option<Positive>,
    /// Whether the tenant's responses are stored.
    state: Option<Word<TenantState>>,
    #[schemars(extend("default" = true))]
    ai_agent_enabled: Option<bool>,
}

/// The fields to change. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeTenant {
    /// A display name.
    name: Option<TenantName>,
    /// Whether the tenant's responses are stored.
    state: Option<Word<TenantState>>,
    ai_agent_enabled: Option<bool>,
}

impl From<TenantRecord> for TenantView {
    fn from(tenant: TenantRecord) -> Self {
        Self {
            id: tenant.id,
            object: "tenant",
            name: tenant.name,
            state: Word(tenant.state),
            ai_agent_enabled: tenant.ai_agent_enabled,
            created_at: UnixSeconds::from_ms(tenant.created_at_ms),
        }
    }
}

/// Whether a tenant may have this name.
pub fn is_tenant_name(name: &str) -> bool {
    TenantName::allows(name)
}

impl Administration<'_> {
    /// Tenants ordered by number.
    pub async fn tenants(&self, operator: Operator, page: &Page) -> Result<List<TenantView, i64>, Fault> {
        let after = number_after(page, "it is the number of a tenant")?;
        let tenants = self.store.tenants(operator, after, page.limit + 1).await?;
        Ok(List::new(tenants.into_iter().map(TenantView::from).collect(), page.limit, |tenant| tenant.id))
    }

    /// One tenant.
    pub async fn tenant(&self, operator: Operator, id: &str) -> Result<TenantView, Fault> {
        let id = number_id(TENANT, id)?;
        Ok(self.store.tenant(operator, id).await?.ok_or_else(|| no_tenant(id))?.into())
    }

    /// Creates the tenant that `body` describes.
    pub async fn create_tenant_from(&self, operator: Operator, body: &Bytes) -> Result<TenantView, Fault> {
        let CreateTenant { name, id, state, ai_agent_enabled } = request::parse(body)?;
        let state = state.map(|state| state.0).unwrap_or_default();
        let tenant = self.create_tenant(operator, id.map(|id| id.0), &name.0, state).await?;
        match ai_agent_enabled.filter(|enabled| *enabled != tenant.ai_agent_enabled) {
            None => Ok(tenant),
            enabled => {
                let change = TenantChange { ai_agent_enabled: enabled, ..TenantChange::default() };
                self.change_tenant(operator, tenant.id, change).await
            }
        }
    }

    /// Creates a tenant, under the next free number if none is given.
    pub async fn create_tenant(
        &self,
        operator: Operator,
        id: Option<i64>,
        name: &str,
        state: TenantState,
    ) -> Result<TenantView, Fault> {
        let created =
            self.store.create_tenant(operator, id, name, state, self.now_ms, self.creation(id, name, state)).await?;
        let taken = || Fault::new(FaultKind::Conflict, "There is a tenant with this number already.").param("id");
        Ok(created.ok_or_else(taken)?.into())
    }

    /// Changes the fields that `body` names.
    pub async fn change_tenant_from(&self, operator: Operator, id: &str, body: &Bytes) -> Result<TenantView, Fault> {
        let ChangeTenant { name, state, ai_agent_enabled } = request::parse(body)?;
        let (name, state) = (name.map(|name| name.0), state.map(|state| state.0));
        self.change_tenant(operator, number_id(TENANT, id)?, TenantChange { name, state, ai_agent_enabled }).await
    }

    /// Changes a tenant. Running servers apply the change within seconds.
    pub async fn change_tenant(&self, operator: Operator, id: i64, change: TenantChange) -> Result<TenantView, Fault> {
        let before = self.store.tenant(operator, id).await?.ok_or_else(|| no_tenant(id))?;
        let audit = self.tenant_change(&before, &change);
        let changed = self.store.change_tenant(operator, id, change, audit).await?;
        Ok(changed.ok_or_else(|| no_tenant(id))?.into())
    }

    /// A tenant of the configuration, created or updated, and whether it was created; what the configuration does not say
    /// stays as it is. None if it does not exist and cannot be created now.
    pub async fn configure_tenant(
        &self,
        tenant: &ConfiguredTenant<'_>,
    ) -> Result<Option<(TenantRecord, bool)>, StoreError> {
        let ConfiguredTenant { id, name, state } = *tenant;
        let found = self.store.tenant(process(), id).await?;
        if let Some(record) = &found
            && record.name == name
            && state.is_none_or(|state| state == record.state)
        {
            return Ok(found.map(|record| (record, false)));
        }
        match self.write_tenant(tenant).await {
            Ok(written) => Ok(Some(written)),
            // A full disk does not prevent the server from starting. The configuration applies to this process.
            Err(StoreError::Unavailable(why)) => {
                match &found {
                    Some(_) => warn!("tenant {id} cannot be brought in line with the configuration: {why}"),
                    None => warn!("tenant {id} cannot be made before the next start, and its keys are refused: {why}"),
                }
                let as_configured = |record: TenantRecord| TenantRecord {
                    name: name.to_owned(),
                    state: state.unwrap_or(record.state),
                    ..record
                };
                Ok(found.map(|record| (as_configured(record), false)))
            }
            Err(error) => Err(error),
        }
    }

    async fn write_tenant(&self, tenant: &ConfiguredTenant<'_>) -> Result<(TenantRecord, bool), StoreError> {
        let ConfiguredTenant { id, name, state } = *tenant;
        let initial = state.unwrap_or_default();
        let audit = self.creation(Some(id), name, initial);
        let created = self.store.create_tenant(process(), Some(id), name, initial, self.now_ms, audit);
        if let Some(record) = created.await? {
            return Ok((record, true));
        }
        let change = TenantChange { name: Some(name.to_owned()), state, ai_agent_enabled: None };
        let before = self.store.tenant(process(), id).await?.ok_or_else(vanished)?;
        let audit = self.tenant_change(&before, &change);
        let changed = self.store.change_tenant(process(), id, change, audit).await?;
        changed.map(|record| (record, false)).ok_or_else(vanished)
    }

    /// The tenant with this number, created under this name if it does not exist, and whether it was created.
    pub async fn first_tenant(&self, id: i64, name: &str) -> Result<(TenantRecord, bool), StoreError> {
        if let Some(record) = self.store.tenant(process(), id).await? {
            return Ok((record, false));
        }
        let audit = self.creation(Some(id), name, TenantState::Stored);
        let created = self.store.create_tenant(process(), Some(id), name, TenantState::Stored, self.now_ms, audit);
        match created.await? {
            Some(record) => Ok((record, true)),
            None => self.store.tenant(process(), id).await?.map(|record| (record, false)).ok_or_else(vanished),
        }
    }

    /// The store adds the number of a tenant that has none.
    fn creation(&self, id: Option<i64>, name: &str, state: TenantState) -> AuditDraft {
        let after = json!({"name": name, "state": state.name(), "ai_agent_enabled": true});
        let number = id.map(|id| id.to_string()).unwrap_or_default();
        self.change(id.unwrap_or(INSTALLATION), CREATE, number).after(Some(after.to_string()))
    }

    fn tenant_change(&self, before: &TenantRecord, change: &TenantChange) -> AuditDraft {
        let after = TenantRecord {
            name: change.name.clone().unwrap_or_else(|| before.name.clone()),
            state: change.state.unwrap_or(before.state),
            ai_agent_enabled: change.ai_agent_enabled.unwrap_or(before.ai_agent_enabled),
            ..*before
        };
        let view = |record: &TenantRecord| snapshot(&TenantView::from(record.clone()));
        self.change(before.id, CHANGE, before.id.to_string()).before(view(before)).after(view(&after))
    }

    /// Deletes stored turns, and with [`Reset::Assistants`] the definitions of assistants. The audit stays.
    pub async fn reset(&self, operator: Operator, what: Reset) -> Result<(), Fault> {
        self.announce_reset(&what).await?;
        Ok(self.store.reset(operator, what).await?)
    }

    async fn announce_reset(&self, what: &Reset) -> Result<(), Fault> {
        let (name, tenants) = match what {
            Reset::Runtime(tenants) => ("runtime", tenants.as_slice()),
            Reset::Assistants(tenants) => ("all", tenants.as_slice()),
            Reset::Everything => ("everything", &[][..]),
        };
        self.announce(INSTALLATION, RESET, name, &json!({"tenants": tenants})).await
    }

    /// Deletes everything in the store, except the audit and the pepper of keys: running servers hold it in memory, and a new
    /// server would create another.
    pub async fn reset_everything(&self, operator: Operator) -> Result<(), Fault> {
        self.announce_reset(&Reset::Everything).await?;
        let mut memories = Vec::new();
        for name in SEALED_MEMORIES {
            memories.extend(self.store.remembered(operator, name).await?.map(|text| (name, text)));
        }
        self.store.reset(operator, Reset::Everything).await?;
        for (name, text) in memories {
            self.store.remember(operator, name, &text, true).await?;
        }
        Ok(())
    }
}

/// A tenant as the configuration describes it.
#[derive(Debug, Clone, Copy)]
pub struct ConfiguredTenant<'a> {
    /// Its number.
    pub id: i64,
    /// A display name.
    pub name: &'a str,
    /// Whether its responses are stored; unchanged if none.
    pub state: Option<TenantState>,
}

/// Tenants of the configuration are written by the process.
fn process() -> Operator {
    Operator::of_this_process()
}

fn vanished() -> StoreError {
    StoreError::Broken("a tenant vanished while it was looked at".to_owned())
}
