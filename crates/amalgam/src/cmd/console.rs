//! `amalgam console`: one-time links that sign a browser in to the console of a running server.

use std::process::ExitCode;

use amalgam_administration::console::LINK_LIFETIME;
use amalgam_core::{FaultKind, Rights, store::ConsoleOwner};
use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use crate::cli::StoreArgs;
use crate::cmd::keys::right;
use crate::command_context::{CommandContext, reworded};
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::Config;

#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print a link that opens the console once, within 15 minutes
    Link(LinkArgs),
}

#[derive(Debug, Args)]
struct LinkArgs {
    /// Tenant id
    #[arg(long, value_name = "ID", visible_alias = "company-id", default_value_t = 1)]
    tenant: i64,
    /// Rights of the session: view, use, admin, operator; repeatable [default: use, admin, operator]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = right)]
    scopes: Vec<Rights>,
    /// Address of the server in the link [default: public_url, else the address of the administration]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    common: StoreArgs,
}

pub(crate) async fn run(args: ConsoleArgs) -> anyhow::Result<ExitCode> {
    let Action::Link(args) = args.action;
    let rights = match args.scopes.is_empty() {
        true => Rights::USE.and(Rights::ADMIN).and(Rights::OPERATOR),
        false => args.scopes.into_iter().fold(Rights::NONE, Rights::and),
    };
    let context = CommandContext::open(args.common.config).await?;
    let pepper = context.pepper().await?;
    let owner = ConsoleOwner { tenant_id: args.tenant, rights, key_id: None, key_hash: None };
    let token = context.administration().create_console_link(&pepper, owner).await;
    let token = reworded(token, FaultKind::NotFound, || format!("there is no tenant {}", args.tenant))?;
    let url = link(&args.url.unwrap_or_else(|| address(&context.config)), &token);
    if args.common.json {
        print_json(&json!({"url": url, "expires_in": LINK_LIFETIME.as_secs()}))?;
    } else {
        print_stdout(&url)?;
        print_stderr("the link opens the console once, within 15 minutes");
    }
    Ok(ExitCode::SUCCESS)
}

/// The address of the console with a token. The token is in the fragment, which a browser sends to no server.
pub(crate) fn link(address: &str, token: &SecretString) -> String {
    format!("{}/console/#link={}", address.trim_end_matches('/'), token.expose_secret())
}

/// The address of the configured server's administration.
fn address(config: &Config) -> String {
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    match (&config.server.public_url, config.is_local()) {
        (Some(url), true) => url.clone(),
        (None, true) => config.server.listen.url(scheme),
        (_, false) => config.server.admin_listen.url(scheme),
    }
}
