//! The command line: commands and their shared arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cmd;
use amalgam_configuration::Flags;

/// An OpenAI-compatible Responses server and agent backend for any model.
#[derive(Debug, Parser)]
#[command(name = "amalgam", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server until SIGTERM or SIGINT
    Serve(cmd::serve::ServeArgs),
    /// Create, list and change tenants
    Tenants(cmd::tenants::TenantsArgs),
    /// Create, list and revoke API keys; rotate the master key
    Keys(cmd::keys::KeysArgs),
    /// Make links that sign a browser in to the console
    Console(cmd::console::ConsoleArgs),
    /// List, add, test and remove tools of the bank
    Tools(cmd::tools::ToolsArgs),
    /// List, add and remove a tenant's agent modes
    Modes(cmd::modes::ModesArgs),
    /// List, approve and deny tool calls that wait for approval
    Approvals(cmd::approvals::ApprovalsArgs),
    /// List changes of tenants, keys, tools and assistants; verify that the list is intact
    Audit(cmd::audit::AuditArgs),
    /// Seed tenants with the default tools, profiles and settings of the assistant
    Seed(cmd::seed::SeedArgs),
    /// The same as `seed tools`
    #[command(name = "seed_ai_agent_tools")]
    SeedTools(cmd::seed::SeedToolsArgs),
    /// The same as `seed profiles`
    #[command(name = "seed_ai_agent_profiles")]
    SeedProfiles(cmd::seed::SeedProfilesArgs),
    /// The same as `seed configs`
    #[command(name = "seed_ai_agent_configs")]
    SeedConfigs(cmd::seed::SeedConfigsArgs),
    /// Import and list the courses of a tenant's catalogue
    Courses(cmd::courses::CoursesArgs),
    /// Import, list, search and delete a tenant's knowledge
    Knowledge(cmd::knowledge::KnowledgeArgs),
    /// List, show and follow turns
    Turns(Box<cmd::turns::TurnsArgs>),
    /// Print turns, tokens and cost by tenant, key, user, model and more
    Usage(cmd::usage::UsageArgs),
    /// List, set and remove limits and budgets of tenants, keys, users and models
    Limits(cmd::limits::LimitsArgs),
    /// Import and list prices of models
    Prices(cmd::prices::PricesArgs),
    /// List and show the threads of a tenant's users
    Sessions(cmd::sessions::SessionsArgs),
    /// Print the assistant settings of tenants
    Configs(cmd::configs::ConfigsArgs),
    /// List and show the profiles of a tenant's assistants
    Profiles(cmd::profiles::ProfilesArgs),
    /// Chat with a tenant's assistant
    Chat(cmd::chat::ChatArgs),
    /// Migrate the store's schema to this version
    Migrate(cmd::migrate::MigrateArgs),
    /// Write a backup of the store to a file, also while a server runs; or verify one
    Backup(cmd::backup::BackupArgs),
    /// Replace the contents of the store by a backup
    Restore(cmd::restore::RestoreArgs),
    /// Copy a store from SQLite to PostgreSQL; run it again to resume after an interruption
    Copy(cmd::copy::CopyArgs),
    /// Delete stored turns, optionally with assistants, or everything
    Reset(cmd::reset::ResetArgs),
    /// Check the configuration and print the effective values with their origins
    Check(cmd::check::CheckArgs),
    /// Diagnose the installation: port, data folder, store, upstreams
    Doctor(cmd::doctor::DoctorArgs),
    /// Ask a running server whether it accepts work; exits with 0 or 1
    Health(cmd::health::HealthArgs),
    /// Print the server's OpenAPI document
    Openapi,
    /// Print a shell completion script
    Completion(cmd::completion::CompletionArgs),
    /// Write manual pages, one for each command
    Man(cmd::man::ManArgs),
    /// Print the version
    Version(cmd::version::VersionArgs),
}

/// Where the configuration comes from. Flags win over `AMALGAM_…` variables, which win over the file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [env: AMALGAM_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free port [env: AMALGAM_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Folder for all data on disk [env: AMALGAM_DATA] [default: amalgam-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Arguments of commands that work on the store and can print JSON.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The same for commands on one tenant.
#[derive(Debug, Clone, Args)]
pub(crate) struct TenantArgs {
    /// Tenant id
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    pub(crate) tenant_id: i64,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl From<ConfigArgs> for Flags {
    fn from(args: ConfigArgs) -> Self {
        Self { config: args.config, listen: args.listen, data: args.data }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
