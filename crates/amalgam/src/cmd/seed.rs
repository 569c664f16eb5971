//! `amalgam seed`: default tools, profiles and settings of assistants. All arguments are checked before anything is written,
//! and seeding is idempotent.

use std::process::ExitCode;
use std::sync::Arc;

use amalgam_administration::seeding::SeedOutcome;
use amalgam_assistant::{
    catalog::{PROFILES, TOOLS, ToolSeed, config_seed},
    settings::Fill,
};
use amalgam_core::{Fault, FaultKind, Operator, Seal};
use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::StoreArgs;
use crate::cmd::tenants;
use crate::command_context::{CommandContext, reworded};
use crate::default_model::DisplayedModel;
use crate::progress::Progress;
use crate::table::table;
use crate::terminal::{print_json, print_stdout};
use crate::wire_up::{self, SystemClock};

#[derive(Debug, Args)]
pub(crate) struct SeedArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add the tools of the course catalogue to the common bank
    Tools(SeedToolsArgs),
    /// Add the profiles home-assistant and course-assistant with their tools to tenants
    Profiles(SeedProfilesArgs),
    /// Fill in unset assistant settings of tenants
    Configs(SeedConfigsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SeedToolsArgs {
    /// Print the names of all tools and change nothing
    #[arg(long, conflicts_with = "tool")]
    list: bool,
    /// Only this tool; repeatable
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    #[command(flatten)]
    common: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SeedProfilesArgs {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    common: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SeedConfigsArgs {
    #[command(flatten)]
    targets: Targets,
    /// Overwrite existing values, but never an API key
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    common: StoreArgs,
}

/// The tenants that a command applies to.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Targets {
    /// Tenant id; repeatable
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: Vec<i64>,
    /// All tenants
    #[arg(long, visible_alias = "all-companies")]
    all_tenants: bool,
}

pub(crate) async fn run(args: SeedArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Tools(args) => tools(args).await,
        Action::Profiles(args) => profiles(args).await,
        Action::Configs(args) => configs(args).await,
    }
}

pub(crate) async fn tools(args: SeedToolsArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        match args.common.json {
            true => {
                let tool = |seed: &ToolSeed| json!({"name": seed.name, "description": seed.description});
                print_json(&json!({"object": "list", "data": TOOLS.iter().map(tool).collect::<Vec<_>>()}))?;
            }
            false => print_stdout(TOOLS.map(|seed| seed.name).join("\n"))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&args.tool)?;
    let context = CommandContext::open(args.common.config).await?;
    let seeded = put_tools(&context, &chosen).await?;
    match args.common.json {
        true => print_json(&json!({"object": "list", "data": tools_as_json(&seeded)}))?,
        false => {
            let rows: Vec<[String; 2]> =
                seeded.iter().map(|(name, outcome)| [(*name).to_owned(), outcome.name().to_owned()]).collect();
            print_stdout(table(["tool", "outcome"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn profiles(args: SeedProfilesArgs) -> anyhow::Result<ExitCode> {
    let context = CommandContext::open(args.common.config).await?;
    let targets = targets(&context, args.targets).await?;
    let tools = put_tools(&context, &TOOLS).await?;
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut report: Vec<Value> = Vec::new();
    let mut progress = Progress::of("tenants", targets.len());
    for tenant_id in targets {
        let mut seeded = Vec::new();
        for seed in PROFILES {
            let seeded_profile = context.administration().seed_profile(tenant_id, seed).await;
            let (outcome, profile) = found(seeded_profile, tenant_id)?;
            rows.push([
                tenant_id.to_string(),
                profile.slug.clone(),
                profile.version.to_string(),
                outcome.name().to_owned(),
            ]);
            seeded.push(json!({"slug": profile.slug, "version": profile.version, "outcome": outcome.name()}));
        }
        report.push(json!({"tenant_id": tenant_id, "profiles": seeded}));
        progress.add(1);
    }
    drop(progress);
    match args.common.json {
        true => print_json(&json!({"object": "list", "tools": tools_as_json(&tools), "data": report}))?,
        false => print_stdout(table(["tenant", "profile", "version", "outcome"], &rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn configs(args: SeedConfigsArgs) -> anyhow::Result<ExitCode> {
    let context = CommandContext::open(args.common.config).await?;
    let targets = targets(&context, args.targets).await?;
    let mut values = config_seed(&context.config.assistant);
    if values.model.is_none() {
        let seal: Arc<dyn Seal> = Arc::new(wire_up::existing_sealer(&context.config)?);
        let names = wire_up::names(&context.config, &seal, &SystemClock)?;
        values.model = Some(DisplayedModel::of(&context.config, &names).await.model).filter(|model| !model.is_empty());
    }
    let fill = if args.overwrite { Fill::Overwrite } else { Fill::Empty };
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut report: Vec<Value> = Vec::new();
    let mut progress = Progress::of("tenants", targets.len());
    for tenant_id in targets {
        let changed = found(context.administration().fill_settings(tenant_id, &values, fill).await, tenant_id)?;
        let names = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
        rows.push([tenant_id.to_string(), names]);
        report.push(json!({"tenant_id": tenant_id, "changed": changed}));
        progress.add(1);
    }
    drop(progress);
    match args.common.json {
        true => print_json(&json!({"object": "list", "data": report}))?,
        false => print_stdout(table(["tenant", "changed"], &rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn found<T>(result: Result<T, Fault>, tenant_id: i64) -> anyhow::Result<T> {
    reworded(result, FaultKind::NotFound, || format!("there is no tenant {tenant_id}"))
}

/// The tools with these names, each once; all tools if no name is given.
fn chosen(names: &[String]) -> anyhow::Result<Vec<ToolSeed>> {
    let unknown: Vec<&str> = names.iter().map(String::as_str).filter(|name| ToolSeed::named(name).is_none()).collect();
    if !unknown.is_empty() {
        let known = TOOLS.map(|seed| seed.name).join(", ");
        bail!("there is no tool {}; there are {known}", unknown.join(", "));
    }
    let is_meant = |seed: &ToolSeed| names.is_empty() || names.iter().any(|name| name == seed.name);
    Ok(TOOLS.into_iter().filter(is_meant).collect())
}

async fn put_tools(context: &CommandContext, seeds: &[ToolSeed]) -> anyhow::Result<Vec<(&'static str, SeedOutcome)>> {
    let mut seeded = Vec::new();
    for seed in seeds {
        seeded.push((seed.name, context.administration().seed_tool(*seed).await?));
    }
    Ok(seeded)
}

/// The tenants that the flags select, each once. Fails if one does not exist.
async fn targets(context: &CommandContext, targets: Targets) -> anyhow::Result<Vec<i64>> {
    if targets.all_tenants {
        return Ok(tenants::all(context.administration()).await?.iter().map(|tenant| tenant.id).collect());
    }
    let mut ids = targets.tenant_id;
    ids.sort_unstable();
    ids.dedup();
    let mut unknown = Vec::new();
    for id in &ids {
        if context.store.tenant(Operator::of_this_process(), *id).await?.is_none() {
            unknown.push(id.to_string());
        }
    }
    match unknown.is_empty() {
        true => Ok(ids),
        false => bail!("there is no tenant {}", unknown.join(", ")),
    }
}

fn tools_as_json(seeded: &[(&str, SeedOutcome)]) -> Vec<Value> {
    seeded.iter().map(|(name, outcome)| json!({"name": name, "outcome": outcome.name()})).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn tools_are_chosen_by_name_and_all_unknown_names_are_reported() {
        // RNCC-43
        let names = |chosen: &[&str]| -> anyhow::Result<Vec<&str>> {
            let chosen: Vec<String> = chosen.iter().map(|name| (*name).to_owned()).collect();
            Ok(super::chosen(&chosen)?.iter().map(|seed| seed.name).collect())
        };
        assert_eq!(names(&[]).unwrap(), ["get_course_detail", "get_course_recommendation", "search_knowledge"]);
        assert_eq!(names(&["get_course_detail", "get_course_detail"]).unwrap(), ["get_course_detail"]);
        let error = names(&["get_course_detail", "get_curse"]).unwrap_err().to_string();
        assert!(error.contains("get_curse") && error.contains("get_course_recommendation"), "{error}");
    }
}
