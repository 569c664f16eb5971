//! `amalgam approvals`: tool calls that wait for approval.

use std::process::ExitCode;

use amalgam_core::{
    Scope, Store,
    store::{Approval, Decision},
};
use amalgam_server::{approval_status, decision_outcome, show_approval};
use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::cli::ConfigArgs;
use crate::command_context::{CommandContext, now_ms};
use crate::table::{moment, table};
use crate::terminal::{print_json_text, print_list, print_stdout};

/// The page size for listing approvals.
const PAGE: usize = 200;

/// How much of a call's arguments a table shows.
const SHOWN: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List a tenant's pending and decided approvals, newest first
    List {
        /// Only approvals that are still pending
        #[arg(long)]
        pending: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Approve a call
    Approve(DecideArgs),
    /// Deny a call
    Deny(DecideArgs),
}

#[derive(Debug, Args)]
struct DecideArgs {
    /// Approval id, as printed by `approvals list`
    #[arg(value_name = "APPROVAL_ID")]
    id: String,
    /// Reason for the decision
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Arguments that all commands on approvals share.
#[derive(Debug, Args)]
struct Common {
    /// Tenant id
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: i64,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ApprovalsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { pending, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let (scope, now_ms) = (context.administrator(common.tenant_id).await?, now_ms());
            let approvals = all(&*context.store, &scope, pending, now_ms).await?;
            match common.json {
                true => print_list(approvals.iter().map(|one| show_approval(one, now_ms)))?,
                false => print_stdout(as_table(&approvals, now_ms))?,
            }
        }
        Action::Approve(args) => decide(args, true).await?,
        Action::Deny(args) => decide(args, false).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(args: DecideArgs, approve: bool) -> anyhow::Result<()> {
    let context = CommandContext::open(args.common.config).await?;
    let (scope, now_ms) = (context.administrator(args.common.tenant_id).await?, now_ms());
    let admin = scope.admin().context("the operator administers every tenant")?;
    let decision = Decision { approve, reason: args.reason, by: scope.user().to_owned(), at_ms: now_ms };
    let decided = context.store.decide_as_admin(admin, &args.id, decision).await?;
    let approval = decision_outcome(decided, &args.id, now_ms)?;
    match args.common.json {
        true => print_json_text(show_approval(&approval, now_ms).raw().text())?,
        false => print_stdout(format_args!("{} is {}", approval.id, approval_status(&approval, now_ms)))?,
    }
    Ok(())
}

async fn all(store: &dyn Store, scope: &Scope, pending: bool, now_ms: u64) -> anyhow::Result<Vec<Approval>> {
    let admin = scope.admin().context("the operator administers every tenant")?;
    let mut approvals: Vec<Approval> = Vec::new();
    loop {
        let after = approvals.last().map(|approval| approval.id.clone());
        let page = store.approvals(admin, pending, after.as_deref(), PAGE, now_ms).await?;
        let last = page.len() < PAGE;
        approvals.extend(page);
        if last {
            return Ok(approvals);
        }
    }
}

fn as_table(approvals: &[Approval], now_ms: u64) -> String {
    let row = |approval: &Approval| {
        // What a model wrote is shown to a person: nothing in it may move the cursor.
        let arguments = approval.arguments.chars().map(|one| if one.is_control() { ' ' } else { one });
        [
            approval.id.clone(),
            approval_status(approval, now_ms).to_owned(),
            approval.user.clone(),
            format!("{}/{}", approval.label, approval.name),
            arguments.take(SHOWN).collect(),
            approval.decider.name().to_owned(),
            moment(Some(approval.asked_at_ms)),
            moment(Some(approval.expires_at_ms)),
        ]
    };
    let headings = ["id", "status", "user", "tool", "arguments", "decider", "asked", "expires"];
    table(headings, &approvals.iter().map(row).collect::<Vec<_>>())
}
