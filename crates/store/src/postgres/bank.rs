//! The tool bank, and what is asked about the calls of its tools.

use std::time::Duration;

use amalgam_core::{
    Admin, Decider, Policy, Scope,
    store::{Approval, BankOf, BankStore, BankTool, Decided, Decision, Stored, ToolStatistics},
};
use amalgam_protocol::Json;
use tokio_postgres::Row;

use super::{
    Postgres,
    approvals::{self, Asker},
    connection::{Failure, Param},
    job::{signed, unsigned},
    pool::Lease,
    sql::statements,
};
use crate::{bank, rows};

statements! {
    /// What a tenant has, and the installation: every caller may use it.
    Admin ALL_OFFERED = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id IN ($1, $2)";
    Admin OFFERED = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id IN ($1, $2) AND key = ANY ($3)";
    Admin TOOLS = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id = $1 AND key > $2 ORDER BY key LIMIT $3";
    Admin TOOL = "
        SELECT tenant_id, name, kind, description, parameters, settings, guidance, timeout_ms, idempotent, on_error,
            after_call_instruction, requires_approval, active, created_at, updated_at
        FROM agent_tools WHERE tenant_id = $1 AND key = $2";
    /// A row that no update has touched is new.
    Admin PUT_TOOL = "
        INSERT INTO agent_tools (tenant_id, key, name, kind, description, parameters, settings, guidance, timeout_ms,
            idempotent, on_error, after_call_instruction, requires_approval, active, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        ON CONFLICT (tenant_id, key) DO UPDATE SET name = excluded.name, kind = excluded.kind,
            description = excluded.description, parameters = excluded.parameters, settings = excluded.settings,
            guidance = excluded.guidance, timeout_ms = excluded.timeout_ms, idempotent = excluded.idempotent,
            on_error = excluded.on_error, after_call_instruction = excluded.after_call_instruction,
            requires_approval = excluded.requires_approval, active = excluded.active, updated_at = excluded.updated_at
        RETURNING xmax = 0";
    Admin RESEAL_TOOL = "UPDATE agent_tools SET settings = $4 WHERE tenant_id = $1 AND key = $2 AND settings = $3";
    Admin FORGET_TOOL = "DELETE FROM agent_tools WHERE tenant_id = $1 AND key = $2";
    Admin STATISTICS = "
        SELECT count(*), count(error), count(*) - count(duration_ms), COALESCE(sum(duration_ms), 0)::bigint,
            COALESCE(max(duration_ms), 0), max(started_at)
        FROM tool_runs WHERE tenant_id = $1 AND label = $2 AND name = $3 AND started_at >= $4";
}

impl BankStore for Postgres {
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        Box::pin(async move {
            let keys: Option<Vec<String>> = names.map(|names| names.iter().map(|name| bank::key(name)).collect());
            let keys = &keys;
            let found = self.pool.repeatably(move |connection: Lease| async move {
                let (tenant_id, common) = (scope.tenant_id(), bank::COMMON);
                let found = match keys {
                    None => connection.rows(&ALL_OFFERED, &[&tenant_id, &common]).await?,
                    Some(keys) => connection.rows(&OFFERED, &[&tenant_id, &common, keys]).await?,
                };
                found.iter().map(tool_from).collect()
            });
            found.await.map(bank::offered)
        })
    }

    fn tools<'a>(&'a self, of: BankOf<'a>, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<BankTool>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let (after, limit) = (after.map(bank::key).unwrap_or_default(), i64::try_from(limit).unwrap_or(i64::MAX));
            let found = connection.rows(&TOOLS, &[&number(of), &after, &limit]).await?;
            found.iter().map(tool_from).collect()
        }))
    }

    fn tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, Option<BankTool>> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let row = connection.row(&TOOL, &[&number(of), &bank::key(name)]).await?;
            row.as_ref().map(tool_from).transpose()
        }))
    }

    fn put_tool<'a>(&'a self, of: BankOf<'a>, tool: BankTool) -> Stored<'a, bool> {
        Box::pin(async move {
            let tool = &tool;
            // Once: a second time it would not be new any more.
            let put = self.pool.once(move |connection: Lease| async move {
                let policy = &tool.policy;
                let params: [Param<'_>; 16] = [
                    &number(of),
                    &bank::key(&tool.name),
                    &tool.name,
                    &tool.kind.name(),
                    &tool.description,
                    &tool.parameters.raw().text(),
                    &tool.settings.raw().text(),
                    &tool.guidance,
                    &bank::timeout_ms(policy.timeout),
                    &policy.idempotent,
                    &policy.on_error.name(),
                    &policy.after_call_instruction,
                    &policy.requires_approval.map(Decider::name),
                    &tool.active,
                    &signed(tool.created_at_ms),
                    &signed(tool.updated_at_ms),
                ];
                let row = connection.row(&PUT_TOOL, &params).await?;
                Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
            });
            put.await
        })
    }

    fn reseal_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, before: &'a Json, after: &'a Json) -> Stored<'a, bool> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let params: [Param<'_>; 4] = [&number(of), &bank::key(name), &before.raw().text(), &after.raw().text()];
            Ok(connection.execute(&RESEAL_TOOL, &params).await? == 1)
        }))
    }

    fn delete_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, bool> {
        Box::pin(self.pool.once(move |connection: Lease| async move {
            Ok(connection.execute(&FORGET_TOOL, &[&number(of), &bank::key(name)]).await? == 1)
        }))
    }

    fn tool_statistics<'a>(
        &'a self,
        admin: Admin<'a>,
        label: &'a str,
        name: &'a str,
        since_ms: u64,
    ) -> Stored<'a, ToolStatistics> {
        Box::pin(self.pool.repeatably(move |connection: Lease| async move {
            let params: [Param<'_>; 4] = [&admin.tenant_id(), &label, &name, &signed(since_ms)];
            let row = connection.row(&STATISTICS, &params).await?;
            row.as_ref().map(statistics_from).transpose().map(Option::unwrap_or_default)
        }))
    }

    fn approval<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Approval>> {
        Box::pin(approvals::get(&self.pool, Asker::Caller(scope), id))
    }

    fn approval_of_tenant<'a>(&'a self, admin: Admin<'a>, id: &'a str) -> Stored<'a, Option<Approval>> {
        Box::pin(approvals::get(&self.pool, Asker::Admin(admin), id))
    }

    fn approvals<'a>(
        &'a self,
        admin: Admin<'a>,
        pending: bool,
        after: Option<&'a str>,
        limit: usize,
        now_ms: u64,
    ) -> Stored<'a, Vec<Approval>> {
        Box::pin(approvals::list(&self.pool, admin, pending.then_some(now_ms), after, limit))
    }

    fn decide<'a>(&'a self, scope: &'a Scope, id: &'a str, decision: Decision) -> Stored<'a, Option<Decided>> {
        Box::pin(async move { approvals::decide(&self.pool, Asker::Caller(scope), id, &decision).await })
    }

    fn decide_as_admin<'a>(&'a self, admin: Admin<'a>, id: &'a str, decision: Decision) -> Stored<'a, Option<Decided>> {
        Box::pin(async move { approvals::decide(&self.pool, Asker::Admin(admin), id, &decision).await })
    }

    fn use_approval<'a>(&'a self, scope: &'a Scope, id: &'a str, response_id: &'a str) -> Stored<'a, bool> {
        Box::pin(approvals::use_once(&self.pool, scope, id, response_id))
    }
}

