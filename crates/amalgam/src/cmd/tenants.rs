//! `amalgam tenants`: creates, lists and changes tenants. A running server applies a change within seconds.

use std::process::ExitCode;

use amalgam_administration::{
    Administration, all_pages,
    tenants::{TenantView, is_tenant_name},
};
use amalgam_core::{Fault, FaultKind, Operator, TenantState, store::TenantChange};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::StoreArgs;
use crate::command_context::{CommandContext, reworded};
use crate::table::{moment, table};
use crate::terminal::{print_json, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a tenant
    Create {
        /// Display name
        #[arg(long)]
        name: String,
        /// Tenant id; the next free one by default
        #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
        id: Option<i64>,
        /// Whether responses are stored: stored or stateless
        #[arg(long, value_parser = state, default_value = "stored")]
        state: TenantState,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// List all tenants
    List {
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Change a tenant: ai_agent_enabled=true|false, state=stored|stateless, name=NAME
    Set {
        /// Tenant id
        id: i64,
        /// Values to set
        #[arg(required = true, value_name = "NAME=VALUE")]
        settings: Vec<String>,
        #[command(flatten)]
        common: StoreArgs,
    },
}

pub(crate) async fn run(args: TenantsArgs) -> anyhow::Result<ExitCode> {
    let operator = Operator::of_this_process();
    match args.action {
        Action::Create { name, id, state, common } => {
            let name = checked_name(&name)?;
            let context = CommandContext::open(common.config).await?;
            let created = context.administration().create_tenant(operator, id, name, state).await;
            let taken = || format!("there is a tenant {} already", id.unwrap_or_default());
            let tenant = reworded(created, FaultKind::Conflict, taken)?;
            show(&tenant, common.json)?;
        }
        Action::List { common } => {
            let tenants = all(CommandContext::open_read_only(common.config).await?.administration()).await?;
            match common.json {
                true => print_json(&json!({"object": "list", "data": tenants}))?,
                false => print_stdout(as_table(&tenants))?,
            }
        }
        Action::Set { id, settings, common } => {
            let change = change(&settings)?;
            let context = CommandContext::open(common.config).await?;
            let changed = context.administration().change_tenant(operator, id, change).await;
            show(&reworded(changed, FaultKind::NotFound, || format!("there is no tenant {id}"))?, common.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All tenants, ordered by id.
pub(super) async fn all(administration: Administration<'_>) -> Result<Vec<TenantView>, Fault> {
    all_pages(async |page| administration.tenants(Operator::of_this_process(), &page).await).await
}

fn state(text: &str) -> Result<TenantState, String> {
    TenantState::named(text).ok_or_else(|| "stored or stateless".to_owned())
}

fn checked_name(name: &str) -> anyhow::Result<&str> {
    if !is_tenant_name(name) {
        bail!("a name has 1 to 200 printable characters");
    }
    Ok(name)
}

fn change(settings: &[String]) -> anyhow::Result<TenantChange> {
    let mut change = TenantChange::default();
    for setting in settings {
        let (name, value) = setting.split_once('=').with_context(|| format!("'{setting}' is not NAME=VALUE"))?;
        match name {
            "name" => change.name = Some(checked_name(value)?.to_owned()),
            "state" => change.state = Some(state(value).map_err(|known| anyhow::anyhow!("state is {known}"))?),
            "ai_agent_enabled" => {
                change.ai_agent_enabled = Some(value.parse().ok().context("ai_agent_enabled is true or false")?);
            }
            _ => bail!("'{name}' cannot be set; name, state and ai_agent_enabled can"),
        }
    }
    Ok(change)
}

fn show(tenant: &TenantView, as_data: bool) -> std::io::Result<()> {
    match as_data {
        true => print_json(&json!(tenant)),
        false => print_stdout(as_table(std::slice::from_ref(tenant))),
    }
}

fn as_table(tenants: &[TenantView]) -> String {
    let row = |tenant: &TenantView| {
        let assistant = if tenant.ai_agent_enabled { "on" } else { "off" };
        [
            tenant.id.to_string(),
            tenant.name.clone(),
            tenant.state.0.name().to_owned(),
            assistant.to_owned(),
            moment(Some(tenant.created_at.to_ms())),
        ]
    };
    table(["id", "name", "state", "ai agent", "created"], &tenants.iter().map(row).collect::<Vec<_>>())
}
