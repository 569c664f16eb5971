//! `amalgam reset`: deletes stored turns, optionally with assistants, or everything, after a confirmation.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use amalgam_core::{Operator, store::Reset};
use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::command_context::CommandContext;
use crate::terminal::{print_json, print_stderr, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// What to delete
    #[arg(value_enum)]
    what: ResetTarget,
    /// Only for this tenant id; repeatable
    #[arg(long, value_name = "ID", visible_alias = "company-id")]
    tenant: Vec<i64>,
    /// Skip the confirmation; `everything` needs --confirm instead
    #[arg(long)]
    yes: bool,
    /// Confirm with the name of the store, such as amalgam.db
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ResetTarget {
    /// Threads with assistants, sessions, responses, conversations, files, transcripts, events
    Runtime,
    /// The same with the profiles, tools and settings of assistants; `seed` restores them
    All,
    /// The whole store: tenants, keys, modes, courses and knowledge too
    Everything,
}

impl ResetTarget {
    fn described(self) -> &'static str {
        match self {
            Self::Runtime => "all threads, sessions, responses, conversations, files, transcripts and events",
            Self::All => {
                "all threads, sessions, responses, conversations, files, transcripts and events, and all profiles, tools \
                 and settings of assistants"
            }
            Self::Everything => {
                "everything: all tenants, keys, threads, sessions, responses, conversations, files, profiles, modes, tools, \
                 settings, courses and knowledge"
            }
        }
    }
}

pub(crate) async fn run(args: ResetArgs) -> anyhow::Result<ExitCode> {
    if args.what == ResetTarget::Everything && !args.tenant.is_empty() {
        bail!("'reset everything' applies to the whole store; 'reset all' and 'reset runtime' take --tenant");
    }
    let context = CommandContext::open(args.config.clone()).await?;
    for id in &args.tenant {
        if context.store.tenant(Operator::of_this_process(), *id).await?.is_none() {
            bail!("there is no tenant {id}");
        }
    }
    if !confirmed(&args, &context)? {
        print_stderr("nothing was removed");
        return Ok(ExitCode::from(crate::FAILURE));
    }
    let operator = Operator::of_this_process();
    match args.what {
        ResetTarget::Runtime => context.administration().reset(operator, Reset::Runtime(args.tenant.clone())).await?,
        ResetTarget::All => context.administration().reset(operator, Reset::Assistants(args.tenant.clone())).await?,
        ResetTarget::Everything => context.administration().reset_everything(operator).await?,
    }
    let what = args.what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    match (args.json, args.what) {
        (true, _) => print_json(&json!({"reset": what, "tenants": args.tenant}))?,
        (false, ResetTarget::Runtime) => print_stdout("removed")?,
        (false, ResetTarget::All) => {
            print_stdout("removed; 'amalgam seed profiles' and 'amalgam seed configs' restore the assistants")?
        }
        (false, ResetTarget::Everything) => {
            print_stdout("removed; the next start of a server makes the first tenant and prints its key")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the operator has confirmed: by `--yes`, by `--confirm NAME`, or at the prompt.
fn confirmed(args: &ResetArgs, context: &CommandContext) -> anyhow::Result<bool> {
    let (store, name) = (&context.config.store, context.config.store.name());
    if let Some(confirm) = &args.confirm {
        return match *confirm == name {
            true => Ok(true),
            false => bail!("--confirm says '{confirm}', but the store {store} is called '{name}'"),
        };
    }
    let everything = args.what == ResetTarget::Everything;
    if args.yes && !everything {
        return Ok(true);
    }
    let whose = match args.tenant.as_slice() {
        [] => "of all tenants".to_owned(),
        [one] => format!("of tenant {one}"),
        several => format!("of the tenants {}", several.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let removes = match everything {
        true => args.what.described().to_owned(),
        false => format!("{} {whose}", args.what.described()),
    };
    let (flag, word) =
        if everything { (format!("--confirm {name}"), name) } else { ("--yes".to_owned(), "yes".to_owned()) };
    if !io::stdin().is_terminal() {
        bail!("this removes {removes} in {store}; pass {flag} when there is no terminal");
    }
    print_stderr(format_args!("This removes {removes} in {store}.\nType {word} to continue:"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == word)
}
