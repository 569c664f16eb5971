//! The list of turns and the usage: the statements that write them for turns, and how both are read.
//!
//! An engine writes a turn's summary in the transaction that begins or ends the turn. A turn is counted in the usage
//! when its row gets an end, so it is counted once.

use std::collections::BTreeMap;

use amalgam_core::{
    Admin, Cost, Operator, StoreError, TokenSums, TraceContext, TurnSummary, Wire,
    store::{
        ListedTurn, Stored, TurnCursor, TurnFilter, TurnPage, TurnsOf, UsageGroup, UsageQuery, UsageStore, UsageSums,
    },
};
use amalgam_protocol::Json;

use crate::{
    SqlStore,
    engine::{SqlConnection, SqlEngine, TenantKey},
    sql::shared_statements,
    values::{SqlRow, SqlValue, values},
};

shared_statements! {
    /// Adds a turn, or ends a running one. Changes nothing if the turn has ended.
    pub TenantSql PUT_TURN = "
        INSERT INTO turns (tenant_id, created_at, response_id, request_id, key_id, user_id, wire, session_id, profile,
            requested_model, upstream, model, status, error, ended_at, first_token_ms, input_tokens, cached_input_tokens,
            cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses, tools, stored, trace, spans)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
            $24, $25, $26, $27, $28, $29)
        ON CONFLICT (tenant_id, created_at, response_id) DO UPDATE SET upstream = excluded.upstream,
            model = excluded.model, status = excluded.status, error = excluded.error, ended_at = excluded.ended_at,
            first_token_ms = excluded.first_token_ms, input_tokens = excluded.input_tokens,
            cached_input_tokens = excluded.cached_input_tokens, cache_write_tokens = excluded.cache_write_tokens,
            output_tokens = excluded.output_tokens, reasoning_tokens = excluded.reasoning_tokens, cost = excluded.cost,
            calls = excluded.calls, retries = excluded.retries, losses = excluded.losses, tools = excluded.tools,
            spans = excluded.spans
        WHERE turns.ended_at IS NULL";
    /// Adds an ended turn to the usage.
    pub TenantSql ADD_USAGE = "
        INSERT INTO usage_hours (tenant_id, hour, key_id, user_id, wire, profile, upstream, model, turns, failed_turns,
            calls, unpriced_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
            cost)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
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
    /// Adds a listed turn to the usage that has ended without a process: with the calls that were written before, which count for the
    /// model of the last of them. What a call used that ran then is not known.
    pub TenantSql COUNT_ENDED = "
        INSERT INTO usage_hours (tenant_id, hour, key_id, user_id, wire, profile, upstream, model, turns, failed_turns,
            calls, unpriced_calls, input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
            cost)
        SELECT tenant_id, created_at / 3600000, coalesce(key_id, ''), user_id, wire, coalesce(profile, ''),
            coalesce(upstream, ''), coalesce(model, ''), 1, CASE status WHEN 'failed' THEN 1 ELSE 0 END, calls,
            CASE WHEN cost IS NULL AND input_tokens + output_tokens > 0 THEN calls ELSE 0 END, input_tokens,
            cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens, coalesce(cost, 0)
        FROM turns WHERE tenant_id = $1 AND created_at = $2 AND response_id = $3
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
    /// A bounded number of turns is looked at; of those the ones that fit.
    TenantSql TURNS = "
        SELECT tenant_id, response_id, request_id, key_id, user_id, wire, session_id, profile, requested_model, upstream,
            model, status, error, created_at, ended_at, first_token_ms, input_tokens, cached_input_tokens,
            cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses, tools, stored, trace
        FROM (
            SELECT * FROM turns
            WHERE tenant_id = $1 AND created_at >= $2 AND created_at <= $3
                AND (created_at < $3 OR response_id < $4)
            ORDER BY created_at DESC, response_id DESC LIMIT $5
        ) AS looked_at
        WHERE (CAST($6 AS text) IS NULL OR key_id = $6)
            AND (CAST($7 AS text) IS NULL OR user_id = $7)
            AND (CAST($8 AS text) IS NULL OR wire = $8)
            AND (CAST($9 AS text) IS NULL OR session_id = $9)
            AND (CAST($10 AS text) IS NULL OR profile = $10)
            AND (CAST($11 AS text) IS NULL OR model = $11 OR requested_model = $11)
            AND (CAST($12 AS text) IS NULL OR upstream = $12)
            AND (CAST($13 AS text) IS NULL OR tools LIKE $13 ESCAPE '\\')
            AND (CAST($14 AS text) IS NULL OR status = $14)
            AND (CAST($15 AS text) IS NULL OR error = $15)
            AND (CAST($16 AS text) IS NULL OR request_id = $16)
            AND (CAST($17 AS bigint) IS NULL OR ended_at - created_at >= $17)
            AND (CAST($18 AS bigint) IS NULL OR cost >= $18)
            AND (CAST($20 AS bigint) IS NULL OR CASE WHEN stored THEN 1 ELSE 0 END = $20)
            AND (CAST($21 AS bigint) IS NULL OR ended_at - created_at <= $21)
            AND (CAST($22 AS bigint) IS NULL OR cost <= $22)
        ORDER BY created_at DESC, response_id DESC LIMIT $19";
    pub(crate) TenantSql LISTED_TURN = "
        SELECT tenant_id, response_id, request_id, key_id, user_id, wire, session_id, profile, requested_model, upstream,
            model, status, error, created_at, ended_at, first_token_ms, input_tokens, cached_input_tokens,
            cache_write_tokens, output_tokens, reasoning_tokens, cost, calls, retries, losses, tools, stored, trace
        FROM turns WHERE tenant_id = $1 AND created_at = $2 AND response_id = $3";
    /// The last of the turns that a page looked at, if there were so many.
    TenantSql LAST_LOOKED_AT = "
        SELECT created_at, response_id FROM turns
        WHERE tenant_id = $1 AND created_at >= $2 AND created_at <= $3 AND (created_at < $3 OR response_id < $4)
        ORDER BY created_at DESC, response_id DESC LIMIT 1 OFFSET $5";
    /// The spans of a turn.
    TenantSql SPANS = "SELECT spans FROM turns WHERE tenant_id = $1 AND created_at = $2 AND response_id = $3";
    TenantSql RESPONSE_OF_REQUEST = "
        SELECT response_id FROM turns WHERE tenant_id = $1 AND request_id = $2
        ORDER BY created_at DESC, response_id DESC LIMIT 1";
    TenantSql USAGE = "
        SELECT CASE WHEN $4 THEN key_id ELSE '' END, CASE WHEN $5 THEN user_id ELSE '' END,
            CASE WHEN $6 THEN wire ELSE '' END, CASE WHEN $7 THEN profile ELSE '' END,
            CASE WHEN $8 THEN upstream ELSE '' END, CASE WHEN $9 THEN model ELSE '' END,
            CASE WHEN $10 THEN hour / 24 ELSE 0 END, CASE WHEN $11 THEN hour ELSE 0 END,
            CAST(sum(turns) AS bigint), CAST(sum(failed_turns) AS bigint), CAST(sum(calls) AS bigint),
            CAST(sum(unpriced_calls) AS bigint), CAST(sum(input_tokens) AS bigint),
            CAST(sum(cached_input_tokens) AS bigint), CAST(sum(cache_write_tokens) AS bigint),
            CAST(sum(output_tokens) AS bigint), CAST(sum(reasoning_tokens) AS bigint), CAST(sum(cost) AS bigint)
        FROM usage_hours
        WHERE tenant_id = $1 AND hour >= $2 AND hour < $3
            AND (CAST($12 AS text) IS NULL OR key_id = $12)
            AND (CAST($13 AS text) IS NULL OR user_id = $13)
            AND (CAST($14 AS text) IS NULL OR model = $14)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8";
    /// The same by the hour alone: the rows are in that order, so that nothing is sorted.
    TenantSql USAGE_BY_HOUR = "
        SELECT '', '', '', '', '', '', 0, hour,
            CAST(sum(turns) AS bigint), CAST(sum(failed_turns) AS bigint), CAST(sum(calls) AS bigint),
            CAST(sum(unpriced_calls) AS bigint), CAST(sum(input_tokens) AS bigint),
            CAST(sum(cached_input_tokens) AS bigint), CAST(sum(cache_write_tokens) AS bigint),
            CAST(sum(output_tokens) AS bigint), CAST(sum(reasoning_tokens) AS bigint), CAST(sum(cost) AS bigint)
        FROM usage_hours
        WHERE tenant_id = $1 AND hour >= $2 AND hour < $3
            AND (CAST($4 AS text) IS NULL OR key_id = $4)
            AND (CAST($5 AS text) IS NULL OR user_id = $5)
            AND (CAST($6 AS text) IS NULL OR model = $6)
        GROUP BY hour";
    OperatorSql TENANTS = "SELECT id FROM tenants ORDER BY id";
}

