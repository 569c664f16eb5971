//! The tool bank, and what is asked about the calls of its tools.

use std::{collections::BTreeSet, time::Duration};

use amalgam_core::{
    Admin, Decider, Policy, Scope,
    store::{Approval, BankOf, BankStore, BankTool, Decided, Decision, Stored, ToolStatistics},
};
use amalgam_protocol::Json;
use rusqlite::Row;

use super::{
    Sqlite,
    approvals::{self, Asker},
    failure::Failure,
    query::{Database, Tenant, int, most, optional_text, optional_uint, text, uint},
    sql,
};
use crate::{bank, rows};

impl BankStore for Sqlite {
    fn tools_for<'a>(&'a self, scope: &'a Scope, names: Option<&'a [String]>) -> Stored<'a, Vec<BankTool>> {
        let tenant = Tenant::of_caller(scope);
        let keys: Option<BTreeSet<String>> = names.map(|names| names.iter().map(|name| bank::key(name)).collect());
        self.read(move |transaction| {
            let mut tools = Vec::new();
            for tenant in [Tenant::COMMON, tenant] {
                match &keys {
                    None => tools.extend(page(transaction.database, tenant, "", -1)?),
                    Some(keys) => {
                        for key in keys {
                            tools.extend(tool(transaction.database, tenant, key)?);
                        }
                    }
                }
            }
            Ok(bank::offered(tools))
        })
    }

    fn tools<'a>(&'a self, of: BankOf<'a>, after: Option<&'a str>, limit: usize) -> Stored<'a, Vec<BankTool>> {
        let (tenant, after) = (Tenant::of_bank(of), after.map(bank::key).unwrap_or_default());
        self.read(move |transaction| page(transaction.database, tenant, &after, most(limit)))
    }

    fn tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, Option<BankTool>> {
        let (tenant, key) = (Tenant::of_bank(of), bank::key(name));
        self.read(move |transaction| tool(transaction.database, tenant, &key))
    }

    fn put_tool<'a>(&'a self, of: BankOf<'a>, tool: BankTool) -> Stored<'a, bool> {
        let tenant = Tenant::of_bank(of);
        self.change(move |transaction| put(transaction.database, tenant, &tool))
    }

    fn reseal_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str, before: &'a Json, after: &'a Json) -> Stored<'a, bool> {
        let (tenant, key, before, after) = (Tenant::of_bank(of), bank::key(name), before.clone(), after.clone());
        self.change(move |transaction| {
            let (before, after) = (before.raw().text(), after.raw().text());
            Ok(transaction.database.tenant(tenant, sql::RESEAL_TOOL, &[&key, &before, &after])?.run()? == 1)
        })
    }

    fn delete_tool<'a>(&'a self, of: BankOf<'a>, name: &'a str) -> Stored<'a, bool> {
        let (tenant, key) = (Tenant::of_bank(of), bank::key(name));
        self.change(move |transaction| Ok(transaction.database.tenant(tenant, sql::FORGET_TOOL, &[&key])?.run()? == 1))
    }

    fn tool_statistics<'a>(
        &'a self,
        admin: Admin<'a>,
        label: &'a str,
        name: &'a str,
        since_ms: u64,
    ) -> Stored<'a, ToolStatistics> {
        let (tenant, label, name) = (Tenant::of(admin), label.to_owned(), name.to_owned());
        self.read(move |transaction| {
            let found = transaction
                .database
                .tenant(tenant, sql::STATISTICS, &[&label, &name, &int(since_ms)?])?
                .first(statistics)?;
            Ok(found.unwrap_or_default())
        })
    }

    fn approval<'a>(&'a self, scope: &'a Scope, id: &'a str) -> Stored<'a, Option<Approval>> {
        let (asker, id) = (Asker::Caller(scope.clone()), id.to_owned());
        self.read(move |transaction| approvals::get(transaction.database, &asker, &id))
    }

    fn approval_of_tenant<'a>(&'a self, admin: Admin<'a>, id: &'a str) -> Stored<'a, Option<Approval>> {
        let (asker, id) = (Asker::Admin(Tenant::of(admin)), id.to_owned());
        self.read(move |transaction| approvals::get(transaction.database, &asker, &id))
    }

    fn approvals<'a>(
        &'a self,
        admin: Admin<'a>,
        pending: bool,
        after: Option<&'a str>,
        limit: usize,
        now_ms: u64,
    ) -> Stored<'a, Vec<Approval>> {
        let (tenant, after) = (Tenant::of(admin), after.map(str::to_owned));
        let pending_at_ms = pending.then_some(now_ms);
        self.read(move |transaction| {
            approvals::list(transaction.database, tenant, pending_at_ms, after.as_deref(), limit)
        })
    }

    fn decide<'a>(&'a self, scope: &'a Scope, id: &'a str, decision: Decision) -> Stored<'a, Option<Decided>> {
        let (asker, id) = (Asker::Caller(scope.clone()), id.to_owned());
        self.change(move |transaction| approvals::decide(transaction.database, &asker, &id, &decision))
    }

    fn decide_as_admin<'a>(&'a self, admin: Admin<'a>, id: &'a str, decision: Decision) -> Stored<'a, Option<Decided>> {
        let (asker, id) = (Asker::Admin(Tenant::of(admin)), id.to_owned());
        self.change(move |transaction| approvals::decide(transaction.database, &asker, &id, &decision))
    }

    fn use_approval<'a>(&'a self, scope: &'a Scope, id: &'a str, response_id: &'a str) -> Stored<'a, bool> {
        let (scope, id, response_id) = (scope.clone(), id.to_owned(), response_id.to_owned());
        self.change(move |transaction| {
            let used = transaction.database.user(&scope, sql::USE_APPROVAL, &[&id, &response_id])?.run()?;
            Ok(used == 1)
        })
    }
}

