//! The list of turns and the usage, as turns write them: many turns in one statement.

use amalgam_core::{Cost, TurnSummary};
use amalgam_store::{
    statements,
    turn_list::{tool_names, usage_rows},
};
use tokio_postgres::{Client, Error, Row, Statement};

use super::{
    batch::columns::column,
    connection::Param,
    job::{Job, signed},
};

statements! {
    /// Adds turns to the list, or ends them there, and counts those that end in the usage. With a mark, only turns
    /// whose write was committed. Rows of the usage are locked in order, so that two batches cannot deadlock.
    OperatorSql PUT_TURNS = "
        WITH new AS (
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[],
                $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[],
                $23::bigint[], $24::bigint[], $25::bigint[], $26::text[], $27::boolean[], $28::bigint[], $48::text[],
                $49::text[])
            AS new (tenant_id, created_at, response_id, request_id, key_id, user_id, wire, session_id, profile,
                requested_model, upstream, model, status, error, ended_at, first_token_ms, input_tokens,
                cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses,
                tools, stored, mark, trace, spans)
        ), put AS (
            INSERT INTO turns (tenant_id, created_at, response_id, request_id, key_id, user_id, wire, session_id, profile,
                requested_model, upstream, model, status, error, ended_at, first_token_ms, input_tokens,
                cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses,
                tools, stored, trace, spans)
            SELECT tenant_id, created_at, response_id, request_id, key_id, user_id, wire, session_id, profile,
                requested_model, upstream, model, status, error, ended_at, first_token_ms, input_tokens,
                cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses,
                tools, stored, trace, spans
            FROM new
            WHERE mark IS NULL OR EXISTS (SELECT FROM responses r
                WHERE r.tenant_id = new.tenant_id AND r.stem = substr(new.response_id, 23, 16)
                    AND r.id = new.response_id AND r.mark = new.mark)
            ON CONFLICT (tenant_id, created_at, response_id) DO UPDATE SET upstream = excluded.upstream,
                model = excluded.model, status = excluded.status, error = excluded.error, ended_at = excluded.ended_at,
                first_token_ms = excluded.first_token_ms, input_tokens = excluded.input_tokens,
                cached_input_tokens = excluded.cached_input_tokens, cache_write_tokens = excluded.cache_write_tokens,
                output_tokens = excluded.output_tokens, reasoning_tokens = excluded.reasoning_tokens,
                cost = excluded.cost, calls = excluded.calls, retries = excluded.retries, losses = excluded.losses,
                tools = excluded.tools, spans = excluded.spans
            WHERE turns.ended_at IS NULL
            RETURNING tenant_id, response_id, ended_at
        )
        INSERT INTO usage_hours (tenant_id, hour, key_id, user_id, wire, profile, upstream, model, turns, failed_turns,
            calls, unpriced_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
            cost)
        SELECT used.tenant_id, hour, key_id, user_id, wire, profile, upstream, model, sum(turns), sum(failed_turns),
            sum(calls), sum(unpriced_calls), sum(input_tokens), sum(cached_input_tokens), sum(cache_write_tokens),
            sum(output_tokens), sum(reasoning_tokens), sum(cost)
        FROM unnest($29::bigint[], $30::text[], $31::bigint[], $32::text[], $33::text[], $34::text[], $35::text[],
                $36::text[], $37::text[], $38::bigint[], $39::bigint[], $40::bigint[], $41::bigint[], $42::bigint[],
                $43::bigint[], $44::bigint[], $45::bigint[], $46::bigint[], $47::bigint[])
            AS used (tenant_id, response_id, hour, key_id, user_id, wire, profile, upstream, model, turns, failed_turns,
                calls, unpriced_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens,
                reasoning_tokens, cost)
            JOIN put ON put.tenant_id = used.tenant_id AND put.response_id = used.response_id
                AND put.ended_at IS NOT NULL
        GROUP BY used.tenant_id, hour, key_id, user_id, wire, profile, upstream, model
        ORDER BY used.tenant_id, hour, key_id, user_id, wire, profile, upstream, model
        ON CONFLICT (tenant_id, hour, key_id, user_id, wire, profile, upstream, model) DO UPDATE SET
            turns = usage_hours.turns + excluded.turns,
            failed_turns = usage_hours.failed_turns + excluded.failed_turns,
            calls = usage_hours.calls + excluded.calls,
            unpriced_calls = usage_hours.unpriced_calls + excluded.unpriced_calls,
            input_tokens = usage_hours.input_tokens + excluded.input_tokens,
            cached_input_tokens = usage_hours.cached_input_tokens + excluded.cached_input_tokens,
            cache_write_tokens = usage_hours.cache_write_tokens + excluded.cache_write_tokens,
            output_tokens = usage_hours.output_tokens + excluded.output_tokens,
            reasoning_tokens = usage_hours.reasoning_tokens + excluded.reasoning_tokens,
            cost = usage_hours.cost + excluded.cost";
    /// Turns of a process that is gone. They are counted in the usage, with the calls that were written before.
    OperatorSql FAIL_TURNS = "
        WITH ended AS (
            UPDATE turns SET status = 'failed', error = 'server_error', ended_at = $4
            FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS failed (tenant_id, created_at, response_id)
            WHERE turns.tenant_id = failed.tenant_id AND turns.created_at = failed.created_at
                AND turns.response_id = failed.response_id AND turns.ended_at IS NULL
            RETURNING turns.*
        )
        INSERT INTO usage_hours (tenant_id, hour, key_id, user_id, wire, profile, upstream, model, turns, failed_turns,
            calls, unpriced_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
            cost)
        SELECT tenant_id, created_at / 3600000, coalesce(key_id, ''), user_id, wire, coalesce(profile, ''),
            coalesce(upstream, ''), coalesce(model, ''), count(*), count(*), sum(calls),
            sum(CASE WHEN cost IS NULL AND input_tokens + output_tokens > 0 THEN calls ELSE 0 END), sum(input_tokens),
            sum(cached_input_tokens), sum(cache_write_tokens), sum(output_tokens), sum(reasoning_tokens),
            sum(coalesce(cost, 0))
        FROM ended GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
        ON CONFLICT (tenant_id, hour, key_id, user_id, wire, profile, upstream, model) DO UPDATE SET
            turns = usage_hours.turns + excluded.turns,
            failed_turns = usage_hours.failed_turns + excluded.failed_turns,
            calls = usage_hours.calls + excluded.calls,
            unpriced_calls = usage_hours.unpriced_calls + excluded.unpriced_calls,
            input_tokens = usage_hours.input_tokens + excluded.input_tokens,
            cached_input_tokens = usage_hours.cached_input_tokens + excluded.cached_input_tokens,
            cache_write_tokens = usage_hours.cache_write_tokens + excluded.cache_write_tokens,
            output_tokens = usage_hours.output_tokens + excluded.output_tokens,
            reasoning_tokens = usage_hours.reasoning_tokens + excluded.reasoning_tokens,
            cost = usage_hours.cost + excluded.cost";
    /// A turn that was cancelled before a process ran it.
    UserSql CANCEL_QUEUED_TURN = "
        UPDATE turns SET status = 'cancelled', ended_at = $5
        WHERE tenant_id = $1 AND user_id = $2 AND created_at = $3 AND response_id = $4 AND status = 'queued'
            AND ended_at IS NULL";
    OperatorSql OLD_TURNS = "
        DELETE FROM turns USING tenants, LATERAL (
            SELECT created_at, response_id FROM turns old
            WHERE old.tenant_id = tenants.id AND old.created_at < $1 AND old.ended_at IS NOT NULL
            ORDER BY created_at LIMIT $2
        ) AS old
        WHERE turns.tenant_id = tenants.id AND turns.created_at = old.created_at AND turns.response_id = old.response_id";
}

