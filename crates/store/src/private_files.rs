//! Files and folders that only their owner may read.
//!
//! Unix sets the permissions when a file is created. Other systems have no such permissions: there a new file gets the
//! access list of its folder, and the operator has to choose a folder that other users cannot read.

use std::{
    fs::{DirBuilder, Metadata, OpenOptions},
    io,
    path::Path,
    time::SystemTime,
};

/// Creates a folder and its parents, if they do not exist.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Options to write a file; if it is new, only its owner may read it.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The permissions of a file that other users may read; `None` if only its owner may, or the system has no such
/// permissions.
#[cfg(unix)]
pub(crate) fn exposed_mode(file: &Metadata) -> Option<u32> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
pub(crate) fn exposed_mode(_: &Metadata) -> Option<u32> {
    None
}

/// The properties that change when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Differs for a file that replaces another one; zero where the system has no such number.
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl FileState {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&file);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { inode, length: file.len(), modified: file.modified().ok() })
    }
}
