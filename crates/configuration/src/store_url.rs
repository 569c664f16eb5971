//! The URL of the database. It is printed without user and password.

use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

/// A database.
#[derive(Clone)]
pub enum StoreUrl {
    /// A file on this machine.
    Sqlite(PathBuf),
    /// A server; the URL may contain a password.
    Postgres(SecretString),
}

impl StoreUrl {
    /// The default file.
    pub fn in_folder(data: &Path) -> Self {
        Self::Sqlite(data.join("amalgam.db"))
    }

    /// Parses a URL; no message repeats it.
    pub fn read(url: &SecretString) -> Result<Self, String> {
        let text = url.expose_secret();
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" | ":memory:" => {
                    Err("expected sqlite: and the path of a file, such as sqlite:/var/lib/amalgam.db".to_owned())
                }
                path if path.contains('?') => Err("a sqlite path takes no options".to_owned()),
                path => Ok(Self::Sqlite(path.into())),
            };
        }
        match host_of(text) {
            Some(_) => Ok(Self::Postgres(url.clone())),
            None => Err("expected sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE".to_owned()),
        }
    }
}

impl StoreUrl {
    /// Adds everything in which two URLs can differ.
    pub(crate) fn fingerprint(&self, hasher: &mut impl std::hash::Hasher) {
        match self {
            Self::Sqlite(path) => std::hash::Hash::hash(path, hasher),
            Self::Postgres(url) => std::hash::Hash::hash(url.expose_secret(), hasher),
        }
    }

    /// The name of the file or of the database, for display.
    pub fn name(&self) -> String {
        let shown = self.to_string();
        match self {
            Self::Sqlite(path) => path.file_name().map_or(shown, |name| name.to_string_lossy().into_owned()),
            Self::Postgres(_) => match shown.trim_start_matches("postgres://").rsplit_once('/') {
                Some((_, database)) if !database.is_empty() => database.to_owned(),
                _ => shown,
            },
        }
    }
}

/// Server and database of a URL, without anything that could be secret.
fn host_of(text: &str) -> Option<String> {
    let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"))?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // The last one: a password may contain an unescaped `@`.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    (!rest.is_empty() || text.contains('?')).then(|| format!("postgres://{rest}"))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(&host_of(url.expose_secret()).unwrap_or_default()),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        StoreUrl::read(&SecretString::from(text)).map(|url| format!("{url} {url:?}"))
    }

    #[test]
    fn files_and_servers_are_told_apart() {
        assert_eq!(shown("sqlite:a/b.db").unwrap(), "sqlite:a/b.db StoreUrl(sqlite:a/b.db)");
        assert_eq!(shown("sqlite:///var/b.db").unwrap(), "sqlite:/var/b.db StoreUrl(sqlite:/var/b.db)");
        assert!(shown("postgresql://host/db").unwrap().starts_with("postgres://host/db "));
        for wrong in ["", "sqlite:", "sqlite::memory:", "sqlite:a.db?mode=ro", "mysql://host/db", "a.db", "postgres:"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }

    // P12
    #[test]
    fn neither_user_nor_password_is_shown() {
        for url in [
            "postgres://hush:hush@host:5432/db?password=hush",
            "postgres://hush:hu@sh@host:5432/db",
            "postgresql://host:5432/db?user=hush&password=hush#hush",
        ] {
            let shown = shown(url).unwrap();
            assert!(shown.starts_with("postgres://host:5432/db ") && !shown.contains("hu"), "{shown}");
        }
        assert!(!shown("mysql://hush:hush@host").unwrap_err().contains("hush"));
    }
}
