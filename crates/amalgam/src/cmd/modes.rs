//! `amalgam modes`: the modes of a tenant. Sessions follow a change from their next turn on.

use std::path::PathBuf;
use std::process::ExitCode;

use amalgam_administration::{UnixSeconds, all_pages, modes::ModeView};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::TenantArgs;
use crate::command_context::{CommandContext, read_text};
use crate::table::{moment, table};
use crate::terminal::{print_json, print_list, print_object, print_stdout};

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
        place: TenantArgs,
    },
    /// Print a mode as JSON
    Show {
        /// Mode name
        name: String,
        #[command(flatten)]
        place: TenantArgs,
    },
    /// Add the mode in a file, or replace the mode of the same name
    Put {
        /// JSON file with one mode, in the format of `modes show`; - for standard input
        #[arg(value_name = "FILE.json")]
        file: PathBuf,
        #[command(flatten)]
        place: TenantArgs,
    },
    /// Remove a tenant's own mode; a built-in mode of the same name applies again
    Delete {
        /// Mode name
        name: String,
        #[command(flatten)]
        place: TenantArgs,
    },
}

pub(crate) async fn run(args: ModesArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { place } => {
            let (context, scope) = CommandContext::read_tenant(&place).await?;
            let administration = context.administration();
            let modes = all_pages(async |page| administration.modes(&scope, &page).await).await?;
            match place.json {
                true => print_list(&modes)?,
                false => print_stdout(as_table(&modes))?,
            }
        }
        Action::Show { name, place } => {
            let (context, scope) = CommandContext::read_tenant(&place).await?;
            print_object(&context.administration().mode(&scope, &name).await?)?;
        }
        Action::Put { file, place } => {
            let text = read_text(&file)?;
            let (context, scope) = CommandContext::open_tenant(&place).await?;
            let (mode, new) = context.administration().put_mode(&scope, None, &text.into()).await?;
            match (place.json, new) {
                (true, _) => print_object(&mode)?,
                (false, true) => print_stdout(format_args!("added mode {}", mode.name))?,
                (false, false) => print_stdout(format_args!("replaced mode {}", mode.name))?,
            }
        }
        Action::Delete { name, place } => {
            let (context, scope) = CommandContext::open_tenant(&place).await?;
            let seeded = context.administration().delete_mode(&scope, &name).await?;
            match (place.json, seeded) {
                (true, _) => print_json(&json!({"id": name, "object": "mode.deleted", "deleted": true}))?,
                (false, false) => print_stdout(format_args!("removed {name}"))?,
                (false, true) => print_stdout(format_args!("removed {name}; the built-in mode applies again"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_table(modes: &[ModeView]) -> String {
    let row = |mode: &ModeView| {
        let tools = mode.tools.iter().map(|tool| match mode.unknown_tools.contains(tool) {
            true => format!("{tool} (in no bank)"),
            false => tool.clone(),
        });
        let tools = tools.collect::<Vec<_>>().join(", ");
        [
            mode.name.clone(),
            mode.display_name.clone(),
            if mode.seeded { "seeded" } else { "own" }.to_owned(),
            if tools.is_empty() { "-".to_owned() } else { tools },
            moment(mode.updated_at.map(UnixSeconds::to_ms)),
        ]
    };
    table(["name", "display name", "from", "tools", "updated"], &modes.iter().map(row).collect::<Vec<_>>())
}
