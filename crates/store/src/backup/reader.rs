//! Reads a backup: finds the files inside, and checks them against their digests.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read, Seek as _, SeekFrom, Take, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use amalgam_core::hex;
use sha2::{Digest as _, Sha256};

use super::{BackupError, BackupManifest, BackupTable, DATABASE, DIGESTS, FORMAT, FORMAT_VERSION, MANIFEST, StoreKind};

const BLOCK: usize = 1 << 20;
/// The size limit of a manifest, which is enough for a thousand tables.
const MOST_TEXT: u64 = 16 << 20;

/// A backup whose manifest was read.
#[derive(Debug)]
pub struct BackupReader {
    path: PathBuf,
    manifest: BackupManifest,
    files: BTreeMap<String, InnerFile>,
}

/// The position of a file in the archive.
#[derive(Debug, Clone)]
struct InnerFile {
    offset: u64,
    bytes: u64,
    /// The digest in `SHA256SUMS`, which has none of itself.
    sha256: Option<String>,
}

impl BackupReader {
    /// Opens a backup and checks its description. The data are checked by [`BackupReader::verify`] and while they are read.
    pub fn open(path: &Path) -> Result<Self, BackupError> {
        let not_a_backup = |reason: String| BackupError::NotABackup { path: path.to_path_buf(), reason };
        let files = index(path)?;
        let text = |name: &str| -> Result<Vec<u8>, BackupError> {
            let file = files.get(name).ok_or_else(|| {
                not_a_backup(format!("it has no {name}; a backup that was cut off, or another archive"))
            })?;
            if file.bytes > MOST_TEXT {
                return Err(not_a_backup(format!("its {name} is too long")));
            }
            let mut text = Vec::new();
            reader(path, file)?.read_to_end(&mut text).map_err(BackupError::file("read", path))?;
            Ok(text)
        };
        let described = text(MANIFEST)?;
        let digests = text(DIGESTS)?;
        let damaged = |reason: String| BackupError::Damaged { path: path.to_path_buf(), reason };
        let digests = String::from_utf8(digests).map_err(|_| damaged(format!("{DIGESTS} is no text")))?;
        let mut files = files.clone();
        for line in digests.lines() {
            let (digest, name) = line.split_once("  ").ok_or_else(|| damaged(format!("{DIGESTS} has a bad line")))?;
            let file = files.get_mut(name).ok_or_else(|| damaged(format!("{name} is missing")))?;
            file.sha256 = Some(digest.to_owned());
        }
        if let Some((name, _)) = files.iter().find(|(name, file)| name.as_str() != DIGESTS && file.sha256.is_none()) {
            return Err(damaged(format!("{DIGESTS} does not list {name}")));
        }
        let expected = files.get(MANIFEST).and_then(|file| file.sha256.as_deref());
        if expected != Some(hex(&Sha256::digest(&described)).as_str()) {
            return Err(damaged(format!("{MANIFEST} is not what {DIGESTS} says")));
        }
        let manifest: BackupManifest =
            serde_json::from_slice(&described).map_err(|error| not_a_backup(format!("{MANIFEST}: {error}")))?;
        if manifest.format != FORMAT || manifest.format_version > FORMAT_VERSION {
            let found = format!("{} version {}", manifest.format, manifest.format_version);
            return Err(not_a_backup(format!("its format is {found}; this program reads {FORMAT} {FORMAT_VERSION}")));
        }
        Ok(Self { path: path.to_path_buf(), manifest, files })
    }

    /// The path of the backup.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The manifest.
    pub fn manifest(&self) -> &BackupManifest {
        &self.manifest
    }

