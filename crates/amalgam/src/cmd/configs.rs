//! `amalgam configs`: the assistant settings of tenants.

use std::process::ExitCode;
use std::sync::Arc;

use amalgam_administration::all_pages;
use amalgam_administration::configs::{ConfigView, config_of};
use amalgam_app::TenantConfigs;
use amalgam_core::store::Page;
use amalgam_core::{Operator, Seal};
use clap::{Args, Subcommand};

use crate::cli::{StoreArgs, TenantArgs};
use crate::command_context::{CommandContext, now_ms};
use crate::terminal::{print_list, print_object};
use crate::wire_up::{self, SystemClock};

#[derive(Debug, Args)]
pub(crate) struct ConfigsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the settings of all tenants, as JSON
    List {
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Print the settings of a tenant and their effective values, as JSON
    Show {
        #[command(flatten)]
        common: TenantArgs,
    },
}

pub(crate) async fn run(args: ConfigsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let (administration, operator) = (context.administration(), Operator::of_this_process());
            let tenants = all_pages(async |page: Page| administration.tenants(operator, &page).await).await?;
            let mut configs = Vec::with_capacity(tenants.len());
            for tenant in tenants {
                configs.push(config(&context, tenant.id).await?);
            }
            print_list(&configs)?;
        }
        Action::Show { common } => {
            let context = CommandContext::open_read_only(common.config.clone()).await?;
            print_object(&config(&context, common.tenant_id).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn config(context: &CommandContext, tenant_id: i64) -> anyhow::Result<ConfigView> {
    let scope = context.administrator(tenant_id).await?;
    let seal: Arc<dyn Seal> = Arc::new(wire_up::sealer(&context.config)?);
    let names = wire_up::names(&context.config, &seal, &SystemClock)?;
    let configs = TenantConfigs { store: &*context.store, settings: &context.config.assistant, now_ms: now_ms() };
    Ok(config_of(&configs, &*names, &scope).await?)
}
