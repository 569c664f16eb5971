//! `amalgam restore`: replaces the contents of the configured store by those of a backup, completely or not at all.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use amalgam_core::AuditAction;
use amalgam_store::backup::{BackupManifest, BackupReader, DATABASE, SECRET_KEY, StoreKind, folder_of, with_suffix};
use amalgam_store_postgres::Postgres;
use amalgam_store_sqlite::Sqlite;
use anyhow::{Context as _, bail};
use clap::Args;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::backup::{BackupFile, Scratch, check_database, engine, require_room, verify_archive};
use crate::cli::ConfigArgs;
use crate::command_context::{configuration, record};
use crate::progress::Progress;
use crate::storage;
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::{Config, StoreUrl};

const RESTORE: AuditAction = AuditAction::new("store.restore");

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Backup, or a copy of an SQLite database such as amalgam.db.v011.backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace a store that is not empty, and a master key that differs
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = configuration(args.config)?;
    print_stderr(format_args!("store: {}", config.store));
    let file = BackupFile::open(&args.file)?;
    let kind = match &file {
        BackupFile::Archive(archive) => archive.manifest().store,
        BackupFile::Database(_) => StoreKind::Sqlite,
    };
    let target = match &config.store {
        StoreUrl::Sqlite(_) => StoreKind::Sqlite,
        StoreUrl::Postgres(_) => StoreKind::Postgres,
    };
    if kind != target {
        bail!(
            "{} is a backup of {}, and the store is {}: restore it into a store of its own kind, then 'amalgam copy' moves \
             it from SQLite to PostgreSQL",
            args.file.display(),
            engine(kind),
            config.store,
        );
    }
    refuse_data(&config, args.force).await?;
    let secret = match &file {
        BackupFile::Archive(archive) => {
            verify_archive(archive)?;
            new_secret(&config, archive, args.force)?
        }
        BackupFile::Database(_) => None,
    };
    let manifest = match (&config.store, &file) {
        (StoreUrl::Sqlite(path), file) => restore_sqlite(path, file)?,
        (StoreUrl::Postgres(url), BackupFile::Archive(archive)) => {
            let (url, options) = (url.expose_secret(), storage::options(config.pool));
            let mut progress = Progress::of("bytes", archive.bytes());
            let loaded = Postgres::load(url, &options, archive, &mut |bytes| progress.add(bytes)).await;
            drop(progress);
            loaded.with_context(|| format!("restoring into {}", config.store))?;
            archive.manifest().clone()
        }
        (StoreUrl::Postgres(_), BackupFile::Database(_)) => bail!("a database of SQLite does not fit PostgreSQL"),
    };
    let key = match secret {
        Some(secret) => {
            write_secret(&config.key_file(), &secret)?;
            format!("the master key of the backup is now in {}", config.key_file().display())
        }
        None if manifest.includes_secret_key => "the master key of the backup is the one in use".to_owned(),
        None => format!(
            "the backup has no master key: sealed secrets and API keys need the one that the store was made with, in {} or \
             AMALGAM_SECRET_KEY",
            config.key_file().display(),
        ),
    };
    let pending = storage::status(&config.store, config.pool).await?.iter().filter(|one| !one.applied).count();
    // The tables of a store that an older version has written may be others: it has no entry.
    if pending == 0 {
        let details = json!({"file": args.file, "rows": manifest.rows(), "schema_version": manifest.schema_version});
        record(&config.store, config.pool, RESTORE, &details).await?;
    }
    match args.json {
        true => print_json(&json!({
            "store": config.store.to_string(),
            "file": args.file,
            "rows": manifest.rows(),
            "schema_version": manifest.schema_version,
            "pending_migrations": pending,
            "includes_secret_key": manifest.includes_secret_key,
        }))?,
        false => {
            print_stdout(format_args!("{}: {} rows restored", config.store, manifest.rows()))?;
            if pending > 0 {
                print_stdout(format_args!("{pending} migrations are pending; the next start runs them"))?;
            }
            print_stdout(key)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a store with data, unless it may be replaced, and a store in use in any case.
async fn refuse_data(config: &Config, force: bool) -> anyhow::Result<()> {
    let empty = match &config.store {
        StoreUrl::Sqlite(path) => Sqlite::is_empty(path).map_err(anyhow::Error::from),
        StoreUrl::Postgres(url) => {
            let (url, options) = (url.expose_secret(), storage::options(config.pool));
            let others = Postgres::other_sessions(url, &options).await?;
            if others > 0 {
                bail!("{others} other sessions of amalgam use {}; stop the servers first", config.store);
            }
            Postgres::is_empty(url, &options).await.map_err(anyhow::Error::from)
        }
    };
    match (empty, force) {
        (Ok(true), _) | (_, true) => Ok(()),
        (Ok(false), false) => bail!("{} is not empty; --force replaces everything that it holds", config.store),
        (Err(error), false) => Err(error.context(format!("{} cannot be read; --force replaces it", config.store))),
    }
}

/// The new database is complete and checked beside the old one before it replaces it.
fn restore_sqlite(path: &Path, file: &BackupFile) -> anyhow::Result<BackupManifest> {
    let _locked = Sqlite::lock_against_servers(path)?;
    let database = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let scratch = Scratch(with_suffix(&database, ".restored"));
    let context = || format!("restoring into sqlite:{}", path.display());
    let manifest = match file {
        BackupFile::Archive(archive) => {
            let bytes = archive.size_of(DATABASE).unwrap_or_default();
            require_room(folder_of(&database), bytes)?;
            let mut progress = Progress::of("bytes", bytes);
            archive.extract(DATABASE, &scratch.0, &mut |bytes| progress.add(bytes))?;
            drop(progress);
            check_database(&scratch.0, archive.manifest())?;
            archive.manifest().clone()
        }
        BackupFile::Database(copy) => {
            let contents = Sqlite::copy(copy, &scratch.0, &mut |_, _| {}).with_context(context)?;
            Sqlite::check_copy(&scratch.0)?;
            BackupManifest::new(contents, String::new(), false)
        }
    };
    Sqlite::replace(path, &scratch.0).with_context(context)?;
    Ok(manifest)
}

/// The master key of the backup, if it has to be written.
fn new_secret(config: &Config, archive: &BackupReader, force: bool) -> anyhow::Result<Option<String>> {
    if !archive.manifest().includes_secret_key {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut data = archive.data(SECRET_KEY)?;
    while let Some(block) = data.next()? {
        bytes.extend_from_slice(block);
    }
    let secret = String::from_utf8(bytes).context("the master key of the backup is no text")?;
    let path = config.key_file();
    let present = match &config.secret_key {
        Some(keys) => Some(keys.expose_secret().to_owned()),
        None if path.exists() => {
            Some(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?)
        }
        None => None,
    };
    match present {
        None => Ok(Some(secret)),
        Some(present) if present.trim() == secret.trim() => Ok(None),
        Some(_) if config.secret_key.is_some() => {
            bail!("AMALGAM_SECRET_KEY is not the master key of the backup; unset it or set it to that key")
        }
        Some(_) if !force => bail!("{} is not the master key of the backup; --force replaces it", path.display()),
        Some(_) => Ok(Some(secret)),
    }
}

/// Writes the key. An existing key file is renamed, not overwritten.
fn write_secret(path: &Path, secret: &str) -> anyhow::Result<()> {
    let context = || format!("writing {}", path.display());
    if path.exists() {
        fs::rename(path, with_suffix(path, ".replaced")).with_context(context)?;
    }
    let mut folder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(folder.recursive(true), 0o700)
        .create(folder_of(path))
        .with_context(context)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(context)?;
    file.write_all(secret.as_bytes()).and_then(|()| file.sync_all()).with_context(context)
}
