//! The tool bank, approvals, and statistics of tool calls.

use std::{collections::BTreeMap, time::Duration};

use amalgam_core::{
    Admin, AuditDraft, Decider, OnError, Policy, Scope, StoreError,
    store::{
        Approval, BankKind, BankOf, BankStore, BankTool, Decision, DecisionOutcome, Stored, ToolOutcome, ToolRun,
        ToolStatistics,
    },
};
use amalgam_protocol::Json;

use crate::{
    SqlStore,
    approvals::{self, ApprovalViewer},
    audit,
    engine::{Repeat, SqlConnection, SqlEngine, TenantKey},
    rows::unknown,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    TenantSql ALL_OFFERED = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id IN ($1, $2)";
    TenantSql TOOLS = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id = $1 AND key > $2 ORDER BY key LIMIT $3";
    TenantSql TOOL = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id = $1 AND key = $2";
    TenantSql ADD_TOOL = "
        INSERT INTO agent_tools (tenant_id, key, name, kind, description, parameters, settings, guidance, timeout_ms,
            idempotent, on_error, after_call_instruction, requires_approval, active, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        ON CONFLICT (tenant_id, key) DO NOTHING";
    TenantSql CHANGE_TOOL = "
        UPDATE agent_tools SET name = $3, kind = $4, description = $5, parameters = $6, settings = $7, guidance = $8,
            timeout_ms = $9, idempotent = $10, on_error = $11, after_call_instruction = $12, requires_approval = $13,
            active = $14, created_at = COALESCE(created_at, $15), updated_at = $16
        WHERE tenant_id = $1 AND key = $2";
    TenantSql RESEAL_TOOL = "UPDATE agent_tools SET settings = $4 WHERE tenant_id = $1 AND key = $2 AND settings = $3";
    TenantSql FORGET_TOOL = "DELETE FROM agent_tools WHERE tenant_id = $1 AND key = $2";
    TenantSql STATISTICS = "
        SELECT count(*), count(error), count(*) - count(duration_ms), CAST(COALESCE(sum(duration_ms), 0) AS bigint),
            COALESCE(max(duration_ms), 0), max(started_at)
        FROM tool_runs WHERE tenant_id = $1 AND label = $2 AND name = $3 AND started_at >= $4";
}

impl<E: SqlEngine> BankStore for SqlStore<E> {
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        let keys: Option<Vec<String>> = names.map(|names| names.iter().map(|name| key(name)).collect());
        self.engine.read((TenantKey::of_caller(scope), keys), |connection, (tenant, keys)| {
            Box::pin(async move {
                let query = match keys {
                    None => connection.tenant(*tenant, ALL_OFFERED, values![COMMON]),
                    Some(keys) => {
                        connection.tenant(*tenant, connection.sql().offered_tools, values![COMMON, texts(keys)])
                    }
                };
                Ok(offered(query.all(tool).await?))
            })
        })
    }

    fn tools<'a>(&'a self, of: BankOf<'a>, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<BankTool>> {
        let arguments = (TenantKey::of_bank(of), after.map(key).unwrap_or_default(), limit);
        self.engine.read(arguments, |connection, (tenant, after, limit)| {
            Box::pin(connection.tenant(*tenant, TOOLS, values![after, *limit]).all(tool))
        })
    }

    fn tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, Option<BankTool>> {
        self.engine.read((TenantKey::of_bank(of), key(name)), |connection, (tenant, key)| {
            Box::pin(connection.tenant(*tenant, TOOL, values![key]).first(tool))
        })
    }

    fn put_tool<'a>(&'a self, of: BankOf<'a>, tool: BankTool, audit: AuditDraft) -> Stored<'a, bool> {
        // Not repeatable: a second run would report the tool as not new.
        let arguments = (TenantKey::of_bank(of), tool, audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, tool, audit)| {
            Box::pin(async move {
                let new = put(connection, *tenant, tool).await?;
                audit::append(connection, audit).await?;
                Ok(new)
            })
        })
    }

    fn reseal_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, before: &'a Json, after: &'a Json) -> Stored<'a, bool> {
        let arguments = (TenantKey::of_bank(of), key(name), before.clone(), after.clone());
        self.engine.change(Repeat::Safe, arguments, |connection, (tenant, key, before, after)| {
            Box::pin(async move {
                let query = connection.tenant(*tenant, RESEAL_TOOL, values![key, before, after]);
                Ok(query.run().await? == 1)
            })
        })
    }

    fn delete_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, audit: AuditDraft) -> Stored<'a, bool> {
        let arguments = (TenantKey::of_bank(of), key(name), audit);
        self.engine.transaction(Repeat::Never, arguments, |connection, (tenant, key, audit)| {
            Box::pin(async move {
                let deleted = connection.tenant(*tenant, FORGET_TOOL, values![key]).run().await? == 1;
                audit::append_if(connection, deleted, audit).await
            })
        })
    }

    fn tool_statistics<'a>(
        &'a self,
        admin: Admin<'a>,
        label: &'a str,
        name: &'a str,
        since_ms: u64,
    ) -> Stored<'a, ToolStatistics> {
        let arguments = (TenantKey::of_admin(admin), label.to_owned(), name.to_owned(), since_ms);
        self.engine.read(arguments, |connection, (tenant, label, name, since_ms)| {
            Box::pin(async move {
                let query = connection.tenant(*tenant, STATISTICS, values![label, name, *since_ms]);
                Ok(query.first(statistics).await?.unwrap_or_default())
            })
        })
    }

    fn approval<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Approval>> {
        self.approval_for(ApprovalViewer::Caller(scope.clone()), id)
    }

    fn approval_of_tenant<'a>(&'a self, admin: Admin<'a>, id: &'a str) -> Stored<'a, Option<Approval>> {
        self.approval_for(ApprovalViewer::Admin(TenantKey::of_admin(admin)), id)
    }

    fn approvals<'a>(
        &'a self,
        admin: Admin<'a>,
        pending: bool,
        after: Option<&'a str>,
        limit: usize,
        now_ms: u64,
    ) -> Stored<'a, Vec<Approval>> {
        let (tenant, pending_at_ms) = (TenantKey::of_admin(admin), pending.then_some(now_ms));
        let arguments = (tenant, pending_at_ms, after.map(str::to_owned), limit);
        self.engine.read(arguments, |connection, (tenant, pending_at_ms, after, limit)| {
            Box::pin(approvals::list(connection, *tenant, *pending_at_ms, after.as_deref(), *limit))
        })
    }

    fn decide<'a>(&'a self, scope: &'a Scope, id: &'a str, decision: Decision) -> Stored<'a, Option<DecisionOutcome>> {
        self.decide_as(ApprovalViewer::Caller(scope.clone()), id, decision, None)
    }

    fn decide_as_admin<'a>(
        &'a self,
        admin: Admin<'a>,
        id: &'a str,
        decision: Decision,
        audit: AuditDraft,
    ) -> Stored<'a, Option<DecisionOutcome>> {
        self.decide_as(ApprovalViewer::Admin(TenantKey::of_admin(admin)), id, decision, Some(audit))
    }

    fn use_approval<'a>(&'a self, scope: &'a Scope, id: &'a str, response_id: &'a str) -> Stored<'a, bool> {
        let arguments = (scope.clone(), id.to_owned(), response_id.to_owned());
        self.engine.change(Repeat::Safe, arguments, |connection, (scope, id, response_id)| {
            Box::pin(async move {
                let query = connection.user(scope, approvals::USE_APPROVAL, values![id, response_id]);
                Ok(query.run().await? == 1)
            })
        })
    }
}