/// The number of turns that one request for a page examines in each tenant.
const LOOKED_AT: u64 = 20_000;

/// The same number if the text of each turn is searched.
const SEARCHED: u64 = 2_000;

/// The values of [`PUT_TURN`].
pub fn turn_values(turn: &TurnSummary) -> Vec<SqlValue<'_>> {
    let (last, tokens) = (turn.last_call(), turn.tokens());
    values![
        turn.tenant_id,
        turn.created_at_ms,
        &turn.response_id,
        turn.origin.request_id.as_deref(),
        turn.origin.key_id.as_deref(),
        &*turn.user,
        turn.origin.wire.name(),
        &turn.origin.session_id,
        &turn.origin.profile,
        &turn.origin.model,
        last.map(|call| call.upstream.as_str()),
        last.map(|call| call.model.as_str()),
        turn.status.name(),
        &turn.error,
        turn.ended_at_ms,
        turn.first_token_ms,
        tokens.input,
        tokens.cached_input,
        tokens.cache_write,
        tokens.output,
        tokens.reasoning,
        turn.cost().map(Cost::nano_usd),
        turn.calls.len(),
        turn.retries(),
        turn.losses,
        tool_names(turn),
        turn.stored,
        turn.origin.trace.map(|trace| trace.to_string()),
        turn.spans_json(),
    ]
    .into()
}