fn page(database: Database<'_>, tenant: Tenant, after: &str, limit: i64) -> Result<Vec<BankTool>, Failure> {
    database.tenant(tenant, sql::TOOLS, &[&after, &limit])?.all(bank_tool)
}

fn tool(database: Database<'_>, tenant: Tenant, key: &str) -> Result<Option<BankTool>, Failure> {
    database.tenant(tenant, sql::TOOL, &[&key])?.first(bank_tool)
}

fn put(database: Database<'_>, tenant: Tenant, tool: &BankTool) -> Result<bool, Failure> {
    let key = bank::key(&tool.name);
    let is_new = !database.tenant(tenant, sql::TOOL, &[&key])?.exists()?;
    let policy = &tool.policy;
    database
        .tenant(
            tenant,
            sql::PUT_TOOL,
            &[
                &key,
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
                &int(tool.created_at_ms)?,
                &int(tool.updated_at_ms)?,
            ],
        )?
        .run()?;
    Ok(is_new)
}

fn bank_tool(row: &Row<'_>) -> Result<BankTool, Failure> {
    Ok(BankTool {
        common: row.get::<_, i64>(0)? == bank::COMMON,
        name: row.get(1)?,
        kind: bank::kind(text(row, 2)?)?,
        description: row.get(3)?,
        parameters: rows::json(text(row, 4)?),
        settings: rows::json(text(row, 5)?),
        guidance: row.get(6)?,
        policy: Policy {
            timeout: Duration::from_millis(uint(row, 7)?),
            idempotent: row.get(8)?,
            on_error: bank::on_error(text(row, 9)?)?,
            after_call_instruction: row.get(10)?,
            requires_approval: optional_text(row, 11)?.map(bank::decider).transpose()?,
        },
        active: row.get(12)?,
        created_at_ms: uint(row, 13)?,
        updated_at_ms: uint(row, 14)?,
    })
}

fn statistics(row: &Row<'_>) -> Result<ToolStatistics, Failure> {
    Ok(ToolStatistics {
        calls: uint(row, 0)?,
        failed: uint(row, 1)?,
        unknown: uint(row, 2)?,
        duration_ms: uint(row, 3)?,
        longest_ms: uint(row, 4)?,
        last_called_at_ms: optional_uint(row, 5)?,
    })
}
