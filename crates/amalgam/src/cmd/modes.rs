//! `amalgam modes`: the modes of a tenant. Sessions follow a change from their next turn on.

use std::path::PathBuf;
use std::process::ExitCode;

use amalgam_core::Scope;
use amalgam_server::{ModeListing, Modes};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::command_context::{CommandContext, now_ms, read_text};
use crate::table::{moment, table};
use crate::terminal::{say, say_as_written, say_json, say_list};

#[derive(Debug, Args)]
pub(crate) struct ModesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the modes of a tenant, its own and those that every tenant has
    List {
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Show a mode, as JSON
    Show {
        /// The mode's name
        name: String,
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Keep the mode that a file describes, in the place of the one of its name
    Put {
        /// A file with the JSON of one mode, as `modes show` tells it; - for standard input
        #[arg(value_name = "FILE.json")]
        file: PathBuf,
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Take a mode of the tenant's own away; one that every tenant has comes back
    Delete {
        /// The mode's name
        name: String,
        #[command(flatten)]
        place: ModeTarget,
    },
}

/// Whose modes are meant, and what every command on them takes.
#[derive(Debug, Args)]
struct ModeTarget {
    /// The tenant, by its number
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: i64,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: ModesArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { place } => {
            let (context, json) = ModesContext::look(place).await?;
            list(&context, json).await?;
        }
        Action::Show { name, place } => {
            let (context, _) = ModesContext::look(place).await?;
            let found = context.modes().mode(&context.scope, &name).await?;
            say_as_written(found.show().raw().text())?;
        }
        Action::Put { file, place } => {
            let text = read_text(&file)?;
            let (context, json) = ModesContext::open(place).await?;
            let (kept, new) = context.modes().put(&context.scope, None, &text.into()).await?;
            match (json, new) {
                (true, _) => say_as_written(kept.show().raw().text())?,
                (false, true) => say(format_args!("{} is a mode of the tenant", kept.mode.name))?,
                (false, false) => {
                    say(format_args!("{} is a mode of the tenant, in the place of the one before", kept.mode.name))?;
                }
            }
        }
        Action::Delete { name, place } => {
            let (context, json) = ModesContext::open(place).await?;
            let seeded = context.modes().delete(&context.scope, &name).await?;
            match (json, seeded) {
                (true, _) => say_json(&json!({"id": name, "object": "mode.deleted", "deleted": true}))?,
                (false, false) => say(format_args!("{name} is gone"))?,
                (false, true) => say(format_args!("{name} is gone; the one that every tenant has is back"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where a command deals with the modes of a tenant.
struct ModesContext {
    command: CommandContext,
    scope: Scope,
}

impl ModesContext {
    /// Opens the store to change something; whether JSON is to be printed.
    async fn open(place: ModeTarget) -> anyhow::Result<(Self, bool)> {
        let command = CommandContext::open(place.config.clone()).await?;
        Self::of(command, place).await
    }

    /// Opens the store to read from it alone.
    async fn look(place: ModeTarget) -> anyhow::Result<(Self, bool)> {
        let command = CommandContext::open_read_only(place.config.clone()).await?;
        Self::of(command, place).await
    }

    async fn of(command: CommandContext, place: ModeTarget) -> anyhow::Result<(Self, bool)> {
        let scope = command.administrator(place.tenant_id).await?;
        Ok((Self { command, scope }, place.json))
    }

    fn modes(&self) -> Modes<'_> {
        Modes { store: &*self.command.store, now_ms: now_ms() }
    }
}

async fn list(context: &ModesContext, json: bool) -> anyhow::Result<()> {
    let found = context.modes().list(&context.scope, None, usize::MAX).await?;
    match json {
        true => say_list(found.iter().map(ModeListing::show))?,
        false => say(as_table(&found))?,
    }
    Ok(())
}

fn as_table(found: &[ModeListing]) -> String {
    let row = |listed: &ModeListing| {
        let ModeListing { mode, seeded, unknown_tools } = listed;
        let tools = mode.tools.iter().map(|tool| match unknown_tools.contains(tool) {
            true => format!("{tool} (in no bank)"),
            false => tool.clone(),
        });
        let tools = tools.collect::<Vec<_>>().join(", ");
        [
            mode.name.clone(),
            mode.display_name.clone(),
            if *seeded { "seeded" } else { "own" }.to_owned(),
            if tools.is_empty() { "-".to_owned() } else { tools },
            moment((!seeded).then_some(mode.updated_at_ms)),
        ]
    };
    table(["name", "display name", "from", "tools", "updated"], &found.iter().map(row).collect::<Vec<_>>())
}