/// The tools of a turn as one text, each between two line feeds, so that one can be searched.
pub fn tool_names(turn: &TurnSummary) -> Option<String> {
    (!turn.tools.is_empty()).then(|| format!("\n{}\n", turn.tools.join("\n")))
}

/// What a turn adds to one row of the usage.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageRow<'a> {
    /// The turn.
    pub turn: &'a TurnSummary,
    /// The upstream of its calls; empty if none was made.
    pub upstream: &'a str,
    /// The model of its calls; empty if none was made.
    pub model: &'a str,
    /// The sums to add.
    pub sums: UsageSums,
}

impl UsageRow<'_> {
    /// Whether another turn is counted in the same row.
    pub fn is_same(&self, other: &Self) -> bool {
        let (turn, origin) = (self.turn, &self.turn.origin);
        let (other_turn, other_origin) = (other.turn, &other.turn.origin);
        (turn.tenant_id, self.hour(), origin.wire) == (other_turn.tenant_id, other.hour(), other_origin.wire)
            && (&turn.user, &origin.key_id, &origin.profile)
                == (&other_turn.user, &other_origin.key_id, &other_origin.profile)
            && (self.upstream, self.model) == (other.upstream, other.model)
    }

    /// The hour that the turn counts in.
    pub fn hour(&self) -> u64 {
        self.turn.created_at_ms / MS_PER_HOUR
    }

    /// The values of [`ADD_USAGE`].
    pub fn values(&self) -> Vec<SqlValue<'_>> {
        let (origin, sums) = (&self.turn.origin, &self.sums);
        values![
            self.turn.tenant_id,
            self.hour(),
            origin.key_id.as_deref().unwrap_or_default(),
            &*self.turn.user,
            origin.wire.name(),
            origin.profile.as_deref().unwrap_or_default(),
            self.upstream,
            self.model,
            sums.turns,
            sums.failed_turns,
            sums.calls,
            sums.unpriced_calls,
            sums.tokens.input,
            sums.tokens.cached_input,
            sums.tokens.cache_write,
            sums.tokens.output,
            sums.tokens.reasoning,
            sums.cost.nano_usd(),
        ]
        .into()
    }
}

const MS_PER_HOUR: u64 = 3_600_000;

