//! `amalgam reset`: removes what turns have written, or everything. Asks before.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use amalgam_core::Operator;
use amalgam_server::SEALED_MEMORIES;
use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::desk::Desk;
use crate::terminal::{say, say_json, tell};

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// What to remove
    #[arg(value_enum)]
    what: What,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Threads with assistants, sessions, responses, conversations, files, transcripts, events of all tenants
    Runtime,
    /// Everything: tenants, keys, profiles, modes, tools, settings, courses and knowledge too
    All,
}

impl What {
    fn told(self) -> &'static str {
        match self {
            Self::Runtime => {
                "all threads, sessions, responses, conversations, files, transcripts and events of all tenants"
            }
            Self::All => {
                "everything: all tenants, keys, threads, sessions, responses, conversations, files, profiles, modes, tools, \
                 settings, courses and knowledge"
            }
        }
    }
}

pub(crate) async fn run(args: ResetArgs) -> anyhow::Result<ExitCode> {
    let desk = Desk::open(args.config).await?;
    if !args.yes && !confirmed(args.what, &desk.config.store.to_string())? {
        tell("nothing was removed");
        return Ok(ExitCode::from(crate::FAILURE));
    }
    let operator = Operator::of_this_process();
    // Servers that run have what is remembered of keys in memory: a store without it would make another.
    let mut memories = Vec::new();
    for name in SEALED_MEMORIES {
        memories.extend(desk.store.remembered(operator, name).await?.map(|text| (name, text)));
    }
    desk.store.reset(operator, args.what == What::All).await?;
    for (name, text) in memories {
        desk.store.remember(operator, name, &text, true).await?;
    }
    let what = args.what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    match (args.json, args.what) {
        (true, _) => say_json(&json!({"reset": what}))?,
        (false, What::Runtime) => say("removed")?,
        (false, What::All) => say("removed; the next start of a server makes the first tenant and prints its key")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn confirmed(what: What, store: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("this removes {} in {store}; say --yes where nobody can be asked", what.told());
    }
    tell(format_args!("This removes {} in {store}.\nType yes to go on:", what.told()));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
