//! `amalgam backup`: writes everything that the store holds to one file, also while a server runs; and verifies such a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use amalgam_store::backup::{
    BackupContents, BackupManifest, BackupReader, BackupWriter, DATABASE, Replace, SECRET_KEY, StoreKind, folder_of,
    free_bytes, with_suffix,
};
use amalgam_store_postgres::Postgres;
use amalgam_store_sqlite::Sqlite;
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::command_context::{configuration, now_ms};
use crate::progress::Progress;
use crate::storage;
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::{Config, StoreUrl};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// File to write
    #[arg(required = true, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Put the master key into the backup: the file then opens every sealed secret
    #[arg(long)]
    include_secret: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Check digests, counts and schema of a backup, and the database inside
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Backup, or a copy of an SQLite database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder with room for the database inside [default: the folder of the backup]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    _config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: BackupArgs) -> anyhow::Result<ExitCode> {
    match (args.command, args.file) {
        (Some(BackupCommand::Verify(verify)), _) => run_verify(&verify),
        (None, Some(file)) => {
            let replace = if args.force { Replace::Always } else { Replace::Never };
            let config = configuration(args.config)?;
            back_up(&config, &file, replace, args.include_secret, args.json).await
        }
        (None, None) => bail!("name the file to write"),
    }
}

