//! `amalgam tools`: the tool bank. A running server sees a change with the next turn.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use amalgam_core::{Clock, Scope, Seal, duration_to_text, store::BankTool};
use amalgam_server::{BankScope, ToolBank};
use amalgam_store::Sealer;
use amalgam_tools::ToolRegistry;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::desk::{Desk, now_ms, read_text};
use crate::table::{moment, table};
use crate::terminal::{say, say_as_written, say_json, say_list, tell};
use crate::wire_up::{self, SystemClock};

/// How many tools are asked for at once.
const PAGE: usize = 200;

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the tools of a tenant, its own and the common ones
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Show a tool, as JSON and without its secrets
    Show {
        /// The tool's name
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Keep the tool that a file describes, in the place of the one of its name
    Put {
        /// A file with the JSON of one tool, as `tools show` tells it; - for standard input
        #[arg(value_name = "FILE.json")]
        file: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Take a tool out of the bank
    Delete {
        /// The tool's name
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Tell how the calls of a tool went, in one tenant
    Statistics {
        /// The tool's name
        name: String,
        /// Only calls since then, in seconds since 1970
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        since: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Run a tool once, active or not
    Try {
        /// The tool's name
        name: String,
        /// Its arguments: a JSON object
        #[arg(long, value_name = "JSON", default_value = "{}")]
        arguments: String,
        #[command(flatten)]
        place: Place,
    },
}

/// Whose tools are meant, and what every command on them takes.
#[derive(Debug, Args)]
struct Place {
    /// The tenant, by its number
    #[arg(
        long = "tenant",
        value_name = "ID",
        visible_alias = "company-id",
        required_unless_present = "common",
        conflicts_with = "common"
    )]
    tenant_id: Option<i64>,
    /// The installation's common tools, for all tenants
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
            let (counter, json) = Counter::look(place).await?;
            list(&counter, json).await
        }
        Action::Show { name, place } => {
            let (counter, _) = Counter::look(place).await?;
            let tool = counter.bank().tool(&counter.scope, counter.whose, &name).await?;
            say_as_written(counter.bank().show(&tool).raw().text())?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Put { file, place } => {
            let text = read_text(&file)?;
            let (counter, json) = Counter::open(place).await?;
            put(&counter, text, json).await
        }
        Action::Delete { name, place } => {
            let (counter, json) = Counter::open(place).await?;
            counter.bank().delete(&counter.scope, counter.whose, &name).await?;
            match json {
                true => say_json(&json!({"id": name, "object": "tool.deleted", "deleted": true}))?,
                false => say(format_args!("{name} is gone"))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Statistics { name, since, place } => {
            let (counter, _) = Counter::look(place).await?;
            let bank = counter.bank();
            let tool = bank.tool(&counter.scope, counter.whose, &name).await?;
            let found = bank.statistics(&counter.scope, &tool, since.saturating_mul(1000)).await?;
            say_as_written(found.raw().text())?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Try { name, arguments, place } => {
            let (counter, json) = Counter::open(place).await?;
            let ended = try_out(&counter, &name, arguments, json).await;
            counter.tool_registry.close().await;
            ended
        }
    }
}

/// Where a command deals with the bank.
struct Counter {
    desk: Desk,
    tool_registry: Arc<ToolRegistry>,
    scope: Scope,
    whose: BankScope,
}

impl Counter {
    /// Opens the store to change something; whether JSON is to be printed.
    async fn open(place: Place) -> anyhow::Result<(Self, bool)> {
        let desk = Desk::open(place.config.clone()).await?;
        let seal = wire_up::sealer(&desk.config)?;
        Self::of(desk, seal, place).await
    }

    /// Opens the store to read from it alone: neither a database nor a master key is made.
    async fn look(place: Place) -> anyhow::Result<(Self, bool)> {
        let desk = Desk::look(place.config.clone()).await?;
        let seal = wire_up::existing_sealer(&desk.config)?;
        Self::of(desk, seal, place).await
    }

    async fn of(desk: Desk, seal: Sealer, place: Place) -> anyhow::Result<(Self, bool)> {
        let (scope, whose) = match place.tenant_id {
            Some(tenant_id) => (desk.administrator(tenant_id).await?, BankScope::Own),
            None => (desk.operator(), BankScope::Common),
        };
        let seal: Arc<dyn Seal> = Arc::new(seal);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let names = wire_up::names(&desk.config, &seal, &*clock)?;
        let knowledge = wire_up::knowledge(&desk.store, &names);
        let listen = desk.config.server.listen;
        let tool_registry = wire_up::tool_registry(&desk.config, &desk.store, &knowledge, &seal, &clock, listen)?;
        Ok((Self { desk, tool_registry, scope, whose }, place.json))
    }

    fn bank(&self) -> ToolBank<'_> {
        ToolBank { store: &*self.desk.store, toolbox: &*self.tool_registry, now_ms: now_ms() }
    }
}

async fn list(counter: &Counter, json: bool) -> anyhow::Result<ExitCode> {
    let bank = counter.bank();
    let mut tools: Vec<BankTool> = Vec::new();
    loop {
        let after = tools.last().map(|tool| tool.name.clone());
        let page = bank.list(&counter.scope, counter.whose, after.as_deref(), PAGE).await?;
        let last = page.len() < PAGE;
        tools.extend(page);
        if last {
            break;
        }
    }
    match json {
        true => say_list(tools.iter().map(|tool| bank.show(tool)))?,
        false => say(as_table(&tools))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn put(counter: &Counter, text: String, json: bool) -> anyhow::Result<ExitCode> {
    let bank = counter.bank();
    let (tool, new) = bank.put(&counter.scope, counter.whose, None, &text.into()).await?;
    match (json, new) {
        (true, _) => say_as_written(bank.show(&tool).raw().text())?,
        (false, true) => say(format_args!("{} is in the bank", tool.name))?,
        (false, false) => say(format_args!("{} is in the bank, in the place of the one before", tool.name))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn try_out(counter: &Counter, name: &str, arguments: String, json: bool) -> anyhow::Result<ExitCode> {
    let bank = counter.bank();
    let tool = bank.tool(&counter.scope, counter.whose, name).await?;
    let trial = bank.try_out(&counter.scope, &tool, &arguments.into()).await?;
    let code = if trial.result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    match &trial.result {
        _ if json => say_as_written(trial.show().raw().text())?,
        Ok(output) => say_as_written(output.raw().text())?,
        Err(mishap) => {
            let detail = mishap.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            tell(format_args!("{}: {}{detail}", mishap.code, mishap.message));
        }
    }
    Ok(code)
}

fn as_table(tools: &[BankTool]) -> String {
    let row = |tool: &BankTool| {
        let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        [
            tool.name.clone(),
            tool.kind.name().to_owned(),
            if tool.common { "common" } else { "own" }.to_owned(),
            yes(tool.active),
            duration_to_text(tool.policy.timeout),
            yes(tool.policy.idempotent),
            tool.policy.requires_approval.map_or("-", |decider| decider.name()).to_owned(),
            moment(Some(tool.updated_at_ms)),
        ]
    };
    let headings = ["name", "kind", "bank", "active", "timeout", "idempotent", "approval", "updated"];
    table(headings, &tools.iter().map(row).collect::<Vec<_>>())
}
