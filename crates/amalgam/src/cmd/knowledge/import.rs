//! `amalgam knowledge import`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use amalgam_core::Seal;
use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::{KnowledgeContext, KnowledgeTarget};
use crate::command_context::CommandContext;
use crate::knowledge::{Import, Rules, Settings, Totals, WriteThrottle, gather, is_name};
use crate::progress::Progress;
use crate::terminal::{say, say_json, tell};
use crate::wire_up::{self, SystemClock};

/// What documents have anyhow; no attribute is called so.
const TAKEN: [&str; 5] = ["collection", "language", "path", "repo", "source"];
/// The most attributes of an import.
const ATTRIBUTES: usize = 32;
/// The longest value of one, in bytes.
const VALUE_BYTES: usize = 512;
/// Larger files are hardly ever written by somebody.
const LARGEST_KIB: u64 = 2048;
/// Nobody means more than that: a file is read whole.
const LARGEST_KIB_EVER: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Folders and files. A folder is taken whole, without what is hidden, built or named by .gitignore
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The collection that they go into; it is made if there is none
    #[arg(long, value_name = "NAME", value_parser = name)]
    collection: String,
    /// The repository that they are from, for searches that ask for it
    #[arg(long, value_name = "NAME", value_parser = value)]
    repo: Option<String>,
    /// What else is known about them, for searches that ask for it; may be given several times
    #[arg(long = "attribute", value_name = "KEY=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// What the folders are together, wherever they are; without it each folder is a source of its own
    #[arg(long, value_name = "NAME", value_parser = name)]
    source: Option<String>,
    /// Give pieces a place with this embedding model: UPSTREAM/model or a configured name [default: the collection's]
    #[arg(long, value_name = "MODEL")]
    embed: Option<String>,
    /// Have no embeddings, and forget those that the collection has
    #[arg(long, conflicts_with = "embed")]
    no_embed: bool,
    /// Take what .gitignore and .ignore name, too
    #[arg(long)]
    no_ignore: bool,
    /// Leave out files that are larger, in KiB
    #[arg(long, value_name = "KIB", default_value_t = LARGEST_KIB,
        value_parser = clap::value_parser!(u64).range(1..=LARGEST_KIB_EVER))]
    max_file_kib: u64,
    #[command(flatten)]
    place: KnowledgeTarget,
}

/// What cannot be read makes the command fail, also where the rest was brought in: a script should hear of it.
pub(super) async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let attributes = attributes(&args)?;
    let rules = if args.no_ignore { Rules::Nothing } else { Rules::Ignored };
    let sources = gather(&args.paths, args.source.as_deref(), rules)?;
    let context = KnowledgeContext::open(args.place.tenant_id, CommandContext::open(args.place.config).await?).await?;
    let seal: Arc<dyn Seal> = Arc::new(wire_up::sealer(&context.command.config)?);
    let names = wire_up::names(&context.command.config, &seal, &SystemClock)?;
    let before = context.collection(&args.collection).await?.and_then(|collection| collection.embedding_model);
    let model = match args.no_embed {
        true => None,
        false => args.embed.or_else(|| before.clone()),
    };
    if let Some(before) = before.filter(|before| Some(before) != model.as_ref()) {
        tell(format_args!(
            "{} was embedded with {before}: what this import does not bring is found by its words alone until it is imported again",
            args.collection
        ));
    }
    let settings = Settings { attributes, model: model.clone(), most_bytes: args.max_file_kib * 1024 };
    let mut import = Import {
        store: context.store(),
        within: context.within(),
        collection: &args.collection,
        embedder: &*names,
        settings: Arc::new(settings),
        throttle: WriteThrottle::on(&context.command.config.store),
    };
    let told: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let mut progress = Progress::of("files", sources.iter().map(|source| source.files.len()).sum());
    let mut totals = Totals::default();
    for source in sources {
        import.bring(source, &mut totals, &mut progress).await?;
    }
    drop(progress);
    match args.place.json {
        true => say_json(&as_json(&args.collection, &told, model.as_deref(), &totals))?,
        false => {
            tell_skipped(&totals, args.max_file_kib);
            let Totals { created, updated, unchanged, deleted, .. } = totals;
            let skipped = totals.skipped();
            say(format_args!(
                "{created} created, {updated} updated, {unchanged} unchanged, {deleted} deleted, {skipped} skipped"
            ))?;
        }
    }
    if totals.unreadable > 0 {
        tell("what cannot be read was left as it was");
        return Ok(ExitCode::from(crate::FAILURE));
    }
    Ok(ExitCode::SUCCESS)
}

fn attributes(args: &ImportArgs) -> anyhow::Result<Vec<(String, String)>> {
    let mut attributes = args.attributes.clone();
    attributes.extend(args.repo.clone().map(|repo| ("repo".to_owned(), repo)));
    attributes.sort_by_key(|(key, _)| key.to_ascii_lowercase());
    if attributes.len() > ATTRIBUTES {
        bail!("at most {ATTRIBUTES} attributes are kept");
    }
    let twice =
        attributes.windows(2).find(|pair| matches!(pair, [(one, _), (other, _)] if one.eq_ignore_ascii_case(other)));
    match twice.and_then(<[_]>::first) {
        Some((key, _)) => bail!("--attribute {key} is there twice"),
        None => Ok(attributes),
    }
}

fn tell_skipped(totals: &Totals, max_file_kib: u64) {
    for (count, why) in [
        (totals.binary, "not text in UTF-8".to_owned()),
        (totals.large, format!("larger than {max_file_kib} KiB")),
        (totals.empty, "empty".to_owned()),
        (totals.misnamed, "with a name that cannot be kept".to_owned()),
    ] {
        if count > 0 {
            tell(format_args!("skipped: {count} {why}"));
        }
    }
}

fn as_json(collection: &str, sources: &[String], model: Option<&str>, totals: &Totals) -> Value {
    json!({
        "collection": collection,
        "sources": sources,
        "embedding_model": model,
        "created": totals.created,
        "updated": totals.updated,
        "unchanged": totals.unchanged,
        "deleted": totals.deleted,
        "skipped": totals.skipped(),
        "skipped_because": {
            "binary": totals.binary,
            "large": totals.large,
            "empty": totals.empty,
            "name": totals.misnamed,
        },
        "unreadable": totals.unreadable,
    })
}

fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(
            "a name has 1 to 64 letters, digits, dots, dashes and underscores, and begins with one of the first two"
                .to_owned(),
        ),
    }
}

fn value(text: &str) -> Result<String, String> {
    match !text.trim().is_empty() && text.len() <= VALUE_BYTES && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!("a value has 1 to {VALUE_BYTES} bytes and no characters that cannot be seen")),
    }
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let (key, text) = text.split_once('=').ok_or("an attribute is written as KEY=VALUE")?;
    // Searches ask for keys in any case.
    if TAKEN.iter().any(|taken| taken.eq_ignore_ascii_case(key)) {
        return Err(format!("documents have a {key} anyhow"));
    }
    Ok((name(key)?, value(text)?))
}
