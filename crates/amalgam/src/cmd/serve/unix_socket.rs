//! The file of a Unix socket: created with mode 0660, removed at exit, and replaced if no server answers on it.

use std::path::PathBuf;

/// The file of a listening Unix socket. Dropping it removes the file, unless another server has replaced it.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

#[cfg(unix)]
mod unix {
    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use anyhow::{Context as _, bail};
    use tokio::net::{UnixListener, UnixSocket};

    use super::SocketFile;
    use crate::cmd::serve::sockets::BACKLOG;

    /// The user of the server and its group may connect.
    const MODE: u32 = 0o660;

    impl SocketFile {
        /// Listens on a path. A socket file on which no server answers is replaced.
        pub(in crate::cmd::serve) fn bind(path: &Path) -> anyhow::Result<(UnixListener, Self)> {
            remove_stale(path)?;
            // Bound under another name first, so that no caller can connect before the mode is set.
            let mut temporary = path.as_os_str().to_owned();
            temporary.push(".new");
            let temporary = Path::new(&temporary);
            if is_socket(temporary)? {
                fs::remove_file(temporary).context("removing the file of an earlier start")?;
            }
            let socket = UnixSocket::new_stream().context("creating the socket")?;
            socket.bind(temporary).with_context(|| format!("creating {}", temporary.display()))?;
            let prepared = fs::set_permissions(temporary, Permissions::from_mode(MODE))
                .and_then(|()| socket.listen(BACKLOG))
                .and_then(|listener| fs::rename(temporary, path).map(|()| listener))
                .and_then(|listener| Ok((listener, fs::symlink_metadata(path)?)));
            match prepared {
                Ok((listener, metadata)) => {
                    let identity = (metadata.dev(), metadata.ino());
                    Ok((listener, Self { path: path.to_owned(), identity }))
                }
                Err(error) => {
                    let _ = fs::remove_file(temporary);
                    Err(error).context("creating the socket file")
                }
            }
        }
    }

    impl Drop for SocketFile {
        fn drop(&mut self) {
            let own = fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
            if own {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    fn is_socket(path: &Path) -> anyhow::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(metadata.file_type().is_socket()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("looking at {}", path.display())),
        }
    }

    /// Removes a socket file that no server uses; refuses any other file.
    fn remove_stale(path: &Path) -> anyhow::Result<()> {
        if !is_socket(path)? {
            match fs::symlink_metadata(path).is_ok() {
                true => bail!("{} exists and is not a socket", path.display()),
                false => return Ok(()),
            }
        }
        match UnixStream::connect(path) {
            Ok(_) => bail!("another server listens on it"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).context("removing the socket file that no server uses")
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).context("finding out whether another server listens on it"),
        }
    }
}
