//! Tool calls as their turns write them: before each runs, and when it has ended; and the calls that wait for approval.
//! They are written with the step of their turn: `batch.rs`.
use std::collections::BTreeMap;

use amalgam_core::store::{ToolOutcome, ToolRun};
use amalgam_store::{bank::tool_run, sql::Sql, statements};
use tokio_postgres::{Client, Error, Row, Statement};

use super::{
    batch::columns::{Keys, column, text_of},
    connection::{Connection, Param, PostgresFailure},
    job::{Job, signed},
    values::PostgresRow,
};

statements! {
    UserSql PUT_RUNS = "
        INSERT INTO tool_runs (tenant_id, user_id, response_id, number, label, name, item_id, call_id, idempotent,
            started_at, duration_ms, error, detail, arguments, output)
        SELECT new.tenant_id, new.user_id, new.id, new.number, new.label, new.name, new.item_id, new.call_id,
            new.idempotent, new.started_at, new.duration_ms, new.error, new.detail, new.arguments, new.output
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                $8::text[], $9::text[], $10::text[], $11::boolean[], $12::bigint[], $13::bigint[], $14::text[],
                $15::text[], $16::text[], $17::text[])
            AS new (tenant_id, user_id, stem, id, mark, number, label, name, item_id, call_id, idempotent, started_at,
                duration_ms, error, detail, arguments, output)
            JOIN responses ON responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id
                AND responses.user_id = new.user_id AND responses.mark = new.mark
        ON CONFLICT (tenant_id, response_id, number) DO UPDATE SET label = excluded.label, name = excluded.name,
            item_id = excluded.item_id, call_id = excluded.call_id, idempotent = excluded.idempotent,
            started_at = excluded.started_at, duration_ms = excluded.duration_ms, error = excluded.error,
            detail = excluded.detail, arguments = excluded.arguments, output = excluded.output";
    UserSql ADD_APPROVALS = "
        INSERT INTO approvals (tenant_id, user_id, response_id, id, call_id, label, name, arguments, decider, asked_at,
            expires_at, approve, reason, decided_by, decided_at, used_by)
        SELECT new.tenant_id, new.user_id, new.id, new.approval_id, new.call_id, new.label, new.name, new.arguments,
            new.decider, new.asked_at, new.expires_at, new.approve, new.reason, new.decided_by, new.decided_at, new.used_by
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::boolean[], $15::text[],
                $16::text[], $17::bigint[], $18::text[])
            AS new (tenant_id, user_id, stem, id, mark, approval_id, call_id, label, name, arguments, decider, asked_at,
                expires_at, approve, reason, decided_by, decided_at, used_by)
            JOIN responses ON responses.tenant_id = new.tenant_id AND responses.stem = new.stem AND responses.id = new.id
                AND responses.user_id = new.user_id AND responses.mark = new.mark";
    UserSql FORGET_RUNS = "DELETE FROM tool_runs WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3";
    UserSql FORGET_APPROVALS = "DELETE FROM approvals WHERE tenant_id = $1 AND user_id = $2 AND response_id = $3";
    TenantSql RUNS = "
        SELECT number, item_id, call_id, label, name, arguments, idempotent, started_at, output, error, detail, duration_ms
        FROM tool_runs WHERE tenant_id = $1 AND response_id = $2 ORDER BY number";
    /// The tools of these responses that had begun, are not idempotent, and have no recorded end.
    OperatorSql UNKNOWN_RUNS = "
        SELECT run.tenant_id, run.response_id, run.name
        FROM unnest($1::bigint[], $2::text[]) AS dead (tenant_id, response_id)
            JOIN tool_runs run ON run.tenant_id = dead.tenant_id AND run.response_id = dead.response_id
        WHERE run.output IS NULL AND NOT run.idempotent
        ORDER BY run.tenant_id, run.response_id, run.number";
}

/// The statements that these writes need for their tool calls.
pub(super) fn needed(jobs: &[Job]) -> impl Iterator<Item = Sql> {
    let any = |is_so: fn(&Job) -> bool, sql: Sql| jobs.iter().any(is_so).then_some(sql);
    let runs = any(|job| !job.write.tools.is_empty(), PUT_RUNS.into());
    let approvals = any(|job| !job.write.approvals.is_empty(), ADD_APPROVALS.into());
    runs.into_iter().chain(approvals)
}

/// Runs one of these statements for all writes.
pub(super) async fn add(client: &Client, sql: Sql, statement: &Statement, jobs: &[Job]) -> Result<Vec<Row>, Error> {
    match sql == PUT_RUNS.into() {
        true => put_runs(client, statement, jobs).await,
        false => add_approvals(client, statement, jobs).await,
    }
}

