//! `amalgam man --dir DIR`: manual pages, one for each command.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::terminal::print_stdout;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages; created if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: ManArgs) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.dir).with_context(|| format!("creating {}", args.dir.display()))?;
    // `help` has a page for each command again, and no flags of its own.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut count = 0;
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned());
        let man = Man::new(command).manual("Amalgam").source(concat!("amalgam ", env!("CARGO_PKG_VERSION")));
        let path = args.dir.join(man.get_filename());
        let mut page = Vec::new();
        man.render(&mut page).context("rendering a page")?;
        fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
        count += 1;
    }
    print_stdout(format_args!("{count} pages in {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