/// The number that a bank is kept under.
fn number(of: BankOf<'_>) -> i64 {
    match of {
        BankOf::Tenant(admin) => admin.tenant_id(),
        BankOf::Common(_) => bank::COMMON,
    }
}

fn tool_from(row: &Row) -> Result<BankTool, Failure> {
    Ok(BankTool {
        common: row.try_get::<_, i64>(0)? == bank::COMMON,
        name: row.try_get(1)?,
        kind: bank::kind(row.try_get(2)?)?,
        description: row.try_get(3)?,
        parameters: rows::json(row.try_get(4)?),
        settings: rows::json(row.try_get(5)?),
        guidance: row.try_get(6)?,
        policy: Policy {
            timeout: Duration::from_millis(unsigned(row.try_get(7)?)),
            idempotent: row.try_get(8)?,
            on_error: bank::on_error(row.try_get(9)?)?,
            after_call_instruction: row.try_get(10)?,
            requires_approval: row.try_get::<_, Option<&str>>(11)?.map(bank::decider).transpose()?,
        },
        active: row.try_get(12)?,
        created_at_ms: unsigned(row.try_get(13)?),
        updated_at_ms: unsigned(row.try_get(14)?),
    })
}

fn statistics_from(row: &Row) -> Result<ToolStatistics, Failure> {
    let count = |at: usize| row.try_get::<_, i64>(at).map(unsigned);
    Ok(ToolStatistics {
        calls: count(0)?,
        failed: count(1)?,
        unknown: count(2)?,
        duration_ms: count(3)?,
        longest_ms: count(4)?,
        last_called_at_ms: row.try_get::<_, Option<i64>>(5)?.map(unsigned),
    })
}
