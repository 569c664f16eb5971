//! `amalgam knowledge search`

use std::process::ExitCode;
use std::sync::Arc;

use amalgam_administration::knowledge::FoundChunkView;
use amalgam_core::{ComparisonOperator, Condition, RetrievalQuery, Seal};
use clap::Args;

use super::{KnowledgeContext, KnowledgeTarget};
use crate::command_context::CommandContext;
use crate::terminal::{print_object, print_stderr, print_stdout};
use crate::wire_up::{self, SystemClock};

/// The most lines of a chunk that are printed.
const LINES: usize = 6;
/// The most characters of a line that are printed.
const LINE: usize = 120;

#[derive(Debug, Args)]
pub(super) struct SearchArgs {
    /// Search text
    #[arg(value_name = "TEXT")]
    text: String,
    /// Only search these collections
    #[arg(long = "collection", value_name = "NAME")]
    collections: Vec<String>,
    /// Filter such as 'language == rust' or 'path contains src/'; repeatable
    #[arg(long = "where", value_name = "CONDITION", value_parser = condition)]
    conditions: Vec<Condition<'static>>,
    /// Number of results
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=50))]
    limit: u8,
    #[command(flatten)]
    place: KnowledgeTarget,
}

pub(super) async fn run(args: SearchArgs) -> anyhow::Result<ExitCode> {
    let context =
        KnowledgeContext::open(args.place.tenant_id, CommandContext::open_read_only(args.place.config).await?).await?;
    let scope = context.command.administrator(context.tenant_id).await?;
    let seal: Arc<dyn Seal> = Arc::new(wire_up::existing_sealer(&context.command.config)?);
    let names = wire_up::names(&context.command.config, &seal, &SystemClock)?;
    let lookup = RetrievalQuery {
        text: &args.text,
        collections: &args.collections,
        conditions: &args.conditions,
        limit: usize::from(args.limit),
    };
    let knowledge = wire_up::knowledge(&context.command.store, names, &wire_up::clock());
    let found = context.command.administration().search_knowledge(&scope, &*knowledge, lookup).await;
    let found = found.map_err(|fault| anyhow::anyhow!(fault.explained()))?;
    match args.place.json {
        true => print_object(&found)?,
        false => {
            found.warnings.iter().for_each(|warning| print_stderr(format_args!("warning: {warning}")));
            match found.data.is_empty() {
                true => print_stderr("nothing was found"),
                false => print_stdout(found.data.iter().map(as_text).collect::<Vec<_>>().join("\n\n"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a filter of the command line: key, operator, and the rest is the value.
fn condition(text: &str) -> Result<Condition<'static>, String> {
    let mut parts = text.trim().splitn(3, char::is_whitespace);
    let read = (|| {
        let (key, operator, value) = (parts.next()?, parts.next()?, parts.next()?.trim());
        let operator = ComparisonOperator::ALL.into_iter().find(|known| known.name() == operator)?;
        let filled = !key.is_empty() && !value.is_empty();
        filled.then(|| Condition { key: key.to_owned().into(), operator, values: vec![value.to_owned().into()] })
    })();
    read.ok_or_else(|| "a condition is a key, one of == != contains does_not_contain, and a value".to_owned())
}

fn as_text(chunk: &FoundChunkView) -> String {
    let symbol = chunk.symbol.as_ref().map(|symbol| format!(" {symbol}")).unwrap_or_default();
    let head = format!(
        "{:.3}  {}:{}-{}{symbol}  ({})",
        chunk.score, chunk.path, chunk.start_line, chunk.end_line, chunk.collection
    );
    let lines = chunk.content.lines().filter(|line| !line.trim().is_empty()).take(LINES);
    let shown = lines.map(|line| format!("    {}", line.chars().take(LINE).collect::<String>()));
    [head].into_iter().chain(shown).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_a_key_an_operator_and_a_value() {
        let read = |text: &str| {
            let condition = condition(text).ok()?;
            Some((condition.key.into_owned(), condition.operator, condition.values.concat()))
        };
        assert_eq!(
            read("language == rust"),
            Some(("language".to_owned(), ComparisonOperator::Equals, "rust".to_owned()))
        );
        assert_eq!(
            read("path contains my docs/"),
            Some(("path".to_owned(), ComparisonOperator::Contains, "my docs/".to_owned()))
        );
        assert_eq!(read("path does_not_contain x").map(|read| read.1), Some(ComparisonOperator::DoesNotContain));
        for wrong in ["", "path", "path ==", "path == ", "path = x", "path like x"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
