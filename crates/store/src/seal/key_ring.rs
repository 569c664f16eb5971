//! The master keys of an installation: the newest one seals, and each of them opens.
//!
//! They come from the environment, or from a file in the data folder that is created at the first start. They are never
//! stored in a database, so a copy of a database opens nothing. The file has one key on each line, newest first; a file
//! of an earlier version has a single line.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::private_files::{self, exposed_mode};

use super::master_key::{KEY_BYTES, KeyError, KeyId, MasterKey};

/// The limit of generations. A text that does not name its key is tried with each of them.
pub(super) const MOST_KEYS: usize = 16;

/// A larger file is not a key file.
const MAX_FILE_BYTES: u64 = 4096;

/// One or more master keys, the newest first.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<MasterKey>,
}

impl KeyRing {
    /// Reads keys from text, separated by commas or lines, the newest first.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let keys: Vec<MasterKey> =
            text.trim().split([',', '\n']).map(MasterKey::from_env_value).collect::<Result<_, _>>()?;
        if keys.len() > MOST_KEYS {
            return Err(KeyError::Count(keys.len()));
        }
        let ring = Self { keys };
        let mut ids: Vec<KeyId> = ring.ids().collect();
        ids.sort_by_key(ToString::to_string);
        ids.dedup();
        match ids.len() == ring.keys.len() {
            true => Ok(ring),
            false => Err(KeyError::Repeated),
        }
    }

    /// A new key that is stored nowhere.
    pub fn temporary() -> Self {
        Self { keys: vec![MasterKey::random()] }
    }

    /// Reads the keys in the file `path`, or creates the file, and its folder, with a new key.
    ///
    /// A file that other users may read is refused rather than repaired: they may have read it, and a person has to
    /// decide whether the key is still a secret. If several processes start at once, one creates the key and all use
    /// it; a crash leaves a complete file or none.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match File::open(path) {
            Ok(file) => read(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path).map_err(failed("create", path))?;
                // Not the key that was just created: another process may have created the file first.
                Self::load(path)
            }
            Err(error) => Err(failed("open", path)(error)),
        }
    }

    /// Reads the keys in the file `path`.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        read(File::open(path).map_err(failed("open", path))?, path)
    }

    /// Adds a new key before those in the file, which is replaced as a whole.
    pub fn rotate(path: &Path) -> Result<Self, KeyError> {
        // Created first, so that there is a folder to lock: of two concurrent rotations, neither key may be lost.
        Self::load_or_create(path)?;
        let (folder, draft) = draft_beside(path);
        let folder = File::open(folder).map_err(failed("lock", path))?;
        folder.lock().map_err(failed("lock", path))?;
        let mut ring = Self::load(path)?;
        ring.keys.insert(0, MasterKey::random());
        if ring.keys.len() > MOST_KEYS {
            return Err(KeyError::Count(ring.keys.len()));
        }
        let replaced = write_durably(&draft, ring.text().as_bytes()).and_then(|()| std::fs::rename(&draft, path));
        if let Err(error) = replaced {
            // Removed in any case, so that no second copy of a key remains.
            let _ = std::fs::remove_file(&draft);
            return Err(failed("replace", path)(error));
        }
        folder.sync_all().map_err(failed("replace", path))?;
        Ok(ring)
    }

    /// The ids of the keys, newest first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().map(MasterKey::id)
    }

    pub(super) fn keys(&self) -> &[MasterKey] {
        &self.keys
    }

    fn text(&self) -> Zeroizing<String> {
        // Reserved at once: a buffer that grows would leave copies of the keys in memory.
        let mut text = Zeroizing::new(String::with_capacity(self.keys.len() * (2 * KEY_BYTES + 1)));
        self.keys.iter().for_each(|key| key.push_line(&mut text));
        text
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyRing({} x [redacted])", self.keys.len())
    }
}

fn read(file: File, path: &Path) -> Result<KeyRing, KeyError> {
    // The permissions of the open file, so that it cannot be replaced in between.
    if let Some(mode) = exposed_mode(&file.metadata().map_err(failed("inspect", path))?) {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES as usize));
    match file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
        Ok(_) => KeyRing::from_text(&text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(KeyError::Malformed),
        Err(error) => return Err(failed("read", path)(error)),
    }
    .map_err(|source| KeyError::NotAKeyFile { path: path.to_owned(), source: Box::new(source) })
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    move |source| KeyError::File { attempt, path: path.to_owned(), source }
}

/// Creates the file completely or not at all; an existing file is not changed.
fn create(path: &Path) -> io::Result<()> {
    let (folder, draft) = draft_beside(path);
    private_files::create_folder(&folder)?;
    let ring = KeyRing { keys: vec![MasterKey::random()] };
    let written = write_durably(&draft, ring.text().as_bytes()).and_then(|()| match std::fs::hard_link(&draft, path) {
        // A link, unlike a rename, never replaces a key that another process has created meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // Removed in any case, so that no second copy of a key remains.
    let removed = std::fs::remove_file(&draft);
    written?;
    removed?;
    sync_folder(&folder)
}

/// Makes the new name durable. Other systems than Unix cannot open a folder, and write its entries with the file.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The folder of a file, and a new name in it.
fn draft_beside(path: &Path) -> (PathBuf, PathBuf) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    (folder.to_owned(), folder.join(format!(".master-key-{:016x}", rand::random::<u64>())))
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = private_files::options().create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(all(test, unix))]
#[path = "key_ring_tests.rs"]
mod tests;
