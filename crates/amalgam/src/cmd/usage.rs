//! `amalgam usage`: turns, tokens and cost.

use std::process::ExitCode;

use amalgam_administration::usage::UsageRequest;
use clap::Args;

use crate::cli::StoreArgs;
use crate::command_context::{CommandContext, now_ms};
use crate::table::columns;
use crate::terminal::{print_object, print_part, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// Groups, separated by commas: tenant, key, user, door, profile, upstream, model, day, hour
    #[arg(long, value_name = "GROUPS", default_value = "tenant,model")]
    group_by: String,
    /// Beginning of the range, RFC 3339 [default: 30 days before the end]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the range, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Tenant id, or `all`
    #[arg(long, value_name = "ID", default_value = "all", visible_alias = "company-id")]
    tenant: String,
    /// Only usage of this key
    #[arg(long)]
    key: Option<String>,
    /// Only usage of this user
    #[arg(long)]
    user: Option<String>,
    /// Only usage of this model
    #[arg(long)]
    model: Option<String>,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    common: StoreArgs,
}

pub(crate) async fn run(args: UsageArgs) -> anyhow::Result<ExitCode> {
    let get = |name: &'static str| match name {
        "group_by" => Some(args.group_by.as_str()).filter(|groups| !groups.is_empty()),
        "from" => args.from.as_deref(),
        "to" => args.to.as_deref(),
        "tenant" => Some(args.tenant.as_str()),
        "key" => args.key.as_deref(),
        "user" => args.user.as_deref(),
        "model" => args.model.as_deref(),
        _ => None,
    };
    let request = UsageRequest::read(get, now_ms())?;
    let context = CommandContext::open_read_only(args.common.config.clone()).await?;
    let report = context.administration().usage(&context.operator(), &request).await?;
    match (args.common.json, args.csv) {
        (true, _) => print_object(&report)?,
        (false, true) => print_part(String::from_utf8_lossy(&report.csv()))?,
        (false, false) => {
            let (headings, rows) = report.table();
            print_stdout(columns(&headings, &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
