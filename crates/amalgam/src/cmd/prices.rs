//! `amalgam prices`: prices of models that were imported. A running server uses them within seconds.

use std::path::PathBuf;
use std::process::ExitCode;

use amalgam_administration::prices::PriceView;
use clap::{Args, Subcommand};

use crate::cli::StoreArgs;
use crate::command_context::{CommandContext, read_text};
use crate::table::table;
use crate::terminal::{print_list, print_object, print_stdout};

#[derive(Debug, Args)]
pub(crate) struct PricesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Import a price list in LiteLLM's format (model_prices_and_context_window.json)
    Import {
        /// JSON file; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// List configured and imported prices, in USD per million tokens
    List {
        #[command(flatten)]
        common: StoreArgs,
    },
}

pub(crate) async fn run(args: PricesArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Import { file, common } => {
            let text = read_text(&file)?;
            let context = CommandContext::open(common.config).await?;
            let report = context.administration().import_prices(&context.operator(), &text).await?;
            if common.json {
                print_object(&report)?;
                return Ok(ExitCode::SUCCESS);
            }
            if !report.imported.is_empty() {
                print_stdout(as_table(&report.imported))?;
            }
            for skipped in &report.skipped {
                print_stdout(format_args!("skipped {}: {}", skipped.model, skipped.reason))?;
            }
            for tiered in &report.tiered {
                let rates = tiered.rates.join(", ");
                print_stdout(format_args!(
                    "{}: not applied, so calls may cost more than is booked: {rates}",
                    tiered.model
                ))?;
            }
            print_stdout(format_args!(
                "imported {} prices, skipped {}; running servers use them within 5 seconds",
                report.imported.len(),
                report.skipped.len()
            ))?;
        }
        Action::List { common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let configured = context.config.models.iter().filter_map(|model| {
                let name = format!("{}/{}", model.upstream, model.model);
                Some(PriceView::new(name, model.price?, "configuration"))
            });
            let mut prices: Vec<PriceView> = configured.collect();
            prices.extend(context.administration().imported_prices(&context.operator()).await?);
            match common.json {
                true => print_list(&prices)?,
                false => print_stdout(as_table(&prices))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_table(prices: &[PriceView]) -> String {
    let row = |price: &PriceView| {
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        [
            price.model.clone(),
            rate(Some(price.input)),
            rate(price.cached_input),
            rate(price.cache_write),
            rate(Some(price.output)),
            rate(price.reasoning),
            price.source.to_owned(),
        ]
    };
    let headings = ["model", "input", "cached input", "cache write", "output", "reasoning", "source"];
    table(headings, &prices.iter().map(row).collect::<Vec<_>>())
}