    /// How many bytes [`BackupReader::verify`] reads.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// The size of a file inside, if there is one.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.files.get(name).map(|file| file.bytes)
    }

    /// Reads the whole backup and compares digests and counts of rows. Calls `progress` with the number of bytes read
    /// since its last call.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
        let tables: BTreeMap<String, &BackupTable> = match self.manifest.store {
            StoreKind::Sqlite => BTreeMap::new(),
            StoreKind::Postgres => self.manifest.tables.iter().map(|table| (table.file(), table)).collect(),
        };
        let needed = match self.manifest.store {
            StoreKind::Sqlite => vec![DATABASE.to_owned()],
            StoreKind::Postgres => tables.keys().cloned().collect(),
        };
        for name in self.files.keys().filter(|name| name.as_str() != DIGESTS).chain(&needed) {
            let mut data = self.data(name)?;
            let mut rows = 0;
            while let Some(block) = data.next()? {
                rows += block.iter().filter(|byte| **byte == b'\n').count() as u64;
                progress(block.len() as u64);
            }
            if let Some(table) = tables.get(name)
                && table.rows != rows
            {
                let reason = format!("{name} has {rows} rows, {MANIFEST} says {}", table.rows);
                return Err(self.damaged(reason));
            }
        }
        Ok(())
    }

    /// The contents of a file inside, which are compared with their digest at their end.
    pub fn data(&self, name: &str) -> Result<DataReader, BackupError> {
        let file = self.files.get(name).ok_or_else(|| self.damaged(format!("{name} is missing")))?;
        Ok(DataReader {
            reader: reader(&self.path, file)?,
            block: vec![0; BLOCK],
            digest: Some(Sha256::new()),
            left: file.bytes,
            expected: file.sha256.clone().unwrap_or_default(),
            name: name.to_owned(),
            path: self.path.clone(),
        })
    }

    /// Writes a file inside to `target`, which is new, readable by its owner alone, and flushed. A target that could not be
    /// completed is removed.
    pub fn extract(&self, name: &str, target: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
        let extracted = self.extract_to(name, target, progress);
        if extracted.is_err() {
            let _ = fs::remove_file(target);
        }
        extracted
    }

    fn extract_to(&self, name: &str, target: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
        let failed = || BackupError::file("write", target);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(target).map_err(failed())?;
        let mut data = self.data(name)?;
        while let Some(block) = data.next()? {
            file.write_all(block).map_err(failed())?;
            progress(block.len() as u64);
        }
        file.sync_all().map_err(failed())
    }

    fn damaged(&self, reason: String) -> BackupError {
        BackupError::Damaged { path: self.path.clone(), reason }
    }
}

/// The contents of a file inside of a backup, a block at a time.
#[derive(Debug)]
pub struct DataReader {
    reader: Take<BufReader<File>>,
    block: Vec<u8>,
    /// `None` after the end was compared.
    digest: Option<Sha256>,
    left: u64,
    expected: String,
    name: String,
    path: PathBuf,
}

impl DataReader {
    /// Returns the next bytes; `None` at the end, if the contents match their digest.
    #[expect(clippy::should_implement_trait, reason = "it lends its own block")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, BackupError> {
        let read = self.reader.read(&mut self.block).map_err(BackupError::file("read", &self.path))?;
        self.left = self.left.saturating_sub(read as u64);
        if read > 0 {
            let block = self.block.get(..read).unwrap_or_default();
            if let Some(digest) = &mut self.digest {
                digest.update(block);
            }
            return Ok(Some(block));
        }
        let damaged = |reason: String| BackupError::Damaged { path: self.path.clone(), reason };
        if self.left > 0 {
            return Err(damaged(format!("{} is cut off", self.name)));
        }
        match self.digest.take().map(|digest| hex(&digest.finalize())) {
            Some(digest) if digest != self.expected => {
                Err(damaged(format!("{} is not what {DIGESTS} says", self.name)))
            }
            _ => Ok(None),
        }
    }
}

fn reader(path: &Path, file: &InnerFile) -> Result<Take<BufReader<File>>, BackupError> {
    let failed = || BackupError::file("read", path);
    let mut opened = File::open(path).map_err(failed())?;
    opened.seek(SeekFrom::Start(file.offset)).map_err(failed())?;
    Ok(BufReader::new(opened).take(file.bytes))
}

/// The files of an archive.
fn index(path: &Path) -> Result<BTreeMap<String, InnerFile>, BackupError> {
    let file = File::open(path).map_err(BackupError::file("open", path))?;
    let not_an_archive =
        |error: io::Error| BackupError::NotABackup { path: path.to_path_buf(), reason: error.to_string() };
    let mut archive = tar::Archive::new(file);
    let mut files = BTreeMap::new();
    for entry in archive.entries_with_seek().map_err(not_an_archive)? {
        let entry = entry.map_err(not_an_archive)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let inner = InnerFile { offset: entry.raw_file_position(), bytes: entry.size(), sha256: None };
        files.insert(name, inner);
    }
    Ok(files)
}
