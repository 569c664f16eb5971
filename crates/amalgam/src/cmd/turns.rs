//! `amalgam turns`: turns of a tenant, or of all.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use amalgam_administration::turn_list::{TurnQuery, TurnRow};
use amalgam_core::Scope;
use amalgam_core::store::{CallBodies, Order, Page};
use clap::{Args, Subcommand};

use crate::cli::StoreArgs;
use crate::command_context::CommandContext;
use crate::table::{moment, table};
use crate::terminal::{print_list, print_object, print_stdout};

/// The largest page of one request to the store.
const PAGE: usize = 200;

/// How often `tail` looks for changes.
const TAIL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct TurnsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List turns without their content, newest first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// Maximum number of turns
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Print a turn with every model and tool call, as JSON
    Show {
        /// Response id, request id, or the provider's id of the answer
        #[arg(value_name = "ID")]
        id: String,
        /// Tenant id
        #[arg(long, value_name = "ID", default_value_t = 1, visible_alias = "company-id")]
        tenant: i64,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Print turns as they begin and end, until interrupted
    Tail {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        common: StoreArgs,
    },
}

/// Which turns.
#[derive(Debug, Clone, Args)]
struct FilterArgs {
    /// Tenant id, or `all`
    #[arg(long, value_name = "ID", default_value = "all", visible_alias = "company-id")]
    tenant: String,
    /// Id of the key
    #[arg(long)]
    key: Option<String>,
    /// Owner
    #[arg(long)]
    user: Option<String>,
    /// API: `responses`, `chat_completions`, `embeddings`, `assistant` or `execute`
    #[arg(long)]
    door: Option<String>,
    /// Id of the session
    #[arg(long)]
    session: Option<String>,
    /// Slug of the profile
    #[arg(long)]
    profile: Option<String>,
    /// Model, as requested or as the upstream knows it
    #[arg(long)]
    model: Option<String>,
    /// Name of the upstream
    #[arg(long)]
    upstream: Option<String>,
    /// Name of a server-run tool
    #[arg(long)]
    tool: Option<String>,
    /// Status, such as `failed`
    #[arg(long)]
    status: Option<String>,
    /// Error code
    #[arg(long)]
    error: Option<String>,
    /// Request id
    #[arg(long)]
    request_id: Option<String>,
    /// Text in the stored input or output
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,
    /// Created at this time or later, RFC 3339
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Created before this time, RFC 3339
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Ended after this many milliseconds or more
    #[arg(long, value_name = "MS")]
    min_duration_ms: Option<String>,
    /// Ended within this many milliseconds
    #[arg(long, value_name = "MS")]
    max_duration_ms: Option<String>,
    /// Known cost of at least this much
    #[arg(long, value_name = "USD")]
    min_cost_usd: Option<String>,
    /// Known cost of at most this much
    #[arg(long, value_name = "USD")]
    max_cost_usd: Option<String>,
}

impl FilterArgs {
    fn query(&self) -> anyhow::Result<TurnQuery> {
        Ok(TurnQuery::read(|name| match name {
            "tenant" => Some(self.tenant.as_str()),
            "key" => self.key.as_deref(),
            "user" => self.user.as_deref(),
            "door" => self.door.as_deref(),
            "session" => self.session.as_deref(),
            "profile" => self.profile.as_deref(),
            "model" => self.model.as_deref(),
            "upstream" => self.upstream.as_deref(),
            "tool" => self.tool.as_deref(),
            "status" => self.status.as_deref(),
            "error" => self.error.as_deref(),
            "request_id" => self.request_id.as_deref(),
            "q" => self.q.as_deref(),
            "from" => self.from.as_deref(),
            "to" => self.to.as_deref(),
            "min_duration_ms" => self.min_duration_ms.as_deref(),
            "max_duration_ms" => self.max_duration_ms.as_deref(),
            "min_cost_usd" => self.min_cost_usd.as_deref(),
            "max_cost_usd" => self.max_cost_usd.as_deref(),
            _ => None,
        })?)
    }
}

pub(crate) async fn run(args: TurnsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { filter, limit, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let turns = newest(&context, &context.operator(), &filter.query()?, limit).await?;
            match common.json {
                true => print_list(&turns)?,
                false => print_stdout(as_table(&turns))?,
            }
        }
        Action::Show { id, tenant, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let scope = context.administrator(tenant).await?;
            print_object(&context.administration().turn(&scope, &id, CallBodies::All).await?)?;
        }
        Action::Tail { filter, common } => tail(&filter, common).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest turns, at most `limit`. A page of the store may be short before the end of the list.
async fn newest(
    context: &CommandContext,
    scope: &Scope,
    query: &TurnQuery,
    limit: usize,
) -> anyhow::Result<Vec<TurnRow>> {
    let (mut turns, mut after) = (Vec::new(), None);
    while turns.len() < limit {
        let page = Page { after, limit: PAGE.min(limit - turns.len()), order: Order::Descending };
        let list = context.administration().turns(scope, query, &page, Vec::new()).await?;
        let has_more = list.has_more();
        turns.extend(list.data);
        if !has_more {
            break;
        }
        after = list.last_id;
    }
    Ok(turns)
}

async fn tail(filter: &FilterArgs, common: StoreArgs) -> anyhow::Result<()> {
    let context = CommandContext::open_read_only(common.config).await?;
    let (scope, mut query) = (context.operator(), filter.query()?);
    query.filter.from_ms.get_or_insert(crate::command_context::now_ms());
    let mut printed: HashMap<String, String> = HashMap::new();
    loop {
        let turns = newest(&context, &scope, &query, PAGE).await?;
        for turn in turns.iter().rev().filter(|turn| printed.get(&turn.id) != Some(&turn.status)) {
            match common.json {
                true => print_stdout(serde_json::to_string(turn)?)?,
                false => print_stdout(row(turn).join("  "))?,
            }
        }
        printed = turns.into_iter().map(|turn| (turn.id, turn.status)).collect();
        tokio::time::sleep(TAIL_INTERVAL).await;
    }
}

fn as_table(turns: &[TurnRow]) -> String {
    let headings = ["created", "id", "status", "door", "user", "model", "tokens", "cost", "ms"];
    table(headings, &turns.iter().map(row).collect::<Vec<_>>())
}

fn row(turn: &TurnRow) -> [String; 9] {
    let status = match &turn.error {
        Some(error) => format!("{} ({error})", turn.status),
        None => turn.status.clone(),
    };
    [
        moment(Some(turn.created_at.to_ms())),
        turn.id.clone(),
        status,
        turn.door.to_owned(),
        turn.user.clone(),
        turn.model.clone().unwrap_or_else(|| turn.requested_model.clone()),
        (turn.input_tokens + turn.output_tokens).to_string(),
        turn.cost_usd.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.6}")),
        turn.duration_ms.map_or_else(|| "-".to_owned(), |duration| duration.to_string()),
    ]
}
