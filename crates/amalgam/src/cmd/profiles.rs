//! `amalgam profiles`: the profiles of a tenant's assistants.

use std::process::ExitCode;

use amalgam_administration::all_pages;
use amalgam_administration::profiles::{ProfileView, Profiles};
use amalgam_core::Scope;
use amalgam_core::store::Page;
use clap::{Args, Subcommand};

use crate::cli::TenantArgs;
use crate::command_context::{CommandContext, actor, now_ms};
use crate::table::{moment, table};
use crate::terminal::{print_list, print_object, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct ProfilesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List a tenant's profiles, including inactive ones
    List {
        #[command(flatten)]
        common: TenantArgs,
    },
    /// Print a profile with its prompt, as JSON
    Show {
        /// Slug of the profile
        #[arg(value_name = "SLUG")]
        slug: String,
        #[command(flatten)]
        common: TenantArgs,
    },
}

pub(crate) async fn run(args: ProfilesArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            let profiles = profiles(&context, &scope);
            let list = all_pages(async |page: Page| profiles.list(&page).await).await?;
            match common.json {
                true => print_list(&list)?,
                false => print_stdout(as_table(&list))?,
            }
        }
        Action::Show { slug, common } => {
            let (context, scope) = CommandContext::read_tenant(&common).await?;
            print_object(&profiles(&context, &scope).profile(&slug).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn profiles<'a>(context: &'a CommandContext, tenant: &'a Scope) -> Profiles<'a> {
    Profiles { store: &*context.store, settings: &context.config.assistant, tenant, now_ms: now_ms(), actor: actor() }
}

fn as_table(profiles: &[ProfileView]) -> String {
    let row = |profile: &ProfileView| {
        [
            profile.slug.clone(),
            if profile.active { "active" } else { "inactive" }.to_owned(),
            profile.version.to_string(),
            profile.model.clone().unwrap_or_else(|| "-".to_owned()),
            profile.tools.len().to_string(),
            moment(Some(profile.updated_at.to_ms())),
        ]
    };
    table(["slug", "status", "version", "model", "tools", "updated"], &profiles.iter().map(row).collect::<Vec<_>>())
}
