//! The Amalgam server: parses the command line, runs one command, and turns its outcome into an exit code.
//!
//! 0: success; 1: failure; 2: invalid command line or configuration.

mod cli;
mod cmd;
mod command_context;
mod default_model;
mod identity_provider;
mod logs;
mod machine;
mod progress;
mod reload;
mod server_client;
mod storage;
mod table;
mod telemetry;
mod tenancy;
mod terminal;
mod wire_up;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use amalgam_configuration::ConfigFaults;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap reports help and version this way too, with an exit code of their own.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
    };
    let outcome = run(cli.command);
    amalgam_logs::flush();
    match outcome {
        Ok(code) => code,
        Err(error) => {
            terminal::print_stderr(format_args!("amalgam: {error:#}"));
            ExitCode::from(if error.is::<ConfigFaults>() { USAGE } else { FAILURE })
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => {
            let input = cmd::serve::load(&args)?;
            runtime()?.block_on(cmd::serve::run(input))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Tenants(args) => runtime()?.block_on(cmd::tenants::run(args)),
        Command::Keys(args) => runtime()?.block_on(cmd::keys::run(args)),
        Command::Console(args) => runtime()?.block_on(cmd::console::run(args)),
        Command::Tools(args) => runtime()?.block_on(cmd::tools::run(args)),
        Command::Modes(args) => runtime()?.block_on(cmd::modes::run(args)),
        Command::Approvals(args) => runtime()?.block_on(cmd::approvals::run(args)),
        Command::Audit(args) => runtime()?.block_on(cmd::audit::run(args)),
        Command::Seed(args) => runtime()?.block_on(cmd::seed::run(args)),
        Command::SeedTools(args) => runtime()?.block_on(cmd::seed::tools(args)),
        Command::SeedProfiles(args) => runtime()?.block_on(cmd::seed::profiles(args)),
        Command::SeedConfigs(args) => runtime()?.block_on(cmd::seed::configs(args)),
        Command::Courses(args) => runtime()?.block_on(cmd::courses::run(args)),
        Command::Knowledge(args) => runtime()?.block_on(cmd::knowledge::run(args)),
        Command::Turns(args) => runtime()?.block_on(cmd::turns::run(*args)),
        Command::Usage(args) => runtime()?.block_on(cmd::usage::run(args)),
        Command::Limits(args) => runtime()?.block_on(cmd::limits::run(args)),
        Command::Prices(args) => runtime()?.block_on(cmd::prices::run(args)),
        Command::Sessions(args) => runtime()?.block_on(cmd::sessions::run(args)),
        Command::Configs(args) => runtime()?.block_on(cmd::configs::run(args)),
        Command::Profiles(args) => runtime()?.block_on(cmd::profiles::run(args)),
        Command::Chat(args) => runtime()?.block_on(cmd::chat::run(args)),
        Command::Migrate(args) => runtime()?.block_on(cmd::migrate::run(args)),
        Command::Backup(args) => runtime()?.block_on(cmd::backup::run(args)),
        Command::Restore(args) => runtime()?.block_on(cmd::restore::run(args)),
        Command::Copy(args) => runtime()?.block_on(cmd::copy::run(args)),
        Command::Reset(args) => runtime()?.block_on(cmd::reset::run(args)),
        Command::Check(args) => runtime()?.block_on(cmd::check::run(args)),
        Command::Doctor(args) => runtime()?.block_on(cmd::doctor::run(args)),
        Command::Health(args) => runtime()?.block_on(cmd::health::run(args)),
        Command::Completion(args) => cmd::completion::run(args),
        Command::Openapi => cmd::openapi::run(),
        Command::Man(args) => cmd::man::run(args),
        Command::Version(args) => cmd::version::run(args),
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context as _;
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}
