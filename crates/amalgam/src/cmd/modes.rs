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
use crate::terminal::{print_json, print_json_text, print_list, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct ModesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List a tenant's own modes and the built-in modes
    List {
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Print a mode as JSON
    Show {
        /// Mode name
        name: String,
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Add the mode in a file, or replace the mode of the same name
    Put {
        /// JSON file with one mode, in the format of `modes show`; - for standard input
        #[arg(value_name = "FILE.json")]
        file: PathBuf,
        #[command(flatten)]
        place: ModeTarget,
    },
    /// Remove a tenant's own mode; a built-in mode of the same name applies again
    Delete {
        /// Mode name
        name: String,
        #[command(flatten)]
        place: ModeTarget,
    },
}

/// Arguments that all commands on modes share.
#[derive(Debug, Args)]
struct ModeTarget {
    /// Tenant id
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
            print_json_text(found.show().raw().text())?;
        }
        Action::Put { file, place } => {
            let text = read_text(&file)?;
            let (context, json) = ModesContext::open(place).await?;
            let (kept, new) = context.modes().put(&context.scope, None, &text.into()).await?;
            match (json, new) {
                (true, _) => print_json_text(kept.show().raw().text())?,
                (false, true) => print_stdout(format_args!("added mode {}", kept.mode.name))?,
                (false, false) => {
                    print_stdout(format_args!("replaced mode {}", kept.mode.name))?;
                }
            }
        }
        Action::Delete { name, place } => {
            let (context, json) = ModesContext::open(place).await?;
            let seeded = context.modes().delete(&context.scope, &name).await?;
            match (json, seeded) {
                (true, _) => print_json(&json!({"id": name, "object": "mode.deleted", "deleted": true}))?,
                (false, false) => print_stdout(format_args!("removed {name}"))?,
                (false, true) => print_stdout(format_args!("removed {name}; the built-in mode applies again"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The context of commands on a tenant's modes.
struct ModesContext {
    command: CommandContext,
    scope: Scope,
}

impl ModesContext {
    /// Opens the store for writing. Also returns whether to print JSON.
    async fn open(place: ModeTarget) -> anyhow::Result<(Self, bool)> {
        let command = CommandContext::open(place.config.clone()).await?;
        Self::of(command, place).await
    }

    /// Opens the store read-only.
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
        true => print_list(found.iter().map(ModeListing::show))?,
        false => print_stdout(as_table(&found))?,
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
