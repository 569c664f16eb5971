//! `amalgam knowledge import`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use amalgam_administration::knowledge::IMPORT;
use amalgam_app::knowledge::{
    self, DOCUMENT_BYTES, IgnoreRules, ImportObserver, ImportTotals, InvalidAttribute, KnowledgeImport, gather_sources,
};
use amalgam_core::Seal;
use amalgam_knowledge::ImportSettings;
use clap::Args;
use serde_json::{Value, json};

use super::{KnowledgeContext, KnowledgeTarget};
use crate::command_context::CommandContext;
use crate::progress::Progress;
use crate::terminal::{print_json, print_stderr, print_stdout};
use crate::wire_up::{self, SystemClock};

/// The upper limit, because a file is read into memory.
const LARGEST_KIB_EVER: u64 = 64 * 1024;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Folders and files. Hidden files, build output and files matched by .gitignore are skipped
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Collection to import into; created if it does not exist
    #[arg(long, value_name = "NAME", value_parser = name)]
    collection: String,
    /// Repository that the files belong to, for search filters
    #[arg(long, value_name = "NAME", value_parser = value)]
    repo: Option<String>,
    /// Attribute of the documents, for search filters; repeatable
    #[arg(long = "attribute", value_name = "KEY=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// Name of one source for all folders; by default each folder is its own source
    #[arg(long, value_name = "NAME", value_parser = name)]
    source: Option<String>,
    /// Embedding model for chunks: UPSTREAM/model or a configured name [default: the collection's]
    #[arg(long, value_name = "MODEL")]
    embed: Option<String>,
    /// Use no embeddings, and delete those of the collection
    #[arg(long, conflicts_with = "embed")]
    no_embed: bool,
    /// Also import files matched by .gitignore and .ignore
    #[arg(long)]
    no_ignore: bool,
    /// Skip files larger than this, in KiB
    #[arg(long, value_name = "KIB", default_value_t = DOCUMENT_BYTES / 1024,
        value_parser = clap::value_parser!(u64).range(1..=LARGEST_KIB_EVER))]
    max_file_kib: u64,
    #[command(flatten)]
    place: KnowledgeTarget,
}

/// Unreadable files make the command fail even if the others were imported, so that scripts notice them.
pub(super) async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let attributes = attributes(&args)?;
    let rules = if args.no_ignore { IgnoreRules::Nothing } else { IgnoreRules::Ignored };
    let sources = gather_sources(&args.paths, args.source.as_deref(), rules)?;
    let context = KnowledgeContext::open(args.place.tenant_id, CommandContext::open(args.place.config).await?).await?;
    let seal: Arc<dyn Seal> = Arc::new(wire_up::sealer(&context.command.config)?);
    let names = wire_up::names(&context.command.config, &seal, &SystemClock)?;
    let before = context.embedding_model(&args.collection).await?;
    let model = match args.no_embed {
        true => None,
        false => args.embed.or_else(|| before.clone()),
    };
    if let Some(before) = before.filter(|before| Some(before) != model.as_ref()) {
        print_stderr(format_args!(
            "{} was embedded with {before}: what this import does not bring is found by its words alone until it is imported again",
            args.collection
        ));
    }
    let settings = ImportSettings { attributes, model: model.clone(), max_bytes: args.max_file_kib * 1024 };
    let mut import = KnowledgeImport {
        store: context.store(),
        within: context.within(),
        collection: &args.collection,
        embedder: &*names,
        settings: Arc::new(settings),
        throttle: context.throttle(),
        clock: &SystemClock,
    };
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let mut progress = Progress::of("files", sources.iter().map(|source| source.files.len()).sum::<usize>());
    let mut totals = ImportTotals::default();
    let details = json!({"sources": names, "embedding_model": model});
    let administration = context.command.administration();
    administration.announce(context.within().tenant_id(), IMPORT, &args.collection, &details).await?;
    for source in sources {
        import.run(source, &mut totals, &mut progress).await?;
    }
    drop(progress);
    match args.place.json {
        true => print_json(&as_json(&args.collection, &names, model.as_deref(), &totals))?,
        false => {
            print_skipped(&totals, args.max_file_kib);
            let ImportTotals { created, updated, unchanged, deleted, .. } = totals;
            let skipped = totals.skipped();
            print_stdout(format_args!(
                "{created} created, {updated} updated, {unchanged} unchanged, {deleted} deleted, {skipped} skipped"
            ))?;
        }
    }
    if totals.unreadable > 0 {
        print_stderr("what cannot be read was left as it was");
        return Ok(ExitCode::from(crate::FAILURE));
    }
    Ok(ExitCode::SUCCESS)
}

impl ImportObserver for Progress {
    fn done(&mut self, files: usize) {
        self.add(files);
    }

    fn unreadable(&mut self, what: &str) {
        print_stderr(format_args!("cannot be read: {what}"));
    }
}

fn attributes(args: &ImportArgs) -> anyhow::Result<Vec<(String, String)>> {
    let own = args.attributes.iter().cloned();
    let repo = args.repo.clone().map(|repo| ("repo".to_owned(), repo));
    Ok(knowledge::check_attributes(own.chain(repo).collect())?)
}

fn print_skipped(totals: &ImportTotals, max_file_kib: u64) {
    for (count, why) in [
        (totals.binary, "not text in UTF-8".to_owned()),
        (totals.large, format!("larger than {max_file_kib} KiB")),
        (totals.empty, "empty".to_owned()),
        (totals.misnamed, "with a name that cannot be kept".to_owned()),
    ] {
        if count > 0 {
            print_stderr(format_args!("skipped: {count} {why}"));
        }
    }
}

fn as_json(collection: &str, sources: &[String], model: Option<&str>, totals: &ImportTotals) -> Value {
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

fn name(text: &str) -> Result<String, InvalidAttribute> {
    knowledge::check_name(text)
}

fn value(text: &str) -> Result<String, InvalidAttribute> {
    knowledge::check_value(text)
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let (key, text) = text.split_once('=').ok_or("an attribute is written as KEY=VALUE")?;
    knowledge::check_attribute(key, text).map_err(|error| error.to_string())
}
