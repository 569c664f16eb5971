//! `amalgam limits`: what tenants, keys, users and models may use. A change is in force within five seconds.

use std::process::ExitCode;

use amalgam_administration::{
    all_pages,
    limits::{Amount, LimitView, WindowUsage},
};
use amalgam_core::LimitKind;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::cli::StoreArgs;
use crate::command_context::CommandContext;
use crate::table::table;
use crate::terminal::{print_json, print_list, print_object, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List limits with what is used of them
    List {
        /// Only limits of this tenant and of its keys and users
        #[arg(long, value_name = "ID", visible_alias = "company-id")]
        tenant: Option<i64>,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Print a limit as JSON, with what is used and reserved now
    Show {
        #[command(flatten)]
        subject: SubjectArgs,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Create or replace a limit; what is not given is not limited
    Set(Box<SetArgs>),
    /// Remove a limit and its counters
    Remove {
        #[command(flatten)]
        subject: SubjectArgs,
        #[command(flatten)]
        common: StoreArgs,
    },
}

/// What a limit is about.
#[derive(Debug, Args)]
struct SubjectArgs {
    /// What the limit is about: tenants, keys, users or models
    #[arg(value_name = "KIND", value_parser = kind)]
    kind: LimitKind,
    /// Tenant number, key id, user or model name
    #[arg(value_name = "ID")]
    id: String,
    /// The tenant of a user
    #[arg(long, value_name = "ID", visible_alias = "company-id")]
    tenant: Option<i64>,
}

#[derive(Debug, Args)]
struct SetArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Turns that may begin in a minute
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<u64>,
    /// Tokens that model calls of a minute may use
    #[arg(long, value_name = "N")]
    tokens_per_minute: Option<u64>,
    /// Turns that may run at once
    #[arg(long, value_name = "N")]
    in_flight: Option<u64>,
    /// What model calls may use in a period, in the unit below
    #[arg(long, value_name = "AMOUNT", requires = "period")]
    budget: Option<f64>,
    /// Unit of the budget: usd or tokens
    #[arg(long, default_value = "usd", value_name = "UNIT")]
    unit: String,
    /// When the budget begins anew: day, month (UTC) or total (never)
    #[arg(long, requires = "budget", value_name = "PERIOD")]
    period: Option<String>,
    /// Allow only this model; repeatable
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Allow only this server-run tool; repeatable
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    #[command(flatten)]
    common: StoreArgs,
}

pub(crate) async fn run(args: LimitsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { tenant, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let (scope, administration) = (context.operator(), context.administration());
            let limits = all_pages(async |page| administration.limits(&scope, tenant, &page).await).await?;
            match common.json {
                true => print_list(&limits)?,
                false => print_stdout(as_table(&limits))?,
            }
        }
        Action::Show { subject: SubjectArgs { kind, id, tenant }, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            print_object(&context.administration().limit(&context.operator(), kind, &id, tenant).await?)?;
        }
        Action::Set(args) => {
            let body = body(&args);
            let SetArgs { subject: SubjectArgs { kind, id, tenant }, common, .. } = *args;
            let context = CommandContext::open(common.config).await?;
            let (administration, scope) = (context.administration(), context.operator());
            let body = body.to_string().into();
            let (limit, _) = administration.put_limit(&scope, kind, &id, tenant, &body).await?;
            match common.json {
                true => print_object(&limit)?,
                false => print_stdout(format_args!(
                    "{} {id} is limited; running servers apply it within 5 seconds",
                    kind.singular()
                ))?,
            }
        }
        Action::Remove { subject: SubjectArgs { kind, id, tenant }, common } => {
            let context = CommandContext::open(common.config).await?;
            context.administration().delete_limit(&context.operator(), kind, &id, tenant).await?;
            match common.json {
                true => print_json(&json!({"id": id, "object": "limit.deleted", "deleted": true}))?,
                false => print_stdout(format_args!("removed the limit of {} {id}", kind.singular()))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kind(text: &str) -> Result<LimitKind, String> {
    LimitKind::named(text).ok_or_else(|| LimitKind::ALL.map(LimitKind::name).join(", "))
}

/// The body of the API request that the flags describe.
fn body(args: &SetArgs) -> Value {
    let mut body = Map::new();
    for (name, limit) in [
        ("requests_per_minute", args.requests_per_minute),
        ("tokens_per_minute", args.tokens_per_minute),
        ("in_flight", args.in_flight),
    ] {
        body.extend(limit.map(|limit| (name.to_owned(), json!(limit))));
    }
    if let (Some(amount), Some(period)) = (args.budget, &args.period) {
        // A whole number of tokens is sent as an integer.
        let amount = match amount.fract() == 0.0 && (0.0..1e15).contains(&amount) {
            true => json!(amount as u64),
            false => json!(amount),
        };
        body.insert("budget".to_owned(), json!({"amount": amount, "unit": args.unit, "period": period}));
    }
    for (name, list) in [("models", &args.models), ("tools", &args.tools)] {
        if !list.is_empty() {
            body.insert(name.to_owned(), json!(list));
        }
    }
    Value::Object(body)
}

fn as_table(limits: &[LimitView]) -> String {
    let row = |limit: &LimitView| {
        let of = |window: &Option<WindowUsage>, most: Option<String>| match (window, most) {
            (Some(window), Some(most)) => format!("{} of {most}", taken(window)),
            _ => "-".to_owned(),
        };
        let budget = limit
            .budget
            .map(|budget| format!("{} {} per {}", budget.amount, budget.unit.0.name(), budget.period.0.name()));
        let in_flight = limit.in_flight.zip(limit.usage.in_flight);
        [
            limit.kind.0.name().to_owned(),
            limit.tenant_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            limit.id.clone(),
            of(&limit.usage.requests_per_minute, limit.requests_per_minute.map(|most| most.to_string())),
            of(&limit.usage.tokens_per_minute, limit.tokens_per_minute.map(|most| most.to_string())),
            in_flight.map_or_else(|| "-".to_owned(), |(most, now)| format!("{now} of {most}")),
            of(&limit.usage.budget, budget),
            limit.models.as_ref().map_or_else(|| "-".to_owned(), |models| models.join(", ")),
            limit.tools.as_ref().map_or_else(|| "-".to_owned(), |tools| tools.join(", ")),
        ]
    };
    let headings = ["kind", "tenant", "id", "requests/min", "tokens/min", "in flight", "budget", "models", "tools"];
    table(headings, &limits.iter().map(row).collect::<Vec<_>>())
}

/// The sum of used and reserved amounts.
fn taken(window: &WindowUsage) -> String {
    match (window.used, window.reserved) {
        (Amount::Count(used), Amount::Count(reserved)) => (used + reserved).to_string(),
        (Amount::Usd(used), Amount::Usd(reserved)) => used.plus(reserved).usd().to_string(),
        (used, _) => used.to_string(),
    }
}
