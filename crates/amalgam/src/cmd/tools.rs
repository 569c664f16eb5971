//! `amalgam tools`: the tool bank. A running server sees a change with the next turn.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use amalgam_administration::{
    all_pages,
    tool_bank::{BankScope, ToolBank, ToolView},
};
use amalgam_core::{Clock, Scope, Seal, duration_to_text};
use amalgam_store::Sealer;
use amalgam_tools::ToolRegistry;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::command_context::{CommandContext, actor, now_ms, read_text};
use crate::table::{moment, table};
use crate::terminal::{print_json, print_json_text, print_list, print_object, print_stderr, print_stdout};
use crate::wire_up::{self, SystemClock};

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List a tenant's own tools and the common tools
    List {
        #[command(flatten)]
        place: ToolTarget,
    },
    /// Print a tool as JSON, without its secrets
    Show {
        /// Tool name
        name: String,
        #[command(flatten)]
        place: ToolTarget,
    },
    /// Add the tool in a file, or replace the tool of the same name
    Put {
        /// JSON file with one tool, in the format of `tools show`; - for standard input
        #[arg(value_name = "FILE.json")]
        file: PathBuf,
        #[command(flatten)]
        place: ToolTarget,
    },
    /// Remove a tool from the bank
    Delete {
        /// Tool name
        name: String,
        #[command(flatten)]
        place: ToolTarget,
    },
    /// Print statistics on a tenant's calls of a tool
    Statistics {
        /// Tool name
        name: String,
        /// Only calls since this Unix time, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        since: u64,
        #[command(flatten)]
        place: ToolTarget,
    },
    /// Run a tool once, active or not
    Try {
        /// Tool name
        name: String,
        /// Arguments of the call: a JSON object
        #[arg(long, value_name = "JSON", default_value = "{}")]
        arguments: String,
        #[command(flatten)]
        place: ToolTarget,
    },
}

/// Arguments that all commands on tools share.
#[derive(Debug, Args)]
struct ToolTarget {
    /// Tenant id
    #[arg(
        long = "tenant",
        value_name = "ID",
        visible_alias = "company-id",
        required_unless_present = "common",
        conflicts_with = "common"
    )]
    tenant_id: Option<i64>,
    /// Use the common tools of the installation, which all tenants share
    #[arg(long)]
    common: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ToolsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { place } => {
            let (context, json) = BankContext::look(place).await?;
            list(&context, json).await
        }
        Action::Show { name, place } => {
            let (context, _) = BankContext::look(place).await?;
            print_object(&context.bank().tool(&context.scope, context.whose, &name).await?)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Put { file, place } => {
            let text = read_text(&file)?;
            let (context, json) = BankContext::open(place).await?;
            put(&context, text, json).await
        }
        Action::Delete { name, place } => {
            let (context, json) = BankContext::open(place).await?;
            context.bank().delete(&context.scope, context.whose, &name).await?;
            match json {
                true => print_json(&json!({"id": name, "object": "tool.deleted", "deleted": true}))?,
                false => print_stdout(format_args!("removed {name}"))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Statistics { name, since, place } => {
            let (context, _) = BankContext::look(place).await?;
            print_object(&context.bank().statistics(&context.scope, context.whose, &name, since).await?)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Try { name, arguments, place } => {
            let (context, json) = BankContext::open(place).await?;
            let ended = try_out(&context, &name, arguments, json).await;
            context.tool_registry.close().await;
            ended
        }
    }
}

/// The context of commands on the tool bank.
struct BankContext {
    command: CommandContext,
    tool_registry: Arc<ToolRegistry>,
    scope: Scope,
    whose: BankScope,
}

impl BankContext {
    /// Opens the store for writing. Also returns whether to print JSON.
    async fn open(place: ToolTarget) -> anyhow::Result<(Self, bool)> {
        let command = CommandContext::open(place.config.clone()).await?;
        let seal = wire_up::sealer(&command.config)?;
        Self::of(command, seal, place).await
    }

    /// Opens the store read-only: creates neither a database nor a master key.
    async fn look(place: ToolTarget) -> anyhow::Result<(Self, bool)> {
        let command = CommandContext::open_read_only(place.config.clone()).await?;
        let seal = wire_up::existing_sealer(&command.config)?;
        Self::of(command, seal, place).await
    }

    async fn of(command: CommandContext, seal: Sealer, place: ToolTarget) -> anyhow::Result<(Self, bool)> {
        let (scope, whose) = match place.tenant_id {
            Some(tenant_id) => (command.administrator(tenant_id).await?, BankScope::Own),
            None => (command.operator(), BankScope::Common),
        };
        let seal: Arc<dyn Seal> = Arc::new(seal);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let names = wire_up::names(&command.config, &seal, &*clock)?;
        let knowledge = wire_up::knowledge(&command.store, names, &wire_up::clock());
        let server = &command.config.server;
        let url = server.listen.url(if server.tls.is_some() { "https" } else { "http" });
        let tool_registry = wire_up::tool_registry(&command.config, &command.store, &knowledge, &seal, &clock, &url)?;
        Ok((Self { command, tool_registry, scope, whose }, place.json))
    }

    fn bank(&self) -> ToolBank<'_> {
        ToolBank { store: &*self.command.store, toolbox: &*self.tool_registry, now_ms: now_ms(), actor: actor() }
    }
}

async fn list(context: &BankContext, json: bool) -> anyhow::Result<ExitCode> {
    let bank = context.bank();
    let tools = all_pages(async |page| bank.list(&context.scope, context.whose, &page).await).await?;
    match json {
        true => print_list(&tools)?,
        false => print_stdout(as_table(&tools))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn put(context: &BankContext, text: String, json: bool) -> anyhow::Result<ExitCode> {
    let (tool, new) = context.bank().put(&context.scope, context.whose, None, &text.into()).await?;
    match (json, new) {
        (true, _) => print_object(&tool)?,
        (false, true) => print_stdout(format_args!("added {} to the bank", tool.name))?,
        (false, false) => print_stdout(format_args!("replaced {} in the bank", tool.name))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn try_out(context: &BankContext, name: &str, arguments: String, json: bool) -> anyhow::Result<ExitCode> {
    let trial = context.bank().try_out(&context.scope, context.whose, name, &arguments.into()).await?;
    match (&trial.error, trial.output()) {
        _ if json => print_object(&trial)?,
        (None, Some(output)) => print_json_text(output.raw().text())?,
        (None, None) => {}
        (Some(error), _) => {
            let detail = error.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            print_stderr(format_args!("{}: {}{detail}", error.code, error.message));
        }
    }
    Ok(if trial.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_table(tools: &[ToolView]) -> String {
    let row = |tool: &ToolView| {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        [
            tool.name.clone(),
            tool.kind.0.name().to_owned(),
            if tool.common { "common" } else { "own" }.to_owned(),
            yes(tool.active),
            duration_to_text(tool.timeout.0),
            yes(tool.idempotent),
            tool.requires_approval.0.map_or("-", |decider| decider.name()).to_owned(),
            moment(Some(tool.updated_at.to_ms())),
        ]
    };
    let headings = ["name", "kind", "bank", "active", "timeout", "idempotent", "approval", "updated"];
    table(headings, &tools.iter().map(row).collect::<Vec<_>>())
}