/// The rows of the usage that an ended turn adds to: one for each model that it called.
pub fn usage_rows(turn: &TurnSummary) -> Vec<UsageRow<'_>> {
    let row = |upstream, model| UsageRow { turn, upstream, model, sums: UsageSums::default() };
    let mut rows: Vec<UsageRow<'_>> = Vec::new();
    for call in &turn.calls {
        let at = rows.iter().position(|row| (row.upstream, row.model) == (&*call.upstream, &*call.model));
        let at = at.unwrap_or_else(|| {
            rows.push(row(&call.upstream, &call.model));
            rows.len() - 1
        });
        let Some(UsageRow { sums, .. }) = rows.get_mut(at) else { continue };
        sums.calls += 1;
        sums.tokens = call.usage.map_or(sums.tokens, |usage| sums.tokens.plus(&usage));
        sums.cost = sums.cost.plus(call.cost.unwrap_or_default());
        sums.unpriced_calls += u64::from(call.usage.is_some() && call.cost.is_none());
    }
    let last = turn.last_call().map_or(("", ""), |call| (call.upstream.as_str(), call.model.as_str()));
    if rows.is_empty() {
        rows.push(row("", ""));
    }
    if let Some(row) = rows.iter_mut().find(|row| (row.upstream, row.model) == last) {
        row.sums.turns = 1;
        row.sums.failed_turns = u64::from(turn.status == amalgam_protocol::Status::Failed);
    }
    rows
}

impl<E: SqlEngine> UsageStore for SqlStore<E> {
    fn turns<'a>(
        &'a self,
        of: TurnsOf<'a>,
        filter: TurnFilter,
        after: Option<TurnCursor>,
        limit: usize,
    ) -> Stored<'a, TurnPage> {
        let filter = match of {
            TurnsOf::Caller(scope) => TurnFilter { user: Some(scope.user().to_owned()), ..filter },
            TurnsOf::Tenant(_) | TurnsOf::All(_) => filter,
        };
        let arguments = (ListedTenants::of(of), filter, after, limit);
        self.engine.read(arguments, |connection, (tenants, filter, after, limit)| {
            Box::pin(async move {
                let mut pages = Vec::new();
                for tenant in tenants.list(connection).await? {
                    pages.push(page(connection, tenant, filter, after.as_ref(), *limit).await?);
                }
                Ok(merged(pages, *limit))
            })
        })
    }

    fn usage<'a>(&'a self, of: TurnsOf<'a>, query: UsageQuery) -> Stored<'a, Vec<UsageSums>> {
        let query = match of {
            TurnsOf::Caller(scope) => UsageQuery { user: Some(scope.user().to_owned()), ..query },
            TurnsOf::Tenant(_) | TurnsOf::All(_) => query,
        };
        self.engine.read((ListedTenants::of(of), query), |connection, (tenants, query)| {
            Box::pin(async move {
                let mut groups: BTreeMap<Vec<String>, UsageSums> = BTreeMap::new();
                for tenant in tenants.list(connection).await? {
                    for sums in usage_of(connection, tenant, query).await? {
                        groups.entry(sums.group.clone()).or_default().add(&sums);
                    }
                }
                Ok(groups.into_iter().map(|(group, sums)| UsageSums { group, ..sums }).collect())
            })
        })
    }

    fn spans_of_turn<'a>(
        &'a self,
        admin: Admin<'a>,
        created_at_ms: u64,
        response_id: &'a str,
    ) -> Stored<'a, Option<Json>> {
        let arguments = (TenantKey::of_admin(admin), created_at_ms, response_id.to_owned());
        self.engine.read(arguments, |connection, (tenant, created_at_ms, response_id)| {
            Box::pin(async move {
                let values = values![*created_at_ms, response_id];
                let read = |row: &dyn SqlRow| row.optional::<String>(0);
                let spans = connection.tenant(*tenant, SPANS, values).first(read).await?.flatten();
                Ok(spans.and_then(|spans| Json::parse(&spans.into()).ok()))
            })
        })
    }

    fn response_of_request<'a>(&'a self, admin: Admin<'a>, request_id: &'a str) -> Stored<'a, Option<String>> {
        let arguments = (TenantKey::of_admin(admin), request_id.to_owned());
        self.engine.read(arguments, |connection, (tenant, request_id)| {
            Box::pin(connection.tenant(*tenant, RESPONSE_OF_REQUEST, values![request_id]).first(|row| row.get(0)))
        })
    }
}

