//! `amalgam knowledge`: a tenant's knowledge. A running server finds imported documents at once.

mod import;
mod search;

use std::process::ExitCode;

use amalgam_administration::{
    all_pages,
    knowledge::{CollectionView, DocumentView},
};
use amalgam_app::knowledge::{DocumentDeletion, WriteThrottle};
use amalgam_core::{FaultKind, Operator, Scope, Store, store::Within};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::command_context::{CommandContext, now_ms, reworded};
use crate::progress::Progress;
use crate::table::{moment, table};
use crate::terminal::{print_json, print_list, print_stdout};
use amalgam_configuration::StoreUrl;

#[derive(Debug, Args)]
pub(crate) struct KnowledgeArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Import the text files of folders; unchanged files are skipped, deleted files are removed
    Import(import::ImportArgs),
    /// List a tenant's collections, or the documents of a collection
    List(ListArgs),
    /// Search as agents do, best match first
    Search(search::SearchArgs),
    /// Delete a collection, or the documents of one source in it
    Delete(DeleteArgs),
}

/// Arguments that all commands on knowledge share.
#[derive(Debug, Args)]
struct KnowledgeTarget {
    /// Tenant id; optional if there is only one tenant
    #[arg(long = "tenant", value_name = "ID", visible_alias = "company-id")]
    tenant_id: Option<i64>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// List the documents of this collection
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    #[command(flatten)]
    place: KnowledgeTarget,
}

#[derive(Debug, Args)]
struct DeleteArgs {
    /// Collection name
    #[arg(long, value_name = "NAME")]
    collection: String,
    /// Only the documents of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    place: KnowledgeTarget,
}

pub(crate) async fn run(args: KnowledgeArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Import(args) => import::run(args).await,
        Action::List(ListArgs { collection: None, place }) => list(place).await,
        Action::List(ListArgs { collection: Some(collection), place }) => documents(&collection, place).await,
        Action::Search(args) => search::run(args).await,
        Action::Delete(args) => delete(args).await,
    }
}

/// The context of commands on one tenant's knowledge.
struct KnowledgeContext {
    command: CommandContext,
    tenant_id: i64,
}

impl KnowledgeContext {
    async fn open(tenant_id: Option<i64>, command: CommandContext) -> anyhow::Result<Self> {
        let operator = Operator::of_this_process();
        let tenant_id = match tenant_id {
            Some(id) => {
                command.store.tenant(operator, id).await?.with_context(|| format!("there is no tenant {id}"))?.id
            }
            None => match command.store.tenants(operator, None, 2).await?.as_slice() {
                [only] => only.id,
                [] => bail!("there is no tenant yet; the first start of the server creates one"),
                _ => bail!("there are several tenants; choose one with --tenant"),
            },
        };
        Ok(Self { command, tenant_id })
    }

    fn store(&self) -> &dyn Store {
        &*self.command.store
    }

    fn within(&self) -> Within<'static> {
        Within::Named(Operator::of_this_process(), self.tenant_id)
    }

    /// Pauses for a server that may write to the same file.
    fn throttle(&self) -> WriteThrottle {
        match self.command.config.store {
            StoreUrl::Sqlite(_) => WriteThrottle::of_shared_file(),
            StoreUrl::Postgres(_) => WriteThrottle::none(),
        }
    }

    async fn administrator(&self) -> anyhow::Result<Scope> {
        self.command.administrator(self.tenant_id).await
    }

    async fn collection(&self, name: &str) -> anyhow::Result<CollectionView> {
        let found = self.command.administration().collection(&self.administrator().await?, name).await;
        reworded(found, FaultKind::NotFound, || format!("there is no collection {name}"))
    }

    /// The embedding model of a collection, which may not exist yet.
    async fn embedding_model(&self, name: &str) -> anyhow::Result<Option<String>> {
        let collections = self.store().collections_within(self.within()).await?;
        let found = collections.into_iter().find(|collection| collection.name == name);
        Ok(found.and_then(|collection| collection.embedding_model))
    }
}

async fn list(place: KnowledgeTarget) -> anyhow::Result<ExitCode> {
    let context = KnowledgeContext::open(place.tenant_id, CommandContext::open_read_only(place.config).await?).await?;
    let (scope, administration) = (context.administrator().await?, context.command.administration());
    let collections = all_pages(async |page| administration.collections(&scope, &page).await).await?;
    match place.json {
        true => print_list(&collections)?,
        false => {
            let row = |one: &CollectionView| {
                [
                    one.name.clone(),
                    one.documents.to_string(),
                    one.chunks.to_string(),
                    one.embedding_model.clone().unwrap_or_else(|| "-".to_owned()),
                    moment(Some(one.updated_at.to_ms())),
                ]
            };
            let headings = ["collection", "documents", "chunks", "embeddings", "updated"];
            print_stdout(table(headings, &collections.iter().map(row).collect::<Vec<_>>()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn documents(collection: &str, place: KnowledgeTarget) -> anyhow::Result<ExitCode> {
    let context = KnowledgeContext::open(place.tenant_id, CommandContext::open_read_only(place.config).await?).await?;
    context.collection(collection).await?;
    let (scope, administration) = (context.administrator().await?, context.command.administration());
    let documents = all_pages(async |page| administration.documents(&scope, collection, None, &page).await).await?;
    match place.json {
        true => print_list(&documents)?,
        false => {
            let row = |one: &DocumentView| {
                let (source, path, language) = (one.source.clone(), one.path.clone(), one.language.clone());
                [source, path, language, one.chunks.to_string(), moment(Some(one.updated_at.to_ms()))]
            };
            let headings = ["source", "path", "language", "chunks", "updated"];
            print_stdout(table(headings, &documents.iter().map(row).collect::<Vec<_>>()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let DeleteArgs { collection, source, place } = args;
    let context = KnowledgeContext::open(place.tenant_id, CommandContext::open(place.config).await?).await?;
    let known = context.collection(&collection).await?;
    context.command.administration().announce_deletion(context.within().tenant_id(), &known, source.as_deref()).await?;
    let mut progress = Progress::of("documents", known.documents);
    let mut throttle = context.throttle();
    let mut deletion = DocumentDeletion::of(&collection, source.as_deref());
    let mut deleted = 0;
    while let Some(more) = throttle.write(deletion.delete_batch(context.store(), context.within(), now_ms())).await? {
        deleted += more;
        progress.add(more);
    }
    drop(progress);
    match (place.json, &source) {
        (true, _) => print_json(&json!({"collection": collection, "source": source, "deleted": deleted}))?,
        (false, None) => print_stdout(format_args!("deleted {collection} with {deleted} documents"))?,
        (false, Some(source)) => {
            print_stdout(format_args!("deleted {deleted} documents of {source} from {collection}"))?
        }
    }
    Ok(ExitCode::SUCCESS)
}