impl<E: SqlEngine> SqlStore<E> {
    fn approval_for<'a>(&'a self, asker: ApprovalViewer, id: &str) -> Stored<'a, Option<Approval>> {
        self.engine.read((asker, id.to_owned()), |connection, (asker, id)| Box::pin(asker.find(connection, id)))
    }

    fn decide_as<'a>(
        &'a self,
        asker: ApprovalViewer,
        id: &str,
        decision: Decision,
        audit: Option<AuditDraft>,
    ) -> Stored<'a, Option<DecisionOutcome>> {
        // Repeatable: a second run finds the same decision.
        let arguments = (asker, id.to_owned(), decision, audit);
        self.engine.transaction(Repeat::Safe, arguments, |connection, (asker, id, decision, audit)| {
            Box::pin(approvals::decide(connection, asker, id, decision, audit.as_ref()))
        })
    }
}

/// The number of attempts to write a tool that other requests create and delete meanwhile.
const TRIES: usize = 8;

/// Adds or replaces a tool. Returns whether it is new.
async fn put<C: SqlConnection>(connection: &C, tenant: TenantKey, tool: &BankTool) -> Result<bool, C::Failure> {
    let policy = &tool.policy;
    let values = values![
        key(&tool.name),
        &tool.name,
        tool.kind.name(),
        &tool.description,
        &tool.parameters,
        &tool.settings,
        &tool.guidance,
        timeout_ms(policy.timeout),
        policy.idempotent,
        policy.on_error.name(),
        &policy.after_call_instruction,
        policy.requires_approval.map(Decider::name),
        tool.active,
        tool.created_at_ms,
        tool.updated_at_ms,
    ];
    for _ in 0..TRIES {
        if connection.tenant(tenant, ADD_TOOL, values.clone()).run().await? == 1 {
            return Ok(true);
        }
        if connection.tenant(tenant, CHANGE_TOOL, values.clone()).run().await? == 1 {
            return Ok(false);
        }
    }
    Err(connection.contended("other requests create and delete the tool all the time"))
}