async fn put_runs(client: &Client, statement: &Statement, jobs: &[Job]) -> Result<Vec<Row>, Error> {
    let mut runs: Vec<(&Job, &ToolRun)> = Vec::new();
    for job in jobs {
        // One statement changes a row once, so only the last of several records with one number is written.
        let last: BTreeMap<u32, &ToolRun> = job.write.tools.iter().map(|run| (run.number, run)).collect();
        runs.extend(last.into_values().map(|run| (job, run)));
    }
    let keys = Keys::of(runs.iter().map(|(job, _)| *job));
    let outcomes: Vec<Option<&ToolOutcome>> = column(&runs, |(_, run)| run.outcome.as_ref());
    let params: [Param<'_>; 17] = [
        &keys.tenants,
        &keys.users,
        &keys.stems,
        &keys.ids,
        &column(&runs, |(job, _)| job.mark),
        &column(&runs, |(_, run)| i64::from(run.number)),
        &column(&runs, |(_, run)| run.label.as_str()),
        &column(&runs, |(_, run)| run.name.as_str()),
        &column(&runs, |(_, run)| run.item_id.as_str()),
        &column(&runs, |(_, run)| run.call_id.as_str()),
        &column(&runs, |(_, run)| run.idempotent),
        &column(&runs, |(_, run)| signed(run.started_at_ms)),
        &column(&outcomes, |outcome| outcome.map(|outcome| signed(outcome.duration_ms))),
        &column(&outcomes, |outcome| outcome.and_then(|outcome| outcome.error.as_deref())),
        &column(&outcomes, |outcome| outcome.and_then(|outcome| outcome.detail.as_deref())),
        &column(&runs, |(_, run)| run.arguments.as_str()),
        &column(&outcomes, |outcome| outcome.map(|outcome| text_of(&outcome.output))),
    ];
    client.query(statement, &params).await
}

/// The turn determines the owner and the response of an approval.
async fn add_approvals(client: &Client, statement: &Statement, jobs: &[Job]) -> Result<Vec<Row>, Error> {
    let approvals: Vec<_> =
        jobs.iter().flat_map(|job| job.write.approvals.iter().map(move |approval| (job, approval))).collect();
    let keys = Keys::of(approvals.iter().map(|(job, _)| *job));
    let decisions = column(&approvals, |(_, approval)| approval.decision.as_ref());
    let params: [Param<'_>; 18] = [
        &keys.tenants,
        &keys.users,
        &keys.stems,
        &keys.ids,
        &column(&approvals, |(job, _)| job.mark),
        &column(&approvals, |(_, approval)| approval.id.as_str()),
        &column(&approvals, |(_, approval)| approval.call_id.as_str()),
        &column(&approvals, |(_, approval)| approval.label.as_str()),
        &column(&approvals, |(_, approval)| approval.name.as_str()),
        &column(&approvals, |(_, approval)| approval.arguments.as_str()),
        &column(&approvals, |(_, approval)| approval.decider.name()),
        &column(&approvals, |(_, approval)| signed(approval.asked_at_ms)),
        &column(&approvals, |(_, approval)| signed(approval.expires_at_ms)),
        &column(&decisions, |decision| decision.map(|decision| decision.approve)),
        &column(&decisions, |decision| decision.and_then(|decision| decision.reason.as_deref())),
        &column(&decisions, |decision| decision.map(|decision| decision.by.as_str())),
        &column(&decisions, |decision| decision.map(|decision| signed(decision.at_ms))),
        &column(&approvals, |(_, approval)| approval.used_by.as_deref()),
    ];
    client.query(statement, &params).await
}

/// The calls of a response, in order.
pub(super) async fn runs(
    connection: &Connection,
    tenant_id: i64,
    response_id: &str,
) -> Result<Vec<ToolRun>, PostgresFailure> {
    let found = connection.rows(RUNS, &[&tenant_id, &response_id]).await?;
    found.iter().map(|row| Ok(tool_run(&PostgresRow(row))?)).collect()
}

/// The tools without a recorded end, by tenant and response; only responses that have such tools.
pub(super) async fn unknown(
    connection: &Connection,
    responses: &[(i64, &str)],
) -> Result<BTreeMap<(i64, String), Vec<String>>, PostgresFailure> {
    let mut unknown: BTreeMap<(i64, String), Vec<String>> = BTreeMap::new();
    if responses.is_empty() {
        return Ok(unknown);
    }
    let (tenants, ids): (Vec<i64>, Vec<&str>) = responses.iter().copied().unzip();
    for row in connection.rows(UNKNOWN_RUNS, &[&tenants, &ids]).await? {
        let names = unknown.entry((row.try_get(0)?, row.try_get(1)?)).or_default();
        let name = row.try_get(2)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(unknown)
}

/// Deletes the tool calls of a deleted response, and their approvals.
pub(super) async fn forget(
    connection: &Connection,
    tenant_id: i64,
    user: &str,
    id: &str,
) -> Result<(), PostgresFailure> {
    for sql in [FORGET_RUNS, FORGET_APPROVALS] {
        connection.execute(sql, &[&tenant_id, &user, &id]).await?;
    }
    Ok(())
}
