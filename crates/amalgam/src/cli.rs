//! The command line: which commands there are and what they take.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cmd;
use crate::config::Flags;

/// One server for the Responses API over any model.
#[derive(Debug, Parser)]
#[command(name = "amalgam", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until a signal to stop
    Serve(cmd::serve::ServeArgs),
    /// Make, list and change tenants
    Tenants(cmd::tenants::TenantsArgs),
    /// Make, list and revoke keys; rotate the master key
    Keys(cmd::keys::KeysArgs),
    /// List, keep, try and take away the tools of the bank
    Tools(cmd::tools::ToolsArgs),
    /// List, keep and take away the modes that a tenant's agents can be in
    Modes(cmd::modes::ModesArgs),
    /// List the calls that wait for somebody to agree, and decide about them
    Approvals(cmd::approvals::ApprovalsArgs),
    /// Give tenants the tools, profiles and settings that an assistant begins with
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
    /// Import and list the courses that a tenant's assistant knows
    Courses(cmd::courses::CoursesArgs),
    /// Import, list, search and delete what a tenant's agents can look up
    Knowledge(cmd::knowledge::KnowledgeArgs),
    /// Talk to a tenant's assistant
    Chat(cmd::chat::ChatArgs),
    /// Bring the store's schema up to date
    Migrate(cmd::migrate::MigrateArgs),
    /// Remove what turns have written, with what assistants are made of, or everything
    Reset(cmd::reset::ResetArgs),
    /// Check the configuration and show every effective value with its origin
    Check(cmd::check::CheckArgs),
    /// Look for what would keep the server from working: port, data folder, store, upstreams
    Doctor(cmd::doctor::DoctorArgs),
    /// Print the OpenAPI document that the server publishes
    Openapi,
    /// Print a completion script for a shell
    Completion(cmd::completion::CompletionArgs),
    /// Print the version
    Version(cmd::version::VersionArgs),
}

/// Where the configuration comes from. Flags win over `AMALGAM_…` variables, which win over the file.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file [env: AMALGAM_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to serve on; port 0 takes a free one [env: AMALGAM_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Folder for everything that is kept on disk [env: AMALGAM_DATA] [default: amalgam-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
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