fn tool(row: &dyn SqlRow) -> Result<BankTool, StoreError> {
    Ok(BankTool {
        common: row.get::<i64>(0)? == COMMON,
        name: row.get(1)?,
        kind: kind(row.get(2)?)?,
        description: row.get(3)?,
        parameters: row.get(4)?,
        settings: row.get(5)?,
        guidance: row.optional(6)?,
        policy: Policy {
            timeout: Duration::from_millis(row.get(7)?),
            idempotent: row.get(8)?,
            on_error: on_error(row.get(9)?)?,
            after_call_instruction: row.optional(10)?,
            requires_approval: row.optional(11)?.map(decider).transpose()?,
        },
        active: row.get(12)?,
        created_at_ms: row.get(13)?,
        updated_at_ms: row.get(14)?,
    })
}

fn statistics(row: &dyn SqlRow) -> Result<ToolStatistics, StoreError> {
    Ok(ToolStatistics {
        calls: row.get(0)?,
        failed: row.get(1)?,
        unknown: row.get(2)?,
        duration_ms: row.get(3)?,
        longest_ms: row.get(4)?,
        last_called_at_ms: row.optional(5)?,
    })
}

/// A call of a tool from the columns number, item_id, call_id, label, name, arguments, idempotent, started_at, output,
/// error, detail, duration_ms.
pub fn tool_run(row: &dyn SqlRow) -> Result<ToolRun, StoreError> {
    let outcome = row.optional(8)?.map(|output| {
        let duration_ms = row.optional(11)?.unwrap_or_default();
        Ok::<_, StoreError>(ToolOutcome { output, error: row.optional(9)?, detail: row.optional(10)?, duration_ms })
    });
    Ok(ToolRun {
        number: row.get(0)?,
        item_id: row.get(1)?,
        call_id: row.get(2)?,
        label: row.get(3)?,
        name: row.get(4)?,
        arguments: row.get(5)?,
        idempotent: row.get(6)?,
        started_at_ms: row.get(7)?,
        outcome: outcome.transpose()?,
    })
}

fn texts(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// The tenant number of the installation's own tools. No tenant has it.
pub const COMMON: i64 = 0;

/// The key of a tool's name: in one bank no two names differ only in case. O-33
pub(crate) fn key(name: &str) -> String {
    name.to_lowercase()
}

/// The kind of a tool.
fn kind(name: &str) -> Result<BankKind, StoreError> {
    BankKind::named(name).ok_or_else(|| unknown("kind of tool", name))
}

/// The effect of a tool's failure.
fn on_error(name: &str) -> Result<OnError, StoreError> {
    OnError::named(name).ok_or_else(|| unknown("way to treat a failure", name))
}

/// The role that may approve a call.
pub(crate) fn decider(name: &str) -> Result<Decider, StoreError> {
    Decider::named(name).ok_or_else(|| unknown("one who decides", name))
}

/// A time-out as it is stored.
fn timeout_ms(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)
}

/// The tools that a tenant's callers may use, by name, from its own tools and the common ones.
fn offered(tools: Vec<BankTool>) -> Vec<BankTool> {
    let (common, own): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| tool.common);
    // A tenant's own tool replaces the common one before inactive tools are removed: an inactive one hides the common
    // one.
    let by_key: BTreeMap<String, BankTool> =
        common.into_iter().chain(own).map(|tool| (key(&tool.name), tool)).collect();
    by_key.into_values().filter(|tool| tool.active).collect()
}