/// The tenants of a list.
pub(crate) enum ListedTenants {
    One(TenantKey),
    All(Operator),
}

impl ListedTenants {
    pub(crate) fn of(of: TurnsOf<'_>) -> Self {
        match of {
            TurnsOf::Tenant(within) => Self::One(TenantKey::within(within)),
            TurnsOf::All(operator) => Self::All(operator),
            TurnsOf::Caller(scope) => Self::One(TenantKey::of_caller(scope)),
        }
    }

    pub(crate) async fn list<C: SqlConnection>(&self, connection: &C) -> Result<Vec<TenantKey>, C::Failure> {
        match *self {
            Self::One(tenant) => Ok(vec![tenant]),
            Self::All(operator) => {
                connection.operator(operator, TENANTS, []).all(|row| Ok(TenantKey::of_row(operator, row.get(0)?))).await
            }
        }
    }
}

async fn page<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    filter: &TurnFilter,
    after: Option<&TurnCursor>,
    limit: usize,
) -> Result<TurnPage, C::Failure> {
    let from = filter.from_ms.unwrap_or_default();
    let newest = filter.to_ms.map_or(i64::MAX.cast_unsigned(), |to| to.saturating_sub(1));
    // After every id of the newest millisecond, unless the page continues a list.
    let (to, before_id) = match after {
        Some(after) if after.created_at_ms <= newest => (after.created_at_ms, after.response_id.as_str()),
        _ => (newest, "~"),
    };
    let looked_at = if filter.text.is_some() { SEARCHED } else { LOOKED_AT };
    let range = values![from, to, before_id];
    let rest = values![
        looked_at,
        &filter.key_id,
        &filter.user,
        filter.wire.map(Wire::name),
        &filter.session_id,
        &filter.profile,
        &filter.model,
        &filter.upstream,
        filter.tool.as_ref().map(|tool| format!("%\n{}\n%", escaped(tool))),
        &filter.status,
        &filter.error,
        &filter.request_id,
        filter.min_duration_ms,
        filter.min_cost.map(Cost::nano_usd),
    ];
    let values = range.iter().cloned().chain(rest);
    let stored = filter.stored.map(i64::from);
    let (max_duration, max_cost) = (filter.max_duration_ms, filter.max_cost.map(Cost::nano_usd));
    let values = values.chain(values![limit + 1, stored, max_duration, max_cost]);
    let turns = match &filter.text {
        None => connection.tenant(tenant, TURNS, values).all(listed_turn).await?,
        Some(text) => {
            let pattern = format!("%{}%", escaped(&json_text(text)));
            let sql = connection.sql().turns_with_text;
            connection.tenant(tenant, sql, values.chain(values![pattern])).all(listed_turn).await?
        }
    };
    if turns.len() > limit {
        let turns: Vec<ListedTurn> = turns.into_iter().take(limit).collect();
        let next = turns.last().map(cursor_of);
        return Ok(TurnPage { turns, next });
    }
    let offset = values![looked_at - 1];
    let last = connection.tenant(tenant, LAST_LOOKED_AT, range.into_iter().chain(offset));
    let next = last.first(|row| Ok(TurnCursor { created_at_ms: row.get(0)?, response_id: row.get(1)? })).await?;
    Ok(TurnPage { turns, next })
}

fn cursor_of(turn: &ListedTurn) -> TurnCursor {
    TurnCursor { created_at_ms: turn.created_at_ms, response_id: turn.response_id.clone() }
}

/// Merges pages of several tenants into one. It ends where the first of them has not examined further turns.
fn merged(pages: Vec<TurnPage>, limit: usize) -> TurnPage {
    let frontier = pages.iter().filter_map(|page| page.next.clone()).max();
    let mut turns: Vec<ListedTurn> = pages.into_iter().flat_map(|page| page.turns).collect();
    turns.sort_by_key(|turn| std::cmp::Reverse(cursor_of(turn)));
    if let Some(frontier) = &frontier {
        turns.retain(|turn| cursor_of(turn) >= *frontier);
    }
    match turns.len() > limit {
        true => {
            turns.truncate(limit);
            let next = turns.last().map(cursor_of);
            TurnPage { turns, next }
        }
        false => TurnPage { turns, next: frontier },
    }
}