async fn back_up(
    config: &Config,
    file: &Path,
    replace: Replace,
    include_secret: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if !storage::exists(&config.store, config.pool).await? {
        bail!("there is no database at {} yet; the first start of the server creates it", config.store);
    }
    print_stderr(format_args!("store: {}", config.store));
    let secret = match include_secret {
        true => Some(secret_key(config)?),
        false => None,
    };
    let created_at = Timestamp::from_millisecond(i64::try_from(now_ms())?)?.to_string();
    let mut writer = BackupWriter::create(file, replace)?;
    let contents = contents(config, file, &mut writer).await?;
    if let Some(secret) = &secret {
        writer.add(SECRET_KEY, secret.as_bytes())?;
    }
    let manifest = BackupManifest::new(contents, created_at, include_secret);
    let bytes = writer.finish(&manifest)?;
    match json {
        true => print_json(&report(file, &manifest, Some(bytes)))?,
        false => {
            print_stdout(format_args!("{}: {} rows, {bytes} bytes", file.display(), manifest.rows()))?;
            print_stdout(about_secret(&manifest))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The backup's statement about the master key.
fn about_secret(manifest: &BackupManifest) -> &'static str {
    match manifest.includes_secret_key {
        true => "the master key is inside: keep the file as secret as the key",
        false => {
            "the master key is not inside: without secret.key, or AMALGAM_SECRET_KEY, sealed secrets and API keys of this \
             store cannot be used; --include-secret adds it"
        }
    }
}

fn secret_key(config: &Config) -> anyhow::Result<String> {
    match &config.secret_key {
        Some(keys) => Ok(keys.expose_secret().to_owned()),
        None => {
            let path = config.key_file();
            fs::read_to_string(&path).with_context(|| format!("reading the master key {}", path.display()))
        }
    }
}

/// Writes the data of the store to the backup.
async fn contents(config: &Config, file: &Path, writer: &mut BackupWriter) -> anyhow::Result<BackupContents> {
    let context = || format!("backing up {}", config.store);
    match &config.store {
        StoreUrl::Sqlite(path) => {
            let path = path.canonicalize().with_context(context)?;
            // Space for the copy, and for the same data inside the archive.
            let needed = Sqlite::size(&path).with_context(context)?.saturating_mul(2);
            require_room(folder_of(file), needed)?;
            let scratch = Scratch(writer.scratch());
            let mut progress = Progress::of("pages", 0);
            let copied = Sqlite::copy(&path, &scratch.0, &mut |done, all| progress.set(done, all));
            drop(progress);
            let contents = copied.with_context(context)?;
            let copy = fs::File::open(&scratch.0).with_context(context)?;
            writer.add(DATABASE, copy)?;
            Ok(contents)
        }
        StoreUrl::Postgres(url) => {
            let (url, options) = (url.expose_secret(), storage::options(config.pool));
            let about = Postgres::size(url, &options).await.with_context(context)?;
            let folder = folder_of(file);
            if free_bytes(folder).is_ok_and(|free| free < about) {
                print_stderr(format_args!(
                    "warning: the tables have about {about} bytes, and {} has less room",
                    folder.display()
                ));
            }
            let mut progress = Progress::of("bytes", about);
            let dumped = Postgres::dump(url, &options, writer, &mut |bytes| progress.add(bytes)).await;
            drop(progress);
            dumped.with_context(context)
        }
    }
}

/// Refuses to begin a write for which the disk has too little space.
pub(crate) fn require_room(folder: &Path, needed: u64) -> anyhow::Result<()> {
    let free = free_bytes(folder).with_context(|| format!("looking for room in {}", folder.display()))?;
    if free < needed {
        bail!("{needed} bytes are needed in {}, and {free} are free", folder.display());
    }
    Ok(())
}

/// A temporary file, which is removed when this is dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The input of `restore`: a backup, or a database that SQLite has copied.
pub(crate) enum BackupFile {
    Archive(Box<BackupReader>),
    Database(PathBuf),
}

impl BackupFile {
    /// Opens the file without checking it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let mut begin = [0; 16];
        let read = fs::File::open(path).and_then(|mut file| std::io::Read::read(&mut file, &mut begin));
        read.with_context(|| format!("opening {}", path.display()))?;
        match &begin == b"SQLite format 3\0" {
            true => Ok(Self::Database(path.to_path_buf())),
            false => Ok(Self::Archive(Box::new(BackupReader::open(path)?))),
        }
    }
}

/// Reads the archive once, and compares digests and counts.
pub(crate) fn verify_archive(archive: &BackupReader) -> anyhow::Result<()> {
    let mut progress = Progress::of("verified bytes", archive.bytes());
    Ok(archive.verify(&mut |bytes| progress.add(bytes))?)
}

/// Checks the database that was extracted from an archive against the archive's manifest.
pub(crate) fn check_database(database: &Path, manifest: &BackupManifest) -> anyhow::Result<()> {
    let found = Sqlite::check_copy(database)?;
    if found.tables != manifest.tables || found.migrations != manifest.migrations {
        bail!("the database inside does not have the tables, rows and migrations that the manifest says");
    }
    Ok(())
}

fn run_verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let archive = match BackupFile::open(&args.file)? {
        BackupFile::Archive(archive) => archive,
        BackupFile::Database(path) => {
            let contents = Sqlite::check_copy(&path)?;
            let manifest = BackupManifest::new(contents, String::new(), false);
            match args.json {
                true => print_json(&json!({"file": path, "ok": true, "store": "sqlite", "rows": manifest.rows(),
                    "schema_version": manifest.schema_version}))?,
                false => print_stdout(format_args!("{}: a sound SQLite database", path.display()))?,
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    verify_archive(&archive)?;
    let manifest = archive.manifest();
    match manifest.store {
        StoreKind::Sqlite => {
            let folder = args.scratch.as_deref().unwrap_or(folder_of(&args.file));
            let name = args.file.file_name().map(Path::new).context("the backup has a name")?;
            let scratch = Scratch(with_suffix(&folder.join(name), &format!(".verify-{}", std::process::id())));
            require_room(folder, archive.size_of(DATABASE).unwrap_or_default())?;
            archive.extract(DATABASE, &scratch.0, &mut |_| {})?;
            check_database(&scratch.0, manifest)?;
        }
        StoreKind::Postgres => Postgres::check_backup(manifest)?,
    }
    match args.json {
        true => {
            let mut report = report(&args.file, manifest, None);
            report["ok"] = json!(true);
            print_json(&report)?;
        }
        false => {
            print_stdout(format_args!(
                "{}: complete and unchanged, made {} from {}, {} rows, schema version {}",
                args.file.display(),
                manifest.created_at,
                engine(manifest.store),
                manifest.rows(),
                manifest.schema_version,
            ))?;
            print_stdout(about_secret(manifest))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of an engine in manifests.
pub(crate) fn engine(store: StoreKind) -> &'static str {
    match store {
        StoreKind::Sqlite => "sqlite",
        StoreKind::Postgres => "postgres",
    }
}

fn report(file: &Path, manifest: &BackupManifest, bytes: Option<u64>) -> Value {
    let tables: serde_json::Map<String, Value> =
        manifest.tables.iter().map(|table| (table.name.clone(), json!(table.rows))).collect();
    let mut report = json!({
        "file": file,
        "store": engine(manifest.store),
        "created_at": manifest.created_at,
        "schema_version": manifest.schema_version,
        "rows": manifest.rows(),
        "tables": tables,
        "includes_secret_key": manifest.includes_secret_key,
    });
    if let Some(bytes) = bytes {
        report["bytes"] = json!(bytes);
    }
    report
}
