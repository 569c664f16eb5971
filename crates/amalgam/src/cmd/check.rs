//! `amalgam check`: checks the configuration and prints the effective values.

mod assistant;

use std::process::ExitCode;
use std::sync::Arc;

use amalgam_core::Store;
use clap::Args;
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::storage::{self, StoreStatus};
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::{
    Config, ConfigFault, ConfigFaults, DisplayedValue, LoadedConfig, Setting, Sources, ValueOrigin,
};
use assistant::Assistant;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Also print the effective assistant settings of this tenant id
    #[arg(long, value_name = "ID", visible_alias = "company-id")]
    tenant: Option<i64>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = Sources::gather(args.config.into()).and_then(|sources| Config::load(&sources));
    match loaded {
        Ok(mut loaded) => {
            let (state, store) = store_state(&mut loaded).await;
            let assistant = match args.tenant {
                Some(tenant_id) => Some(Assistant::of(&loaded.config, store, tenant_id).await?),
                None => None,
            };
            if args.json {
                let mut report = as_json(&loaded, state);
                if let Some(assistant) = &assistant {
                    report["assistant"] = assistant.as_json();
                }
                print_json(&report)?;
            } else {
                for warning in &loaded.warnings {
                    print_stderr(format_args!("warning: {warning}"));
                }
                print_stdout(as_text(&loaded))?;
                if let Some(assistant) = &assistant {
                    print_stdout(assistant.as_text())?;
                }
            }
        }
        Err(faults) if args.json => {
            print_json(&faults_as_json(&faults))?;
            return Ok(ExitCode::from(crate::USAGE));
        }
        Err(faults) => return Err(faults.into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The status of the store in a word. An unreachable store is not an error of the configuration: it may be available
/// later.
async fn store_state(loaded: &mut LoadedConfig) -> (&'static str, Option<Arc<dyn Store>>) {
    let (look, store) = storage::inspect(&loaded.config.store, loaded.config.pool).await;
    let state = match look {
        StoreStatus::Absent => "absent",
        StoreStatus::Outdated { pending } => {
            loaded.warnings.push(format!("the store has {pending} pending migrations; the next start applies them"));
            "behind"
        }
        StoreStatus::Ready { warnings, .. } => {
            loaded.warnings.extend(warnings);
            "ready"
        }
        StoreStatus::Unusable(error) => {
            loaded.warnings.push(format!("the store cannot be used: {error:#}"));
            "unusable"
        }
    };
    (state, store)
}

/// Three columns: key, value, origin.
fn as_text(loaded: &LoadedConfig) -> String {
    let rows: Vec<[String; 3]> = loaded
        .settings
        .iter()
        .map(|setting| [setting.key.clone(), shown_as_text(&setting.value), setting.origin.to_string()])
        .collect();
    let heading = match &loaded.config.file {
        Some(path) => format!("{} is valid\n", path.display()),
        None => "the configuration is valid (no file)\n".to_owned(),
    };
    heading + &columns(&rows)
}

/// Formats rows as lines with aligned columns.
fn columns(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    // One very long value must not push every origin off the screen.
    let (keys, values) = (width(0), width(1).min(48));
    let line = |[key, value, origin]: &[String; 3]| format!("\n{key:keys$}  {value:values$}  {origin}");
    rows.iter().map(line).collect()
}

fn shown_as_text(shown: &DisplayedValue) -> String {
    match shown {
        DisplayedValue::Value(value) => value_as_text(value),
        DisplayedValue::Unset(meaning) => format!("({meaning})"),
    }
}

fn value_as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(value_as_text).collect::<Vec<_>>().join(", ")),
        Value::Object(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(name, value)| format!("{name} = {}", value_as_text(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

fn as_json(loaded: &LoadedConfig, store: &str) -> Value {
    json!({
        "valid": true,
        "file": loaded.config.file,
        "settings": loaded.settings.iter().map(Setting::view).collect::<Vec<_>>(),
        "store": store,
        "warnings": loaded.warnings,
    })
}

fn faults_as_json(faults: &ConfigFaults) -> Value {
    let fault = |fault: &ConfigFault| {
        let mut object = origin_as_json(&fault.origin);
        object["message"] = json!(fault.message);
        object
    };
    json!({"valid": false, "faults": faults.iter().map(fault).collect::<Vec<_>>()})
}

fn origin_as_json(origin: &ValueOrigin) -> Value {
    match origin {
        ValueOrigin::File { path, line } => json!({"origin": "file", "file": path, "line": line}),
        ValueOrigin::Variable(name) => json!({"origin": "environment", "variable": name}),
        ValueOrigin::Flag(name) => json!({"origin": "flag", "flag": name}),
        ValueOrigin::Default => json!({"origin": "default"}),
    }
}