/// A text as it is written inside a JSON string.
fn json_text(text: &str) -> String {
    let quoted = Json::string(text);
    let quoted = quoted.raw().text();
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(quoted).to_owned()
}

/// A text escaped for a pattern of LIKE.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

async fn usage_of<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    query: &UsageQuery,
) -> Result<Vec<UsageSums>, C::Failure> {
    let by = |group| query.group_by.contains(&group);
    let values = values![
        query.from_hour,
        query.to_hour,
        by(UsageGroup::Key),
        by(UsageGroup::User),
        by(UsageGroup::Wire),
        by(UsageGroup::Profile),
        by(UsageGroup::Upstream),
        by(UsageGroup::Model),
        by(UsageGroup::Day),
        by(UsageGroup::Hour),
        &query.key_id,
        &query.user,
        &query.model,
    ];
    let read = |row: &dyn SqlRow| {
        let value = |group: &UsageGroup| -> Result<String, StoreError> {
            Ok(match group {
                UsageGroup::Tenant => tenant.number().to_string(),
                UsageGroup::Key => row.get(0)?,
                UsageGroup::User => row.get(1)?,
                UsageGroup::Wire => row.get(2)?,
                UsageGroup::Profile => row.get(3)?,
                UsageGroup::Upstream => row.get(4)?,
                UsageGroup::Model => row.get(5)?,
                UsageGroup::Day => row.get::<i64>(6)?.to_string(),
                UsageGroup::Hour => row.get::<i64>(7)?.to_string(),
            })
        };
        Ok(UsageSums {
            group: query.group_by.iter().map(value).collect::<Result<_, _>>()?,
            turns: row.get(8)?,
            failed_turns: row.get(9)?,
            calls: row.get(10)?,
            unpriced_calls: row.get(11)?,
            tokens: tokens(row, 12)?,
            cost: Cost::from_nano_usd(row.get(17)?),
        })
    };
    if query.group_by == [UsageGroup::Hour] {
        let values = values![query.from_hour, query.to_hour, &query.key_id, &query.user, &query.model];
        return connection.tenant(tenant, USAGE_BY_HOUR, values).all(read).await;
    }
    connection.tenant(tenant, USAGE, values).all(read).await
}

fn tokens(row: &dyn SqlRow, from: usize) -> Result<TokenSums, StoreError> {
    Ok(TokenSums {
        input: row.get(from)?,
        cached_input: row.get(from + 1)?,
        cache_write: row.get(from + 2)?,
        output: row.get(from + 3)?,
        reasoning: row.get(from + 4)?,
    })
}

pub(crate) fn listed_turn(row: &dyn SqlRow) -> Result<ListedTurn, StoreError> {
    let tools: Option<&str> = row.optional(25)?;
    Ok(ListedTurn {
        tenant_id: row.get(0)?,
        response_id: row.get(1)?,
        request_id: row.optional(2)?,
        key_id: row.optional(3)?,
        user: row.get(4)?,
        wire: Wire::named(row.get(5)?).unwrap_or_default(),
        session_id: row.optional(6)?,
        profile: row.optional(7)?,
        requested_model: row.get(8)?,
        upstream: row.optional(9)?,
        model: row.optional(10)?,
        status: row.get(11)?,
        error: row.optional(12)?,
        created_at_ms: row.get(13)?,
        ended_at_ms: row.optional(14)?,
        first_token_ms: row.optional(15)?,
        tokens: tokens(row, 16)?,
        cost: row.optional(21)?.map(Cost::from_nano_usd),
        calls: row.get(22)?,
        retries: row.get(23)?,
        losses: row.get(24)?,
        tools: tools
            .map(|tools| tools.trim_matches('\n').split('\n').map(ToOwned::to_owned).collect())
            .unwrap_or_default(),
        stored: row.get(26)?,
        trace_id: row.optional::<&str>(27)?.and_then(TraceContext::parse).map(|trace| trace.trace_id),
    })
}

#[cfg(test)]
#[path = "turn_list_tests.rs"]
mod tests;