/// Adds turns to the list, or ends them there; each with the mark of its write, if it is stored.
pub(super) async fn put(
    client: &Client,
    statement: &Statement,
    turns: &[(&TurnSummary, Option<i64>)],
) -> Result<Vec<Row>, Error> {
    let last = column(turns, |(turn, _)| turn.last_call());
    let tokens = column(turns, |(turn, _)| turn.tokens());
    let tools = column(turns, |(turn, _)| tool_names(turn));
    let ended: Vec<_> = turns.iter().filter(|(turn, _)| turn.ended_at_ms.is_some()).collect();
    let used: Vec<_> = ended.iter().flat_map(|(turn, _)| usage_rows(turn)).collect();
    let sums = column(&used, |row| &row.sums);
    let params: [Param<'_>; 49] = [
        &column(turns, |(turn, _)| turn.tenant_id),
        &column(turns, |(turn, _)| signed(turn.created_at_ms)),
        &column(turns, |(turn, _)| turn.response_id.as_str()),
        &column(turns, |(turn, _)| turn.origin.request_id.as_deref()),
        &column(turns, |(turn, _)| turn.origin.key_id.as_deref()),
        &column(turns, |(turn, _)| &*turn.user),
        &column(turns, |(turn, _)| turn.origin.wire.name()),
        &column(turns, |(turn, _)| turn.origin.session_id.as_deref()),
        &column(turns, |(turn, _)| turn.origin.profile.as_deref()),
        &column(turns, |(turn, _)| turn.origin.model.as_str()),
        &column(&last, |call| call.map(|call| call.upstream.as_str())),
        &column(&last, |call| call.map(|call| call.model.as_str())),
        &column(turns, |(turn, _)| turn.status.name()),
        &column(turns, |(turn, _)| turn.error.as_deref()),
        &column(turns, |(turn, _)| turn.ended_at_ms.map(signed)),
        &column(turns, |(turn, _)| turn.first_token_ms.map(signed)),
        &column(&tokens, |tokens| signed(tokens.input)),
        &column(&tokens, |tokens| signed(tokens.cached_input)),
        &column(&tokens, |tokens| signed(tokens.cache_write)),
        &column(&tokens, |tokens| signed(tokens.output)),
        &column(&tokens, |tokens| signed(tokens.reasoning)),
        &column(turns, |(turn, _)| turn.cost().map(Cost::nano_usd).map(signed)),
        &column(turns, |(turn, _)| turn.calls.len() as i64),
        &column(turns, |(turn, _)| i64::from(turn.retries())),
        &column(turns, |(turn, _)| i64::from(turn.losses)),
        &column(&tools, |tools| tools.as_deref()),
        &column(turns, |(turn, _)| turn.stored),
        &column(turns, |(_, mark)| *mark),
        &column(&used, |row| row.turn.tenant_id),
        &column(&used, |row| row.turn.response_id.as_str()),
        &column(&used, |row| signed(row.hour())),
        &column(&used, |row| row.turn.origin.key_id.as_deref().unwrap_or_default()),
        &column(&used, |row| &*row.turn.user),
        &column(&used, |row| row.turn.origin.wire.name()),
        &column(&used, |row| row.turn.origin.profile.as_deref().unwrap_or_default()),
        &column(&used, |row| row.upstream),
        &column(&used, |row| row.model),
        &column(&sums, |sums| signed(sums.turns)),
        &column(&sums, |sums| signed(sums.failed_turns)),
        &column(&sums, |sums| signed(sums.calls)),
        &column(&sums, |sums| signed(sums.unpriced_calls)),
        &column(&sums, |sums| signed(sums.tokens.input)),
        &column(&sums, |sums| signed(sums.tokens.cached_input)),
        &column(&sums, |sums| signed(sums.tokens.cache_write)),
        &column(&sums, |sums| signed(sums.tokens.output)),
        &column(&sums, |sums| signed(sums.tokens.reasoning)),
        &column(&sums, |sums| signed(sums.cost.nano_usd())),
        &column(turns, |(turn, _)| turn.origin.trace.map(|trace| trace.to_string())),
        &column(turns, |(turn, _)| turn.spans_json()),
    ];
    client.query(statement, &params).await
}

/// The turns of some writes.
pub(super) fn of(jobs: &[Job]) -> Vec<(&TurnSummary, Option<i64>)> {
    jobs.iter().filter_map(|job| Some((job.write.summary.as_deref()?, Some(job.mark)))).collect()
}
