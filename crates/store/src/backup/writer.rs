//! Writes a backup under a temporary name, and renames it when it is complete and on disk.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use amalgam_core::hex;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryWriter, Header};

use super::{BackupError, BackupManifest, DIGESTS, MANIFEST, folder_of, with_suffix};

/// Small writes become blocks of this size.
const BLOCK: usize = 1 << 20;

/// What to do with a file that has the name of the backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// The backup is refused.
    Never,
    /// The backup replaces the file.
    Always,
}

/// A backup that is being written. Dropping it before [`BackupWriter::finish`] removes its file.
pub struct BackupWriter {
    path: PathBuf,
    partial: PathBuf,
    /// Locked as long as it is open.
    file: File,
    archive: Builder<BufWriter<File>>,
    header: Header,
    digests: Vec<(String, String)>,
    is_finished: bool,
}

impl BackupWriter {
    /// Begins the backup `path`, readable only by its owner. Overwrites the temporary file of a process that was
    /// killed.
    pub fn create(path: &Path, replace: Replace) -> Result<Self, BackupError> {
        if replace == Replace::Never && path.try_exists().map_err(BackupError::file("look for", path))? {
            return Err(BackupError::Exists { path: path.to_path_buf() });
        }
        let partial = with_suffix(path, ".partial");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&partial);
        let file = opened.map_err(BackupError::file("create", &partial))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::InUse { path: partial }),
            Err(TryLockError::Error(source)) => return Err(BackupError::file("lock", &partial)(source)),
        }
        let written = file.set_len(0).and_then(|()| file.try_clone()).map_err(BackupError::file("write", &partial))?;
        Ok(Self {
            path: path.to_path_buf(),
            partial,
            file,
            archive: Builder::new(BufWriter::with_capacity(BLOCK, written)),
            header: Header::new_gnu(),
            digests: Vec::new(),
            is_finished: false,
        })
    }

    /// The path of a temporary file beside the backup, for its preparation.
    pub fn scratch(&self) -> PathBuf {
        with_suffix(&self.path, ".partial-db")
    }

    /// Begins a file inside of the backup.
    pub fn entry(&mut self, name: &str) -> Result<BackupEntry<'_>, BackupError> {
        self.header = Header::new_gnu();
        self.header.set_mode(0o600);
        let writer = self.archive.append_writer(&mut self.header, name);
        let writer = writer.map_err(BackupError::file("write", &self.partial))?;
        let name = name.to_owned();
        Ok(BackupEntry { writer, digest: Sha256::new(), name, partial: &self.partial, digests: &mut self.digests })
    }

    /// Adds a file to the backup.
    pub fn add(&mut self, name: &str, mut data: impl Read) -> Result<(), BackupError> {
        let mut entry = self.entry(name)?;
        let mut block = vec![0; BLOCK];
        loop {
            let read = data.read(&mut block).map_err(BackupError::file("read what belongs into", entry.partial))?;
            match block.get(..read) {
                None | Some([]) => return entry.finish(),
                Some(some) => entry.write(some)?,
            }
        }
    }

    /// Writes the manifest and the digests, flushes the file, and renames it to its final name. Returns its size.
    pub fn finish(mut self, manifest: &BackupManifest) -> Result<u64, BackupError> {
        let description = serde_json::to_vec_pretty(manifest).map_err(|error| BackupError::File {
            doing: "describe",
            path: self.path.clone(),
            source: io::Error::other(error),
        })?;
        self.add(MANIFEST, description.as_slice())?;
        let digests: String = self.digests.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
        self.add(DIGESTS, digests.as_bytes())?;
        let path = self.partial.clone();
        let failed = || BackupError::file("write", &path);
        self.archive.finish().map_err(failed())?;
        self.archive.get_mut().flush().map_err(failed())?;
        self.file.sync_all().map_err(failed())?;
        let bytes = self.file.metadata().map_err(failed())?.len();
        fs::rename(&self.partial, &self.path).map_err(BackupError::file("rename", &self.partial))?;
        self.is_finished = true;
        flush_folder_of(&self.path).map_err(failed())?;
        Ok(bytes)
    }
}

/// A new name is durable only after the folder was flushed.
pub(super) fn flush_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            // A file that cannot be removed stays; there is no caller to report it to.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// A file of a backup that is being written. Valid once it is finished.
pub struct BackupEntry<'a> {
    writer: EntryWriter<'a>,
    digest: Sha256,
    name: String,
    partial: &'a Path,
    digests: &'a mut Vec<(String, String)>,
}

impl BackupEntry<'_> {
    /// Appends bytes to the file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.digest.update(bytes);
        self.writer.write_all(bytes).map_err(BackupError::file("write", self.partial))
    }

    /// Finishes the file.
    pub fn finish(self) -> Result<(), BackupError> {
        self.writer.finish().map_err(BackupError::file("write", self.partial))?;
        self.digests.push((self.name, hex(&self.digest.finalize())));
        Ok(())
    }
}
