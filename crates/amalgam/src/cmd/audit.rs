//! `amalgam audit`: lists the changes of the administration, and checks that their chain is intact.

use std::process::ExitCode;

use amalgam_administration::audit::{AuditEntryView, AuditQuery};
use amalgam_core::{
    Operator,
    store::{Order, Page},
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use crate::cli::StoreArgs;
use crate::command_context::CommandContext;
use crate::table::{moment, table};
use crate::terminal::{print_list, print_object, print_stderr, print_stdout};

/// The number of entries that one query reads.
const PAGE: usize = 200;

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List changes by the API, by commands and by servers, newest first
    List(ListArgs),
    /// Check that no entry was changed, removed or reordered; fails if one was
    Verify {
        /// Number and hash of an entry, as an earlier `audit verify` printed them: it must still be there
        #[arg(long, value_name = "NUMBER:HASH")]
        expect: Option<String>,
        #[command(flatten)]
        common: StoreArgs,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only objects of this tenant
    #[arg(long, value_name = "ID", visible_alias = "company-id")]
    tenant: Option<i64>,
    /// Only changes by this key, this user, or by key, command or server
    #[arg(long)]
    actor: Option<String>,
    /// Only this type of object, such as mode, or one object, such as mode/review
    #[arg(long)]
    object: Option<String>,
    /// Not before this time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// At most this many entries
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    common: StoreArgs,
}

pub(crate) async fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List(args) => list(args).await,
        Action::Verify { expect, common } => verify(expect.as_deref(), common).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let ListArgs { tenant, actor, object, from, to, limit, common } = args;
    let context = CommandContext::open_read_only(common.config).await?;
    let (administration, scope) = (context.administration(), context.operator());
    let query =
        AuditQuery { actor: actor.as_deref(), object: object.as_deref(), from: from.as_deref(), to: to.as_deref() };
    let mut entries: Vec<AuditEntryView> = Vec::new();
    while entries.len() < limit {
        let after = entries.last().map(|entry| entry.id.clone());
        let page = Page { after, limit: PAGE.min(limit - entries.len()), order: Order::Descending };
        let found = administration.audit(&scope, tenant, query, &page).await?;
        let last = found.data.len() < page.limit;
        entries.extend(found.data);
        if last {
            break;
        }
    }
    match common.json {
        true => print_list(&entries)?,
        false => print_stdout(as_table(&entries))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn verify(expect: Option<&str>, common: StoreArgs) -> anyhow::Result<ExitCode> {
    let expected = expect.map(expected).transpose()?;
    let context = CommandContext::open_read_only(common.config).await?;
    let found = context.administration().verify_audit(Operator::of_this_process(), expected).await?;
    match common.json {
        true => print_object(&found)?,
        false => {
            found.breaks.iter().for_each(|found| print_stderr(&found.message));
            print_stdout(match found.valid {
                true => {
                    format!("{} entries are intact; the last is {}:{}", found.rows, found.last_number, found.last_hash)
                }
                false => format!("{} entries, {} problems", found.rows, found.breaks.len()),
            })?;
        }
    }
    Ok(if found.valid { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) })
}

fn expected(text: &str) -> anyhow::Result<(u64, &str)> {
    let (number, hash) = text.split_once(':').context("--expect is NUMBER:HASH")?;
    let number = number.parse().ok().filter(|number| *number > 0).context("the number of an entry begins at 1")?;
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("a hash has 64 hexadecimal digits");
    }
    Ok((number, hash))
}

fn as_table(entries: &[AuditEntryView]) -> String {
    let row = |entry: &AuditEntryView| {
        let actor = &entry.actor;
        let who = actor.key_id.as_ref().or(actor.user.as_ref()).unwrap_or(&actor.kind).clone();
        [
            entry.number.map(|number| number.to_string()).unwrap_or_default(),
            moment(Some(entry.created_at.to_ms())),
            who,
            actor.origin.clone().unwrap_or_else(|| "-".to_owned()),
            entry.tenant_id.to_string(),
            entry.action.clone(),
            entry.target.id.clone(),
        ]
    };
    let headings = ["number", "time", "actor", "origin", "tenant", "action", "object"];
    table(headings, &entries.iter().map(row).collect::<Vec<_>>())
}
