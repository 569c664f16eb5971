//! `amalgam approvals`: tool calls that wait for approval.

use std::process::ExitCode;

use amalgam_administration::{
    all_pages,
    approvals::{ApprovalView, Verdict},
};
use clap::{Args, Subcommand};

use crate::cli::TenantArgs;
use crate::command_context::CommandContext;
use crate::table::{moment, table};
use crate::terminal::{print_list, print_object, print_stdout};

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
        common: TenantArgs,
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
    common: TenantArgs,
}

pub(crate) async fn run(args: ApprovalsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { pending, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            let administration = context.administration();
            let approvals = all_pages(async |page| administration.approvals(&scope, pending, &page).await).await?;
            match common.json {
                true => print_list(&approvals)?,
                false => print_stdout(as_table(&approvals))?,
            }
        }
        Action::Approve(args) => decide(args, Verdict::Approve).await?,
        Action::Deny(args) => decide(args, Verdict::Deny).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(DecideArgs { id, reason, common }: DecideArgs, verdict: Verdict) -> anyhow::Result<()> {
    let (context, scope) = CommandContext::open_tenant(&common).await?;
    let approval = context.administration().decide(&scope, &id, verdict, reason).await?;
    match common.json {
        true => print_object(&approval)?,
        false => print_stdout(format_args!("{} is {}", approval.id, approval.status))?,
    }
    Ok(())
}

fn as_table(approvals: &[ApprovalView]) -> String {
    let row = |approval: &ApprovalView| {
        // The model wrote the arguments: control characters could move the cursor.
        let arguments = approval.arguments.chars().map(|one| if one.is_control() { ' ' } else { one });
        [
            approval.id.clone(),
            approval.status.to_owned(),
            approval.user.clone(),
            format!("{}/{}", approval.tool.label, approval.tool.name),
            arguments.take(SHOWN).collect(),
            approval.decider.0.name().to_owned(),
            moment(Some(approval.asked_at.to_ms())),
            moment(Some(approval.expires_at.to_ms())),
        ]
    };
    let headings = ["id", "status", "user", "tool", "arguments", "decider", "asked", "expires"];
    table(headings, &approvals.iter().map(row).collect::<Vec<_>>())
}
